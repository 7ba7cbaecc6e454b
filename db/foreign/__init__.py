"""Results of other programs, taken into the record as runs of provenance `imported`."""

from db.foreign.detect import Found, found_in
from db.foreign.errors import ForeignFormatError
from db.foreign.kineto import TraceFacts, trace_run
from db.foreign.readers import read_foreign
from db.foreign.run import ForeignRun
from db.foreign.write import Imported, write_run

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
