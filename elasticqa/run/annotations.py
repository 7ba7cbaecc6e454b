"""Annotations: what a user, or a study, adds to a run, in lines beside its journal."""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from db.storage.file_lock import locked


def annotate(directory: Path, annotations: Sequence[tuple[str, str]]) -> None:
    """Append pairs of a kind (`name`, `tag`, `untag`, `note`) and a text to a run; they are on disk when this returns.

    The directory is created if absent: the run may not have started, or is a reported run, installed with the package.
    """
    append_lines(directory / "annotations.jsonl", ({"kind": kind, "value": value} for kind, value in annotations))


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines with their number `n` and the time `t` to a file, created if absent like its directory; fsync it."""
    # Two users of one home may write at once, and line numbers must be unique.
    with locked(path), path.open("a+b") as file:
        file.seek(0)
        before = file.read()
        number = before.count(b"\n")
        text = ""
        if before and not before.endswith(b"\n"):
            # End an incomplete line that a crash left; otherwise the next line would be appended to it.
            text, number = "\n", number + 1
        for line in lines:
            number += 1
            text += json.dumps({"n": number, "t": time.time(), **line}) + "\n"
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
