"""Features and tokens per second by hardware and strategy at /throughput."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.figures.comparison import throughput_figure
from dashboard.rendering.responses import figure_response, render
from dashboard.routes.dependencies import GroupCacheDep, PageQuery, SessionDep
from dashboard.text import labels
from db.ingest.step_summaries import SUMMARY_STEPS
from db.queries import (
    Group,
    StepSpeed,
    Utilization,
    distinguishing_settings,
    statistics,
    step_speeds_of,
    throughput_groups,
    utilization,
)

MAX_GROUPS = 40
FILTERS = ("device_name", "parallel")
router = APIRouter(include_in_schema=False)


class ThroughputQuery(PageQuery):
    """Query parameters of the page; an empty form field does not filter."""

    recipe: str = ""
    device_name: str = ""
    parallel: str = ""


@dataclass(frozen=True, kw_only=True)
class ThroughputRow:
    """A row of the table: rates are medians over the repeats, ``utilization`` and ``steps`` are of the newest one."""

    group: Group
    samples_per_s: float
    samples_per_s_per_device: float | None
    tokens_per_s: float | None
    utilization: Utilization
    peak_memory_bytes: float | None
    steps: StepSpeed


@router.get("/throughput")
def throughput(
    request: Request, session: SessionDep, group_cache: GroupCacheDep, query: Annotated[ThroughputQuery, Query()]
) -> Response:
    """Show the groups, fastest first."""
    groups = group_cache.get(session, throughput_groups, query.recipe or None)
    shown, num_left_out = shown_groups(groups, query)
    speeds = step_speeds_of(session, [group.repeats[0].run_id for group in shown])
    context = {
        "rows": [throughput_row(group, speeds[group.repeats[0].run_id]) for group in shown],
        "distinguishing_settings": distinguishing_settings(shown, labels.row),
        "num_left_out": num_left_out,
        "choices": {
            name: sorted({value for group in groups if (value := getattr(group.setting, name))}) for name in FILTERS
        },
        "query": query,
        "most_steps": SUMMARY_STEPS,
    }
    return render(request, "throughput.html", context)


@router.get("/figures/throughput.json")
def figure(session: SessionDep, group_cache: GroupCacheDep, query: Annotated[ThroughputQuery, Query()]) -> Response:
    """Return the throughput of every group of the page, in the order of its table."""
    groups = group_cache.get(session, throughput_groups, query.recipe or None)
    return figure_response(throughput_figure(shown_groups(groups, query)[0]))


def shown_groups(groups: list[Group], query: ThroughputQuery) -> tuple[list[Group], int]:
    """Return the newest groups that match and fit on a page, fastest first, and the number of those left out."""
    for name in FILTERS:
        wanted = getattr(query, name)
        groups = [group for group in groups if not wanted or getattr(group.setting, name) == wanted]
    newest = sorted(groups[:MAX_GROUPS], key=lambda group: -statistics.median(group.values_of("samples_per_s")))
    return newest, len(groups) - len(newest)


def throughput_row(group: Group, steps: StepSpeed) -> ThroughputRow:
    """Return the table row of a group whose repeats all have a throughput; the steps are of the newest repeat."""
    setting = group.setting
    samples_per_s = statistics.median(group.values_of("samples_per_s"))
    tokens, memory = group.values_of("tokens_per_s"), group.values_of("peak_memory_bytes")
    tokens_per_s = statistics.median(tokens) if tokens else None
    return ThroughputRow(
        group=group,
        samples_per_s=samples_per_s,
        samples_per_s_per_device=samples_per_s / setting.world_size if setting.world_size else None,
        tokens_per_s=tokens_per_s,
        utilization=utilization(tokens_per_s, steps, setting.world_size, setting.device_name),
        peak_memory_bytes=max(memory) if memory else None,
        steps=steps,
    )
