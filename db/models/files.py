"""Tables of annotations, and of the position up to which each file has been read."""

from sqlalchemy import BigInteger, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class Annotation(Base):
    """Changes by a user, in order; together they give the run's name, tags and note."""

    __tablename__ = "annotations"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    t: Mapped[float]
    kind: Mapped[str] = mapped_column(String(16))
    """`name`, `tag`, `untag` or `note`."""
    value: Mapped[str] = mapped_column(Text)


class JournalFile(Base):
    """Position up to which a file has been read; ingest continues there."""

    __tablename__ = "journal_files"
    __table_args__ = (Index(None, "run_id"),)

    path: Mapped[str] = mapped_column(Text, primary_key=True)
    """Relative to the runs directory."""
    num_lines: Mapped[int]
    last_n: Mapped[int]
    """The `n` of the last line; more than `num_lines` if lines are missing."""
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    run_id: Mapped[str] = mapped_column(String(64), server_default="")
