"""What has been written while a run is hit by faults: lines that were once there stay, and the database follows."""

from pathlib import Path

from db.ingest.update import bring_up_to_date


class Watch:
    """Looks at a run's files from time to time."""

    def __init__(self, home: Path, directory: Path) -> None:
        self._home = home
        self._directory = directory
        self._seen: dict[Path, bytes] = {}

    def look(self) -> None:
        """Note the whole lines of all journals and logs of fed features.

        Raises:
            AssertionError: a line that was there before is not there any more.
        """
        for path in [*self._directory.glob("journal/*.jsonl"), *self._directory.glob("fed/*.jsonl")]:
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            before = self._seen.get(path, b"")
            assert whole.startswith(before), f"{path} has lost lines that were in it"
            self._seen[path] = whole
        missing = [path.name for path in self._seen if not path.exists()]
        assert not missing, f"{missing} were there before"

    def ingest(self) -> None:
        """Bring the database up to the journals, as whoever looks at a run that is under way does."""
        bring_up_to_date({"ELASTICQA_HOME": str(self._home)})
