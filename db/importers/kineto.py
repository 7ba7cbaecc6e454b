"""A Kineto trace as a run; the caller reads the trace and passes its summary."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db.importers.fields import storable
from db.importers.run import ImportedRun, changed_at, digest_of

FORMAT = "Kineto trace"
_PEEKED_CHARACTERS = 2**20


def is_trace(path: Path) -> bool:
    """Return whether the start of a JSON file, plain or gzip, contains trace events."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            return b'"traceEvents"' in stream.read(_PEEKED_CHARACTERS)
    except (OSError, EOFError, zlib.error):
        return False


def trace_run(
    path: Path, summary: Mapping[str, Any], *, rank: int | None, world_size: int | None, device_name: str | None
) -> ImportedRun:
    """Return a run with one profile: the summary and a copy of the trace; facts that the trace lacks are None."""
    t = changed_at(path)
    target = f"traces/{'trace.json.gz' if path.suffix == '.gz' else 'trace.json'}"
    profile = {"step": None, "rank": rank, "summary": dict(summary), "trace": target}
    device = {"device_type": "cuda", "device_name": device_name} if device_name else None
    return ImportedRun(
        format=FORMAT,
        path=path,
        digest=digest_of(FORMAT, [path]),
        started_at=t,
        ended_at=t,
        name=storable(path.name.removesuffix(".gz").removesuffix(".json")),
        world_size=world_size,
        host=device,
        facts=(("profile", t, profile),),
        end={"status": "finished", "reason": "imported; a trace covers only some steps"},
        files=((target, path),),
    )
