"""Importers of results of other programs; each becomes a run of provenance `imported`."""

from db.importers.fields import ImportFormatError
from db.importers.kineto import trace_run
from db.importers.results import FoundResults, find_results, read_results
from db.importers.run import ImportedRun, write_run

__all__ = [
    "FoundResults",
    "ImportFormatError",
    "ImportedRun",
    "find_results",
    "read_results",
    "trace_run",
    "write_run",
]
