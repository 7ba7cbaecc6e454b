"""What a user, or a study, adds to a run: lines beside its journal."""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def annotate(directory: Path, annotations: Sequence[tuple[str, str]]) -> None:
    """Append annotations to a run and return when they are on the disk.

    Args:
        directory: of the run; created for a run that has not begun, and for a reported one, whose own directory comes
            with the product.
        annotations: pairs of a kind (`name`, `tag`, `untag`, `note`) and a text.
    """
    directory.mkdir(parents=True, exist_ok=True)
    append_lines(directory / "annotations.jsonl", ({"kind": kind, "value": value} for kind, value in annotations))


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines with their number `n` and the time `t`, and return when they are on the disk."""
    with path.open("a+b") as file:
        # Two users of one home may write at once, and the line numbers must not meet.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = file.read()
        number = before.count(b"\n")
        text = ""
        if before and not before.endswith(b"\n"):
            # Left by a crash: closed as a line of its own, or it would swallow the next one.
            text, number = "\n", number + 1
        for line in lines:
            number += 1
            text += json.dumps({"n": number, "t": time.time(), **line}) + "\n"
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
