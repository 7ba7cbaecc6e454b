"""Groups of repeats against their references at /speedup."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.pages import page
from dashboard.routes.dependencies import GroupsDep, SessionDep
from dashboard.text import labels
from db.queries import (
    Comparison,
    Group,
    ScalingLaw,
    compare_all,
    distinctions,
    scaling_laws,
    speedup_groups,
    statistics,
)
from db.queries.comparison import PROVENANCES

MOST_GROUPS = 40
"""A page compares the newest so many groups; one recipe can be asked for."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Line:
    """A group as its row shows it."""

    comparison: Comparison
    wall_clock_s: float
    quartiles_s: tuple[float, float] | None
    reference_wall_clock_s: float | None
    median_interval: statistics.Interval | None
    em: float | None
    f1: float | None


@dataclass(frozen=True)
class Section:
    """All groups of one recipe."""

    recipe: str | None
    lines: tuple[Line, ...]
    laws: tuple[ScalingLaw, ...]

    @property
    def has_several_references(self) -> bool:
        """Whether a reference may be chosen in place of the others."""
        return len({line.comparison.reference.key for line in self.lines if line.comparison.reference}) > 1


@router.get("/speedup")
def speedup(
    request: Request,
    session: SessionDep,
    known: GroupsDep,
    recipe: str = "",
    study: str = "",
    reference: Annotated[tuple[str, ...], Query()] = (),
) -> Response:
    """Show every recipe's groups, or those of one scaling study."""
    groups = known.get(session, speedup_groups, recipe or None, None, study or None)
    shown = shown_groups(groups, reference)
    asked = {name: value for name, value in (("recipe", recipe), ("study", study)) if value}
    context = {
        "apart": distinctions(shown, labels.row),
        "sections": sections(compare_all(shown, reference, candidates=groups)),
        "num_left_out": len(groups) - len(shown),
        "recipe": recipe,
        "study": study,
        "choose": lambda group: _address(asked, shown, reference, group),
        "figure": lambda section: _figure_address(asked, section, reference),
        "has_own_runs": any(group.setting.provenance != "reported" for group in groups),
    }
    return page(request, "speedup.html", context)


def shown_groups(groups: list[Group], references: tuple[str, ...]) -> list[Group]:
    """Return the newest groups that fit on a page, the reported ones, and every chosen reference."""
    newest = {group.key for group in groups[:MOST_GROUPS]} | set(references)
    return [group for group in groups if group.key in newest or group.setting.provenance == "reported"]


def sections(comparisons: list[Comparison]) -> list[Section]:
    """Return the comparisons by recipe, the newest recipe first; in it measured rows first, then by size."""
    by_recipe: dict[str | None, list[Comparison]] = {}
    for comparison in comparisons:
        by_recipe.setdefault(comparison.group.setting.recipe, []).append(comparison)
    return [
        Section(
            recipe,
            tuple(_line(comparison) for comparison in sorted(members, key=_place)),
            tuple(scaling_laws([comparison.group for comparison in members])),
        )
        for recipe, members in by_recipe.items()
    ]


def _place(comparison: Comparison) -> tuple[int, str, int, int]:
    return place(comparison.group)


def place(group: Group) -> tuple[int, str, int, int]:
    """Return what the rows of a section are sorted by: provenance, strategy, size."""
    setting = group.setting
    is_known = setting.provenance in PROVENANCES
    return (
        PROVENANCES.index(setting.provenance) if is_known else len(PROVENANCES),
        # The plain single process belongs on top.
        "" if setting.parallel in {None, "none"} else setting.parallel or "",
        setting.world_size or 0,
        setting.num_nodes or 0,
    )


def _line(comparison: Comparison) -> Line:
    group = comparison.group
    times = group.values_of("wall_clock_s")
    return Line(
        comparison,
        statistics.median(times),
        statistics.quartiles(times) if len(times) > 1 else None,
        _reference_time(comparison),
        statistics.median_interval(times),
        _median_if_known(group.values_of("em")),
        _median_if_known(group.values_of("f1")),
    )


def _reference_time(comparison: Comparison) -> float | None:
    if comparison.reference is None:
        return None
    return statistics.median(comparison.reference.values_of("wall_clock_s"))


def _address(asked: dict[str, str], shown: list[Group], references: tuple[str, ...], chosen: Group) -> str:
    """Return the address of the page on which a group is the reference of its recipe."""
    same_recipe = {group.key for group in shown if group.setting.recipe == chosen.setting.recipe}
    kept = [key for key in references if key not in same_recipe]
    return f"/speedup?{urlencode({**asked, 'reference': [*kept, chosen.key]}, doseq=True)}"


def _figure_address(asked: dict[str, str], section: Section, references: tuple[str, ...]) -> str:
    query = {**asked, "section": section.recipe or "", "reference": references}
    return f"/figures/speedup.json?{urlencode(query, doseq=True)}"


def _median_if_known(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
