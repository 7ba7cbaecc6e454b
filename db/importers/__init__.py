"""Results of other programs, taken into the record as runs of provenance `imported`."""

from db.importers.detect import Found, found_in
from db.importers.errors import ForeignFormatError
from db.importers.kineto import TraceFacts, trace_run
from db.importers.readers import read_foreign
from db.importers.run import ForeignRun
from db.importers.write import Imported, write_run

__all__ = [
    "ForeignFormatError",
    "ForeignRun",
    "Found",
    "Imported",
    "TraceFacts",
    "found_in",
    "read_foreign",
    "trace_run",
    "write_run",
]
