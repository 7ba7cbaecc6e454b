"""Files through which a node's workers tell their agent which attempt they run and why a start failed."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from elasticqa.config.environment import agent_directory
from elasticqa.elastic.end_causes import EndCause, add_causes, read_causes


class AgentDirectory:
    """The agent's temporary directory; workers get its path in ELASTICQA_AGENT_DIRECTORY."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._attempt = path / "attempt.json"

    @classmethod
    def from_env(cls) -> Self | None:
        """Return the directory of the agent that started this worker; None without one."""
        path = agent_directory()
        return None if path is None else cls(path)

    def announce_attempt(self, run_dir: Path, attempt: int) -> None:
        """Tell the agent which attempt its workers run."""
        fields = {"directory": os.fspath(run_dir.absolute()), "attempt": attempt}
        self._attempt.write_text(json.dumps(fields), encoding="utf-8")

    def announced_attempt(self) -> tuple[Path, int] | None:
        """Return run directory and number of the attempt that the workers have announced; None before."""
        try:
            fields = json.loads(self._attempt.read_text(encoding="utf-8"))
            return Path(fields["directory"]), int(fields["attempt"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def forget_attempt(self) -> None:
        """Remove the announced attempt before new workers start."""
        self._attempt.unlink(missing_ok=True)

    def keep_startup_failures(self, writer: str, causes: Iterable[EndCause]) -> None:
        """Keep the failures of workers that have announced no attempt yet, so that the next attempt records them.

        Args:
            writer: names the process, such as ``rank-00001``.
            causes: why the start ends; membership changes are left out.
        """
        failures = [cause for cause in causes if cause.is_failure]
        if failures:
            add_causes(self._path / f"news-{writer}.json", failures)

    def take_startup_failures(self) -> list[EndCause]:
        """Remove and return the kept failures: the most certain one of each rank."""
        paths = list(self._path.glob("news-*.json"))
        most_certain: dict[str, EndCause] = {}
        for cause in read_causes(paths):
            most_certain.setdefault(cause.who, cause)
        for path in paths:
            path.unlink(missing_ok=True)
        return list(most_certain.values())
