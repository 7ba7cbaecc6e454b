"""Scalars of TensorBoard event files, from any program that writes them.

Tags are names such as `train/loss`, `loss`, `eval/f1` or `lr-AdamW` (see `metric_names`). Fields of the messages:
1 wall_time, 2 step, 5 summary of an Event; 1 tag, 2 simple_value, 8 tensor of a Value.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from db.importers.fields import ImportFormatError
from db.importers.hparams import read_hparams
from db.importers.lightning import HPARAMS
from db.importers.metric_names import JournalField, journal_field_of
from db.importers.run import ImportedRun, MetricPoints, changed_at, digest_of, name_of
from db.importers.tfrecord import Value, fields, records
from db.journal_schema import is_time

_Scalar = tuple[JournalField, int, float | None]

FORMAT = "TensorBoard"
MAX_BYTES = 512 * 2**20
"""Limit of all event files of a run."""
_DOUBLE = 2
"""Data type DT_DOUBLE (float64) of a tensor."""


def is_event_file(path: Path) -> bool:
    """Return whether a path is a file with the name of an event file."""
    return "tfevents" in path.name and path.is_file()


def read_tensorboard(files: Sequence[Path], folder: Path) -> ImportedRun:
    """Return the run of some event files; their steps are merged.

    The run starts with its first event and ends with its last.

    Raises:
        ImportFormatError: a file is damaged, there is no known scalar, or the files exceed 512 MiB.
    """
    num_bytes = sum(file.stat().st_size for file in files)
    if num_bytes > MAX_BYTES:
        raise ImportFormatError(folder, "", f"{num_bytes:,} bytes of events, at most {MAX_BYTES // 2**20} MiB is read")
    points, times, num_scalars = MetricPoints(folder), (math.inf, -math.inf), 0
    for file in files:
        for t, scalars in _events(file):
            times = min(times[0], t), max(times[1], t)
            for meaning, step, value in scalars:
                points.add(meaning, step, t, value)
                num_scalars += meaning.field not in ("epoch", "passes")
    started_at, ended_at = times
    if started_at > ended_at:
        raise ImportFormatError(files[0], "", "has no events")
    if not num_scalars:
        raise ImportFormatError(files[0], "", "has no scalar with the name of a loss, learning rate, EM or F1")
    config, skipped = read_hparams(folder / HPARAMS, ended_at)
    hparams = [folder / HPARAMS] if (folder / HPARAMS).is_file() else []
    return ImportedRun(
        format=FORMAT,
        path=folder,
        digest=digest_of(FORMAT, [*files, *hparams]),
        started_at=started_at,
        ended_at=ended_at,
        name=name_of(folder),
        config=config,
        facts=(*points.lines(ended_at), *skipped),
        end={
            "status": "finished",
            "reason": "imported; the wall clock is the time from the first event to the last",
            "step": points.last_step or None,
            "wall_clock_s": ended_at - started_at,
            "final_loss": points.final_loss(),
        },
    )


def _events(path: Path) -> Iterator[tuple[float, list[_Scalar]]]:
    """Yield the time and the known scalars of each event of a file."""
    changed = changed_at(path)
    for position, data in records(path):
        try:
            event = _event(data, changed)
        except (ValueError, struct.error) as error:
            raise ImportFormatError(path, f"byte {position:,}", f"is not an event ({error})") from error
        yield event


def _event(data: bytes, changed: float) -> tuple[float, list[_Scalar]]:
    event = dict(fields(data))
    t = _double(event.get(1, b""))
    if t is None or not is_time(t):
        t = changed
    step, summary, scalars = event.get(2, 0), event.get(5), []
    if not isinstance(summary, bytes):
        return t, []
    if not isinstance(step, int) or step >= 2**31:
        raise ValueError(f"step {step!r} is not a count below 2^31")
    values = [dict(fields(value)) for number, value in fields(summary) if number == 1 and isinstance(value, bytes)]
    for value in values:
        tag = value.get(1)
        meaning = journal_field_of(tag.decode()) if isinstance(tag, bytes) else None
        if meaning is not None and (2 in value or 8 in value):
            scalars.append((meaning, step, _scalar(value)))
    return t, scalars


def _scalar(value: dict[int, Value]) -> float | None:
    simple, content = value.get(2), value.get(8)
    if isinstance(simple, bytes):
        return _finite(struct.unpack("<f", simple)[0])
    tensor = dict(fields(content)) if isinstance(content, bytes) else {}
    # A tensor stores values as bytes of its type (4), as floats (5) or as doubles (6).
    forms = {4: "<d" if tensor.get(1) == _DOUBLE else "<f", 5: "<f", 6: "<d"}
    for number, form in forms.items():
        raw = tensor.get(number)
        if isinstance(raw, bytes):
            return _finite(struct.unpack_from(form, raw)[0])
    return None


def _double(raw: Value) -> float | None:
    return struct.unpack("<d", raw)[0] if isinstance(raw, bytes) and len(raw) == 8 else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
