"""Results of Lightning's CSVLogger: `metrics.csv`, and `hparams.yaml` beside it if it exists.

The file contains no times. Its `step` counts from 0, the record's from 1.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from db.importers.errors import ImportFormatError
from db.importers.fields import shown
from db.importers.hparams import read_hparams
from db.importers.metric_names import journal_field_of
from db.importers.run import ImportedRun, MetricPoints
from db.importers.source import changed_at, digest_of, name_of

FORMAT = "Lightning"
METRICS = "metrics.csv"
HPARAMS = "hparams.yaml"
MAX_BYTES = 256 * 2**20
MAX_LINE_CHARACTERS = 2**16


def read_lightning(path: Path) -> ImportedRun:
    """Return the run of a `metrics.csv`.

    Raises:
        ImportFormatError: the file is damaged, has no known metric, or is larger than 256 MiB.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ImportFormatError(path, "", f"over {MAX_BYTES // 2**20} MiB, the limit")
    t = changed_at(path)
    points = MetricPoints(path)
    _Metrics(path, t, points).read()
    hparams = path.with_name(HPARAMS)
    config, events = read_hparams(hparams, t)
    return ImportedRun(
        format=FORMAT,
        path=path,
        digest=digest_of(FORMAT, [file for file in (path, hparams) if file.is_file()]),
        started_at=t,
        ended_at=t,
        name=name_of(path.parent),
        config=config,
        facts=(*points.lines(t), *events),
        end={
            "status": "finished",
            "reason": "imported; the file contains neither times nor how the run ended",
            "step": points.last_step or None,
            "final_loss": points.final_loss(),
        },
    )


class _Metrics:
    """Collects the metrics of one file."""

    def __init__(self, path: Path, t: float, points: MetricPoints) -> None:
        self._path = path
        self._t = t
        self._points = points
        self._line = 0

    def read(self) -> None:
        """Read every row."""
        try:
            with self._path.open(encoding="utf-8", newline="") as stream:
                rows = csv.reader(self._lines(stream), strict=True)
                header = next(rows, [])
                meanings = [journal_field_of(name) for name in header]
                if "step" not in header or not any(meanings):
                    raise self._error("the first line needs a column step, and one of a loss, EM, F1 or learning rate")
                step_column = header.index("step")
                for row in rows:
                    self._take(header, row, step_column)
        except UnicodeDecodeError as error:
            raise self._error(f"the text after this is not UTF-8 ({error.reason})") from error
        except csv.Error as error:
            raise self._error(f"is no CSV ({error})") from error

    def _lines(self, stream: TextIO) -> Iterator[str]:
        while line := stream.readline(MAX_LINE_CHARACTERS):
            self._line += 1
            if not line.endswith("\n"):
                is_long = len(line) == MAX_LINE_CHARACTERS
                problem = (
                    f"is longer than {MAX_LINE_CHARACTERS:,} characters"
                    if is_long
                    else "is cut off: it has no line end"
                )
                raise self._error(problem)
            yield line

    def _take(self, header: Sequence[str], row: Sequence[str], step_column: int) -> None:
        if len(row) != len(header):
            raise self._error(f"{len(row)} values under {len(header)} columns: the file is damaged")
        if not row[step_column].isdecimal() or len(row[step_column]) > 9:
            raise self._error(f"step={shown(row[step_column])} is not a count")
        step = int(row[step_column]) + 1
        for name, text in zip(header, row, strict=True):
            meaning = journal_field_of(name) if text else None
            if meaning is not None:
                self._points.add(meaning, step, self._t, self._number(name, text))

    def _number(self, name: str, text: str) -> float | None:
        try:
            value = float(text)
        except ValueError:
            raise self._error(f"{name}={shown(text)} is not a number") from None
        return value if math.isfinite(value) else None

    def _error(self, problem: str) -> ImportFormatError:
        return ImportFormatError(self._path, f"line {self._line}" if self._line else "", problem)
