"""What a study came to: its table as Markdown and LaTeX, from the record."""

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from db.queries import speedup_groups
from db.reports import latex_document, markdown_document, study_table
from db.reports.tables import Table
from elasticqa.scaling import state
from elasticqa.scaling.state import Study

FORMATS: dict[str, Callable[[str, float, Sequence[Table]], str]] = {
    "markdown": markdown_document,
    "latex": latex_document,
}
SUFFIXES = {"markdown": ".md", "latex": ".tex"}


def results(session: Session, study: Study) -> Table:
    """Return the table of a study, with a note on each cell that lacks runs."""
    groups = speedup_groups(session, study=study.study_id)
    return study_table(groups, _notes(study))


def _notes(study: Study) -> list[str]:
    plan = study.plan
    notes = []
    for cell in plan.cells():
        tries = [item for slot, item in study.tries.items() if slot.cell == cell]
        num_finished = sum(item.status == state.FINISHED for item in tries)
        failed = [item for item in tries if item.status == state.FAILED]
        if num_finished < plan.repeats:
            why = f"; {len(failed)} failed, the last: {failed[-1].reason}" if failed else ""
            notes.append(f"{cell.name}: {num_finished} of {plan.repeats} runs finished{why}.")
    return notes
