"""Print the progress of a study, as a table that is redrawn on a terminal, and its results."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from sqlalchemy.orm import Session

from db.queries import speedup_groups
from db.queries.statistics import median
from db.reports import study_table
from db.reports.cells import UNKNOWN, number, text
from db.reports.plain import to_plain
from db.reports.tables import Column, Table, table_of
from elasticqa.scaling.matrix import Cell
from elasticqa.scaling.study import FAILED, FINISHED, OPEN, Study, StudyRun, outcome_of

SUFFIXES = {"markdown": ".md", "latex": ".tex"}


@dataclass
class Progress:
    """Prints lines, and on a terminal a table below them."""

    runs_dir: Path
    out: TextIO = field(default_factory=lambda: sys.stdout)
    job_states: dict[str, str] = field(default_factory=dict)
    """The scheduler's last answer by run id."""
    _drawn: str = ""
    _warning: str = ""

    def line(self, line: str) -> None:
        """Print a line; it stays above the table."""
        self._write(text(line) + "\n")

    def warn(self, line: str) -> None:
        """Print a warning, unless it equals the one before."""
        if line != self._warning:
            self.line(line)
            self._warning = line

    def print_table(self, study: Study) -> None:
        """Print the table, with or without a terminal."""
        self._write(self.table(study))

    def redraw(self, study: Study) -> None:
        """Redraw the table on a terminal if it has changed."""
        table = self.table(study) if self.out.isatty() else self._drawn
        if table != self._drawn:
            self._write(table)
            self._drawn = table

    def _write(self, lines: str) -> None:
        if self._drawn:
            # Up by as many lines as were drawn, then erase to the end of the screen.
            self.out.write(f"\x1b[{self._drawn.count(chr(10))}A\x1b[J")
            self._drawn = ""
        self.out.write(lines)
        self.out.flush()

    def table(self, study: Study) -> str:
        """Return the progress of each cell, and the reasons of failed runs."""

        def repeats(cell: Cell, status: str) -> list[StudyRun]:
            runs = [run for run in _runs_of(study, cell) if run.status == status]
            return sorted(runs, key=lambda run: run.slot.repeat)

        def in_flight(cell: Cell) -> list[str]:
            return [f"{run.slot.repeat} {self.job_states.get(run.run_id, 'queued')}" for run in repeats(cell, OPEN)]

        columns: tuple[Column[Cell], ...] = (
            Column("cell", lambda cell: cell.name),
            Column("finished", lambda cell: f"{len(repeats(cell, FINISHED))}/{study.matrix.repeats}", is_number=True),
            Column("median s", lambda cell: self._median(repeats(cell, FINISHED)), is_number=True),
            Column("in flight", lambda cell: ", ".join(in_flight(cell)) or UNKNOWN),
            Column("failed", lambda cell: ", ".join(str(run.slot.repeat) for run in repeats(cell, FAILED)) or UNKNOWN),
        )
        failed = [f"{run.slot}: {text(run.reason)}" for run in study.runs_with(FAILED)]
        num_finished = len(study.runs_with(FINISHED))
        title = f"study {study.study_id}: {num_finished} of {len(study.slots())} runs finished\n"
        return title + to_plain(table_of("Study", columns, study.matrix.cells(), failed))

    def _median(self, runs: Sequence[StudyRun]) -> str:
        outcomes = (outcome_of(self.runs_dir / run.run_id) for run in runs)
        times = [outcome.wall_clock_s for outcome in outcomes if outcome.wall_clock_s is not None]
        return number(median(times), 1) if times else UNKNOWN


def results(session: Session, study: Study) -> Table:
    """Return the results table of a study, with a note for each cell that lacks finished runs."""
    repeats = study.matrix.repeats
    notes = []
    for cell in study.matrix.cells():
        runs = _runs_of(study, cell)
        num_finished = sum(run.status == FINISHED for run in runs)
        failed = [run for run in runs if run.status == FAILED]
        if num_finished < repeats:
            why = f"; {len(failed)} failed, the last: {failed[-1].reason}" if failed else ""
            notes.append(f"{cell.name}: {num_finished} of {repeats} runs finished{why}.")
    return study_table(speedup_groups(session, study=study.study_id), notes)


def _runs_of(study: Study, cell: Cell) -> list[StudyRun]:
    return [run for slot, run in study.runs.items() if slot.cell == cell]
