"""Results of Lightning's CSVLogger: `metrics.csv`, and `hparams.yaml` beside it if it exists.

The file contains no times. Its `step` counts from 0; the journal's from 1.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from db.importers.fields import ImportFormatError, shown
from db.importers.hparams import read_hparams
from db.importers.metric_names import JournalField, journal_field_of
from db.importers.run import ImportedRun, MetricPoints, changed_at, digest_of, name_of

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
    _add_metrics(path, t, points)
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


def _add_metrics(path: Path, t: float, points: MetricPoints) -> None:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(_lines(path, stream), strict=True)
        try:
            header = next(rows, [])
            if "step" not in header or not any(map(journal_field_of, header)):
                raise ValueError("the first line needs a column step, and one of a loss, EM, F1 or learning rate")
            for row in rows:
                for meaning, step, value in _metrics(header, row):
                    points.add(meaning, step, t, value)
        except ImportFormatError:
            raise
        except UnicodeDecodeError as error:
            raise _error(path, rows.line_num, f"the text after this is not UTF-8 ({error.reason})") from error
        except csv.Error as error:
            raise _error(path, rows.line_num, f"is not CSV ({error})") from error
        except ValueError as error:
            raise _error(path, rows.line_num, str(error)) from error


def _lines(path: Path, stream: TextIO) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_CHARACTERS), ""), start=1):
        if len(line) == MAX_LINE_CHARACTERS and not line.endswith("\n"):
            raise _error(path, number, f"is longer than {MAX_LINE_CHARACTERS:,} characters")
        if not line.endswith("\n"):
            raise _error(path, number, "is cut off: it has no line end")
        yield line


def _metrics(header: Sequence[str], row: Sequence[str]) -> Iterator[tuple[JournalField, int, float | None]]:
    """Yield (field, step, value) of the known metrics of a row."""
    if len(row) != len(header):
        raise ValueError(f"{len(row)} values under {len(header)} columns: the file is damaged")
    step = row[header.index("step")]
    if not step.isdecimal() or len(step) > 9:
        raise ValueError(f"step={shown(step)} is not a count")
    for name, text in zip(header, row, strict=True):
        meaning = journal_field_of(name) if text else None
        if meaning is not None:
            yield meaning, int(step) + 1, _number(name, text)


def _number(name: str, text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name}={shown(text)} is not a number") from None
    return value if math.isfinite(value) else None


def _error(path: Path, line: int, problem: str) -> ImportFormatError:
    return ImportFormatError(path, f"line {line}" if line else "", problem)
