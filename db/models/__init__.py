"""Tables of the record: an index of the journals, which ingest can rebuild at any time.

Times are Unix seconds (float) as in the journal; names contain units. `line` is the line number in the journal file.
Only ingest writes to these tables.
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
