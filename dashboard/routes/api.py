"""The facts of the pages as JSON, below /api; described at /api/openapi.json."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from dashboard.routes.dependencies import GroupCacheDep, NowDep, SessionDep
from dashboard.routes.profile import TraceDep
from dashboard.routes.profiler import ProfilerQuery, profiled_runs
from dashboard.routes.runs import RunsQuery
from dashboard.routes.throughput import throughput_row
from db import queries
from db.queries import statistics

router = APIRouter(prefix="/api", tags=["record"])


class RunsAnswer(BaseModel):
    """One page of the runs that match."""

    num_matching: int
    num_all: int
    runs: tuple[queries.RunRow, ...]


class RunAnswer(BaseModel):
    """One run without its steps."""

    run: queries.RunDetail
    speed: queries.StepSpeed
    utilization: queries.Utilization
    attempts: list[queries.AttemptRow]
    evaluations: list[queries.EvaluationRow]
    checkpoints: list[queries.CheckpointRow]
    events: list[queries.EventRow]
    time: list[queries.TimeShare]
    profiles: list[queries.ProfileKey] = Field(description="traces; /profile of the run returns one of them")


class StepsAnswer(BaseModel):
    """Consecutive steps; each is of the newest attempt that took it."""

    steps: list[queries.StepRow]
    next_after: int | None = Field(description="pass as `after` for the next steps; null at the end")


class GroupAnswer(BaseModel):
    """Repeats of one configuration."""

    model_config = ConfigDict(from_attributes=True)

    key: str
    setting: queries.Setting
    software: tuple[dict[str, Any], ...]
    repeats: tuple[queries.Repeat, ...]
    num_interrupted: int


class SpeedupAnswer(BaseModel):
    """A group and its reference."""

    group: GroupAnswer
    wall_clock_s: float = Field(description="median over the repeats")
    reference: str | None = Field(description="key of the reference; null if there is none")
    reference_wall_clock_s: float | None
    ratio: queries.Ratio | None
    differences: tuple[queries.Difference, ...]


class ThroughputAnswer(BaseModel):
    """A group and its throughput."""

    model_config = ConfigDict(from_attributes=True)

    group: GroupAnswer
    samples_per_s: float = Field(description="median over the repeats, all ranks, without warm-up")
    samples_per_s_per_device: float | None
    tokens_per_s: float | None
    utilization: queries.Utilization
    peak_memory_bytes: float | None = Field(description="highest of all repeats, on one device")
    steps: queries.StepSpeed = Field(description="of the newest repeat")


class RunsApiQuery(RunsQuery):
    """Query parameters of the table, with a page size."""

    limit: int = Field(50, ge=1, le=1000)


@router.get("/runs")
def runs(session: SessionDep, now: NowDep, query: Annotated[RunsApiQuery, Query()]) -> RunsAnswer:
    """Return runs, filtered, sorted and paged as on /runs."""
    order = queries.RunOrder(query.sort, query.direction)
    offset = (query.page - 1) * query.limit
    found = queries.list_runs(session, now, query.filters(), order, limit=query.limit, offset=offset)
    return RunsAnswer(num_matching=found.num_matching, num_all=found.num_all, runs=found.rows)


@router.get("/runs/{run_id}")
def run(session: SessionDep, now: NowDep, run_id: str) -> RunAnswer:
    """Return one run."""
    attempts = queries.attempts_of(session, run_id, now)
    found = queries.get_run(session, run_id, now)
    speed = queries.step_speed_of(session, run_id)
    return RunAnswer(
        run=found,
        speed=speed,
        utilization=queries.utilization(found.tokens_per_s, speed, found.world_size, found.device_name),
        attempts=attempts,
        evaluations=queries.evaluations_of(session, run_id),
        checkpoints=queries.checkpoints_of(session, run_id),
        events=queries.events_of(session, run_id),
        time=queries.time_shares(session, run_id, attempts),
        profiles=queries.profile_keys(session, run_id),
    )


@router.get("/runs/{run_id}/steps")
def steps(
    session: SessionDep,
    now: NowDep,
    run_id: str,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> StepsAnswer:
    """Return steps of one run in order."""
    queries.get_run(session, run_id, now)
    found = queries.steps_of(session, run_id, after, limit)
    return StepsAnswer(steps=found, next_after=found[-1].step if len(found) == limit else None)


@router.get("/speedup")
def speedup(
    session: SessionDep,
    group_cache: GroupCacheDep,
    recipe: str | None = None,
    provenance: str | None = None,
    reference: Annotated[tuple[str, ...], Query()] = (),
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[SpeedupAnswer]:
    """Return the newest groups of finished runs, each with its reference."""
    groups = group_cache.get(session, queries.speedup_groups, recipe, provenance)
    comparisons = queries.compare_all(groups[:limit], reference, candidates=groups)
    return [_speedup(comparison) for comparison in comparisons]


@router.get("/throughput")
def throughput(
    session: SessionDep,
    group_cache: GroupCacheDep,
    recipe: str | None = None,
    provenance: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[ThroughputAnswer]:
    """Return the newest groups of finished runs with their throughput, utilization and step times."""
    groups = group_cache.get(session, queries.throughput_groups, recipe, provenance)[:limit]
    speeds = queries.step_speeds_of(session, [group.repeats[0].run_id for group in groups])
    return [ThroughputAnswer.model_validate(throughput_row(group, speeds[group.repeats[0].run_id])) for group in groups]


@router.get("/runs/{run_id}/profile")
def profile(trace: TraceDep) -> queries.ProfileRow:
    """Return the summary of a trace; without `attempt`, of the lowest rank of the newest attempt."""
    return trace


@router.get("/profiler")
def profiler(session: SessionDep, query: Annotated[ProfilerQuery, Query()]) -> queries.ProfilePage:
    """Return the newest runs that have a trace, each with the summary of one, as on /profiler."""
    return profiled_runs(session, query)


def _speedup(comparison: queries.Comparison) -> SpeedupAnswer:
    reference = comparison.reference
    return SpeedupAnswer(
        group=GroupAnswer.model_validate(comparison.group),
        wall_clock_s=statistics.median(comparison.group.values_of("wall_clock_s")),
        reference=None if reference is None else reference.key,
        reference_wall_clock_s=None if reference is None else statistics.median(reference.values_of("wall_clock_s")),
        ratio=comparison.ratio,
        differences=comparison.differences,
    )
