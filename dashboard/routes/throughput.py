"""Features and tokens a second by hardware and strategy at /throughput."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboard.pages import page
from dashboard.routes.dependencies import SessionDep
from db import statistics
from db.queries import Group, throughput_groups

MOST_GROUPS = 40
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Line:
    """A group as its row shows it."""

    group: Group
    samples_per_s: float
    samples_per_s_per_device: float | None
    tokens_per_s: float | None
    peak_memory_bytes: float | None


@router.get("/throughput")
def throughput(request: Request, session: SessionDep, recipe: str = "") -> Response:
    """Show the fastest groups first."""
    groups = throughput_groups(session, recipe or None)
    context = {
        "lines": [line(group) for group in fastest(groups)],
        "num_left_out": max(0, len(groups) - MOST_GROUPS),
        "recipe": recipe,
    }
    return page(request, "throughput.html", context)


def fastest(groups: list[Group]) -> list[Group]:
    """Return the newest groups that fit on a page, the fastest first."""
    return sorted(groups[:MOST_GROUPS], key=lambda group: -statistics.median(group.values_of("samples_per_s")))


def line(group: Group) -> Line:
    """Return the medians of a group."""
    samples_per_s = statistics.median(group.values_of("samples_per_s"))
    tokens, memory = group.values_of("tokens_per_s"), group.values_of("peak_memory_bytes")
    size = group.setting.world_size
    return Line(
        group,
        samples_per_s,
        samples_per_s / size if size else None,
        statistics.median(tokens) if tokens else None,
        max(memory) if memory else None,
    )
