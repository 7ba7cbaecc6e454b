"""Features and tokens a second by hardware and strategy at /throughput."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.pages import page
from dashboard.routes.dependencies import GroupsDep, SessionDep
from dashboard.text import labels
from db.ingest.step_summaries import MOST_STEPS
from db.queries import (
    Group,
    StepSpeed,
    Utilization,
    distinctions,
    statistics,
    step_speeds_of,
    throughput_groups,
    utilization,
)

MOST_GROUPS = 40
router = APIRouter(include_in_schema=False)


class ThroughputQuery(BaseModel):
    """The address of the page; an empty field of the form asks nothing."""

    recipe: str = ""
    device_name: str = ""
    parallel: str = ""

    def address(self, path: str) -> str:
        """Return the address of a page or figure of the same groups."""
        asked = {name: value for name, value in self.model_dump().items() if value}
        return path + (f"?{urlencode(asked)}" if asked else "")


@dataclass(frozen=True)
class ShownGroups:
    """The groups of the page, the fastest first."""

    groups: list[Group]
    num_left_out: int
    choices: dict[str, list[str]]
    """For hardware and strategy: every value among the groups of the recipe."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A group as its row shows it; rates are medians over its repeats, the rest is of the newest repeat."""

    group: Group
    samples_per_s: float
    samples_per_s_per_device: float | None
    tokens_per_s: float | None
    utilization: Utilization
    peak_memory_bytes: float | None
    steps: StepSpeed


@router.get("/throughput")
def throughput(
    request: Request, session: SessionDep, known: GroupsDep, query: Annotated[ThroughputQuery, Query()]
) -> Response:
    """Show the fastest groups first."""
    found = shown_groups(known.get(session, throughput_groups, query.recipe or None), query)
    speeds = step_speeds_of(session, [group.repeats[0].run_id for group in found.groups])
    context = {
        "lines": [line(group, speeds[group.repeats[0].run_id]) for group in found.groups],
        "apart": distinctions(found.groups, labels.row),
        "found": found,
        "query": query,
        "most_steps": MOST_STEPS,
    }
    return page(request, "throughput.html", context)


def shown_groups(groups: list[Group], query: ThroughputQuery) -> ShownGroups:
    """Return the newest groups that match and fit on a page, the fastest first."""
    choices = {
        name: sorted({value for group in groups if (value := getattr(group.setting, name))})
        for name in ("device_name", "parallel")
    }
    for name in choices:
        wanted = getattr(query, name)
        groups = [group for group in groups if not wanted or getattr(group.setting, name) == wanted]
    newest = sorted(groups[:MOST_GROUPS], key=lambda group: -statistics.median(group.values_of("samples_per_s")))
    return ShownGroups(newest, max(0, len(groups) - MOST_GROUPS), choices)


def line(group: Group, steps: StepSpeed) -> Line:
    """Return the figures of a group.

    Args:
        group: with a throughput in every repeat.
        steps: of its newest repeat.
    """
    setting = group.setting
    samples_per_s = statistics.median(group.values_of("samples_per_s"))
    tokens, memory = group.values_of("tokens_per_s"), group.values_of("peak_memory_bytes")
    tokens_per_s = statistics.median(tokens) if tokens else None
    return Line(
        group=group,
        samples_per_s=samples_per_s,
        samples_per_s_per_device=samples_per_s / setting.world_size if setting.world_size else None,
        tokens_per_s=tokens_per_s,
        utilization=utilization(tokens_per_s, steps, setting.world_size, setting.device_name),
        peak_memory_bytes=max(memory) if memory else None,
        steps=steps,
    )
