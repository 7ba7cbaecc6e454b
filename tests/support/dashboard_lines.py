"""Numbered lines of a journal file."""

import json
from pathlib import Path
from typing import Any


class Lines:
    """Writes numbered lines to one journal file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lines: list[str] = []

    def add(self, t: float, kind: str, **fields: Any) -> None:
        """Append a line."""
        line = {"n": len(self._lines) + 1, "t": t, "kind": kind, **fields}
        self._lines.append(json.dumps(line))

    def save(self) -> None:
        """Write the file."""
        self._path.write_text("".join(line + "\n" for line in self._lines), encoding="utf-8")
