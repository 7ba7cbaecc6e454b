"""Groups of repeats compared with their references at /speedup."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.figures.comparison import wall_clock_figure
from dashboard.rendering.responses import figure_response, render
from dashboard.routes.dependencies import GroupCacheDep, PageQuery, SessionDep
from dashboard.text import labels
from db.queries import (
    Comparison,
    Group,
    ScalingLaw,
    compare_all,
    distinguishing_settings,
    scaling_laws,
    speedup_groups,
    statistics,
)
from db.queries.comparison import PROVENANCES

MAX_GROUPS = 40
"""Maximum number of groups on the page (the newest); a filter by recipe shows older ones."""

router = APIRouter(include_in_schema=False)


class SpeedupQuery(PageQuery):
    """Query parameters of the page and its figures; an empty one does not filter."""

    recipe: str = ""
    study: str = ""
    section: str = ""
    """Recipe of the figure."""
    reference: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpeedupRow:
    """A row of the table: a group and its comparison."""

    comparison: Comparison
    wall_clock_s: float
    quartiles_s: tuple[float, float] | None
    reference_wall_clock_s: float | None
    median_interval: statistics.Interval | None
    em: float | None
    f1: float | None


@dataclass(frozen=True)
class Section:
    """The groups of one recipe."""

    recipe: str | None
    rows: tuple[SpeedupRow, ...]
    laws: tuple[ScalingLaw, ...]

    @property
    def has_several_references(self) -> bool:
        """Whether the rows have different references, so that choosing one matters."""
        return len({row.comparison.reference.key for row in self.rows if row.comparison.reference}) > 1


@router.get("/speedup")
def speedup(
    request: Request, session: SessionDep, group_cache: GroupCacheDep, query: Annotated[SpeedupQuery, Query()]
) -> Response:
    """Show the groups of every recipe, of one recipe, or of one scaling study."""
    groups = group_cache.get(session, speedup_groups, query.recipe or None, None, query.study or None)
    shown = shown_groups(groups, query.reference)
    context = {
        "distinguishing_settings": distinguishing_settings(shown, labels.row),
        "sections": sections(compare_all(shown, query.reference, candidates=groups)),
        "num_left_out": len(groups) - len(shown),
        "query": query,
        "references_with": lambda group: _references_with(group, shown, query.reference),
        "has_own_runs": any(group.setting.provenance != "reported" for group in groups),
    }
    return render(request, "speedup.html", context)


@router.get("/figures/speedup.json")
def figure(session: SessionDep, group_cache: GroupCacheDep, query: Annotated[SpeedupQuery, Query()]) -> Response:
    """Return the wall clocks of one section of the page, in the order of its table."""
    groups = group_cache.get(session, speedup_groups, query.recipe or None, None, query.study or None)
    shown = [group for group in shown_groups(groups, query.reference) if (group.setting.recipe or "") == query.section]
    return figure_response(wall_clock_figure(sorted(shown, key=_sort_key)))


def shown_groups(groups: list[Group], references: tuple[str, ...]) -> list[Group]:
    """Return the newest groups that fit on a page, all reported ones, and every chosen reference."""
    newest = {group.key for group in groups[:MAX_GROUPS]} | set(references)
    return [group for group in groups if group.key in newest or group.setting.provenance == "reported"]


def sections(comparisons: list[Comparison]) -> list[Section]:
    """Return the comparisons by recipe, newest recipe first; within a recipe measured rows first, then by size."""
    by_recipe: dict[str | None, list[Comparison]] = {}
    for comparison in comparisons:
        by_recipe.setdefault(comparison.group.setting.recipe, []).append(comparison)
    return [
        Section(
            recipe,
            tuple(_row(each) for each in sorted(members, key=lambda comparison: _sort_key(comparison.group))),
            tuple(scaling_laws([comparison.group for comparison in members])),
        )
        for recipe, members in by_recipe.items()
    ]


def _sort_key(group: Group) -> tuple[int, str, int, int]:
    """Return the sort key of a row within its section: provenance, strategy, size."""
    setting = group.setting
    is_known = setting.provenance in PROVENANCES
    return (
        PROVENANCES.index(setting.provenance) if is_known else len(PROVENANCES),
        # A single process comes first.
        "" if setting.parallel in {None, "none"} else setting.parallel or "",
        setting.world_size or 0,
        setting.num_nodes or 0,
    )


def _row(comparison: Comparison) -> SpeedupRow:
    group = comparison.group
    times = group.values_of("wall_clock_s")
    return SpeedupRow(
        comparison,
        statistics.median(times),
        statistics.quartiles(times) if len(times) > 1 else None,
        None if comparison.reference is None else _median(comparison.reference.values_of("wall_clock_s")),
        statistics.median_interval(times),
        _median(group.values_of("em")),
        _median(group.values_of("f1")),
    )


def _references_with(chosen: Group, shown: list[Group], references: tuple[str, ...]) -> tuple[str, ...]:
    """Return the references with the chosen group in place of the others of its recipe."""
    same_recipe = {group.key for group in shown if group.setting.recipe == chosen.setting.recipe}
    return (*(key for key in references if key not in same_recipe), chosen.key)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
