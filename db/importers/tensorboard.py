"""Scalars of TensorBoard event files, from any program that writes them.

Tags are names such as `train/loss`, `loss`, `eval/f1` or `lr-AdamW` (see `metric_names`). Fields of the messages:
1 wall_time, 2 step, 5 summary of an Event; 1 tag, 2 simple_value, 8 tensor of a Value.
"""

import math
import struct
from collections.abc import Sequence
from pathlib import Path

from db.importers.errors import ImportFormatError
from db.importers.hparams import read_hparams
from db.importers.lightning import HPARAMS
from db.importers.metric_names import journal_field_of
from db.importers.run import ImportedRun, MetricPoints
from db.importers.source import changed_at, digest_of, name_of
from db.importers.tfrecord import Value, fields, records
from db.journal_schema import is_time

FORMAT = "TensorBoard"
MAX_BYTES = 512 * 2**20
"""Limit of all event files of a run."""
_DOUBLE = 2
"""The type of a tensor of float64."""


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
    points = MetricPoints(folder)
    events = _Events(points)
    for file in files:
        events.read(file)
    if not events.times:
        raise ImportFormatError(files[0], "", "has no events")
    if not events.num_scalars:
        raise ImportFormatError(files[0], "", "has no scalar with the name of a loss, learning rate, EM or F1")
    started_at, ended_at = events.times
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


class _Events:
    """Collects the scalars of event files."""

    def __init__(self, points: MetricPoints) -> None:
        self._points = points
        self.num_scalars = 0
        self.times: tuple[float, float] | None = None

    def read(self, path: Path) -> None:
        """Read one file."""
        changed = changed_at(path)
        for position, data in records(path):
            try:
                self._take(data, changed)
            except (ValueError, struct.error) as error:
                if isinstance(error, ImportFormatError):
                    raise
                raise ImportFormatError(path, f"byte {position:,}", f"is no event ({error})") from error

    def _take(self, data: bytes, changed: float) -> None:
        event = dict(fields(data))
        t = _double(event.get(1, b""))
        if t is None or not is_time(t):
            t = changed
        first, last = self.times or (t, t)
        self.times = (min(first, t), max(last, t))
        step = event.get(2, 0)
        summary = event.get(5)
        if not isinstance(summary, bytes):
            return
        if not isinstance(step, int) or step >= 2**31:
            raise ValueError(f"step {step!r} is not a count below 2^31")
        for number, value in fields(summary):
            if number == 1 and isinstance(value, bytes):
                self._take_value(value, step, t)

    def _take_value(self, data: bytes, step: int, t: float) -> None:
        value = dict(fields(data))
        tag = value.get(1)
        meaning = journal_field_of(tag.decode()) if isinstance(tag, bytes) else None
        if meaning is None or not (2 in value or 8 in value):
            return
        self.num_scalars += meaning.field not in ("epoch", "passes")
        self._points.add(meaning, step, t, _scalar(value))


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
