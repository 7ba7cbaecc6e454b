"""Reads the rows of a report from the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy.orm import Session

from db.queries import (
    Comparison,
    RunOrder,
    RunRow,
    compare_all,
    get_run,
    list_runs,
    loss_series,
    speedup_groups,
)
from db.reports.charts import Points
from db.reports.tables import Table, runs_table, speedup_table

MAX_RUNS = 200
MAX_CURVES = 6
_POINTS_OF_CURVE = 300


@dataclass(frozen=True)
class Report:
    """Rows of a report."""

    made_at: float
    runs: tuple[RunRow, ...]
    num_matching: int
    comparisons: tuple[Comparison, ...]
    curves: tuple[tuple[str, Points], ...]
    """Label, and loss by step, of some runs."""

    @property
    def tables(self) -> tuple[Table, Table]:
        """Speedups, and runs."""
        return speedup_table(self.comparisons), runs_table(self.runs, self.num_matching)


def gather(session: Session, now: float, run_ids: Sequence[str] = ()) -> Report:
    """Return the report of some runs, or of the newest 200.

    With `run_ids`, it compares the groups that contain these runs, with all repeats, and their references.

    Raises:
        RunNotFoundError: a run is not in the record.
    """
    if run_ids:
        runs: tuple[RunRow, ...] = tuple(get_run(session, run_id, now) for run_id in dict.fromkeys(run_ids))
        num_matching = len(runs)
    else:
        page = list_runs(session, now, order=RunOrder("created_at", "desc"), limit=MAX_RUNS)
        runs, num_matching = page.rows, page.num_matching
    comparisons = compare_all(speedup_groups(session))
    if run_ids:
        comparisons = _about(comparisons, {run.run_id for run in runs})
    return Report(now, runs, num_matching, tuple(comparisons), tuple(islice(_curves(session, runs), MAX_CURVES)))


def _about(comparisons: list[Comparison], run_ids: set[str]) -> list[Comparison]:
    asked = [item for item in comparisons if any(repeat.run_id in run_ids for repeat in item.group.repeats)]
    keys = {item.group.key for item in asked} | {item.reference.key for item in asked if item.reference is not None}
    return [item for item in comparisons if item.group.key in keys]


def _curves(session: Session, runs: Sequence[RunRow]) -> Iterator[tuple[str, Points]]:
    for run in runs:
        if run.step:
            series = loss_series(session, run.run_id, _POINTS_OF_CURVE)
            points = [(float(point.last_step), point.loss) for point in series if point.loss is not None]
            if len(points) > 1:
                yield run.name or run.run_id, points
