"""Tables of what lies beside the journals of a run: annotations, and how far each file has been read."""

from sqlalchemy import BigInteger, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class Annotation(Base):
    """What a user added to a run, in order; the run's name, tags and note are the outcome."""

    __tablename__ = "annotations"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    t: Mapped[float]
    kind: Mapped[str] = mapped_column(String(16))
    """`name`, `tag`, `untag` or `note`."""
    value: Mapped[str] = mapped_column(Text)


class JournalFile(Base):
    """How far a journal file has been read: ingest goes on from there."""

    __tablename__ = "journal_files"
    __table_args__ = (Index(None, "run_id"),)

    path: Mapped[str] = mapped_column(Text, primary_key=True)
    """Relative to the runs directory."""
    num_lines: Mapped[int]
    last_n: Mapped[int]
    """The line number that the last line claimed; more than `num_lines` where lines are missing."""
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    run_id: Mapped[str] = mapped_column(String(64), server_default="")
