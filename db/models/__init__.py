"""Tables of the record: an index of journals, rebuilt by ingest at any time.

Times are UTC Unix seconds (float) as the journal has them; units are in the names. `line` is a line's number
in its journal file. Only ingest writes here.
"""

from db.models.attempt import Attempt
from db.models.attempt_rows import Checkpoint, Evaluation, Event, Profile, Step, SystemSample
from db.models.base import Base
from db.models.files import Annotation, JournalFile
from db.models.run import Run

__all__ = [
    "Annotation",
    "Attempt",
    "Base",
    "Checkpoint",
    "Evaluation",
    "Event",
    "JournalFile",
    "Profile",
    "Run",
    "Step",
    "SystemSample",
]
