"""How a study shows where it stands: a table that is redrawn on a terminal, lines elsewhere."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from db.queries.statistics import median
from db.reports.cells import UNKNOWN, number, text
from db.reports.plain import to_plain
from db.reports.tables import Column, Table
from elasticqa.scaling import state
from elasticqa.scaling.outcome import outcome_of
from elasticqa.scaling.plan import Cell
from elasticqa.scaling.state import Study

_COLUMNS = (
    Column("cell"),
    Column("finished", is_number=True),
    Column("median s", is_number=True),
    Column("in flight"),
    Column("failed"),
)


@dataclass
class Screen:
    """Where the study talks to; ``states`` is what the scheduler said last of each run."""

    runs: Path
    out: TextIO = field(default_factory=lambda: sys.stdout)
    states: dict[str, str] = field(default_factory=dict)
    _shown: str = ""
    _trouble: str = ""

    def say(self, line: str) -> None:
        """Say what has just happened: a line, that stays above the table."""
        self._clear()
        self.out.write(text(line) + "\n")
        self.out.flush()

    def trouble(self, line: str) -> None:
        """Say what is wrong, once as long as it is the same."""
        if line != self._trouble:
            self.say(line)
            self._trouble = line

    def overview(self, study: Study) -> None:
        """Write where the study stands, terminal or not."""
        self._clear()
        self.out.write(self.table(study))
        self.out.flush()

    def show(self, study: Study) -> None:
        """Draw the table anew if it has changed; without a terminal the lines tell the same."""
        if not self.out.isatty():
            return
        table = self.table(study)
        if table != self._shown:
            self._clear()
            self.out.write(table)
            self.out.flush()
            self._shown = table

    def _clear(self) -> None:
        if self._shown:
            # Up by as many lines, and erase what is below.
            self.out.write(f"\x1b[{self._shown.count(chr(10))}A\x1b[J")
            self._shown = ""

    def table(self, study: Study) -> str:
        """Return where each cell stands, and why repeats have failed."""
        rows = tuple(self._row(study, cell) for cell in study.plan.cells())
        failed = tuple(f"{item.slot}: {text(item.reason)}" for item in study.all_with(state.FAILED))
        num_done, num_all = len(study.all_with(state.FINISHED)), len(study.plan.slots(study.study_id))
        title = f"study {study.study_id}: {num_done} of {num_all} runs finished\n"
        return title + to_plain(Table("Study", _COLUMNS, rows, failed))

    def _row(self, study: Study, cell: Cell) -> tuple[str, ...]:
        tries = sorted((item for slot, item in study.tries.items() if slot.cell == cell), key=lambda i: i.slot.repeat)
        done = [item for item in tries if item.status == state.FINISHED]
        times = [wall for item in done if (wall := outcome_of(self.runs / item.run_id).wall_clock_s) is not None]
        open_tries = [item for item in tries if item.status == state.OPEN]
        flying = [f"{item.slot.repeat} {self.states.get(item.run_id, 'queued')}" for item in open_tries]
        failed = [str(item.slot.repeat) for item in tries if item.status == state.FAILED]
        return (
            cell.name,
            f"{len(done)}/{study.plan.repeats}",
            number(median(times), 1) if times else UNKNOWN,
            ", ".join(flying) or UNKNOWN,
            ", ".join(failed) or UNKNOWN,
        )
