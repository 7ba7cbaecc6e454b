"""Profiler traces of one run, and the newest trace of every profiled run."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.models import Profile, Run
from db.queries.columns import columns_of
from db.queries.profile_summary import ProfileSummary, read_summary
from db.queries.runs import RunFacts


@dataclass(frozen=True, kw_only=True)
class ProfileKey:
    """Identifies one trace of a run."""

    attempt: int
    node_rank: int
    line: int
    rank: int | None
    step: int | None
    """Optimizer steps completed at the end of the trace."""


@dataclass(frozen=True, kw_only=True)
class ProfileRow(ProfileKey):
    """One trace with its summary."""

    t: float
    trace: str | None
    """Path in the run directory."""
    summary: ProfileSummary


@dataclass(frozen=True, kw_only=True)
class ProfiledRun(RunFacts):
    """A run with one trace: the last one of the lowest rank in its newest profiled attempt."""

    run_id: str
    name: str | None
    profile: ProfileRow


@dataclass(frozen=True)
class ProfilePage:
    """One page of the runs with a trace."""

    rows: tuple[ProfiledRun, ...]
    num_matching: int
    devices: tuple[tuple[str, int], ...]
    """Device names of all runs with a trace, with their numbers of runs."""


def has_profile(session: Session, run_id: str) -> bool:
    """Return whether a run has a trace."""
    return session.execute(select(Profile.line).where(Profile.run_id == run_id).limit(1)).first() is not None


def profile_keys(session: Session, run_id: str, limit: int = 100) -> list[ProfileKey]:
    """Return the traces of a run: newest attempt first, then by rank, then newest first."""
    statement = select(*columns_of(Profile, ProfileKey)).where(Profile.run_id == run_id)
    by_rank = Profile.rank.asc().nulls_last(), Profile.node_rank.asc(), Profile.line.desc()
    in_order = statement.order_by(Profile.attempt.desc(), *by_rank).limit(limit)
    return [ProfileKey(**row._mapping) for row in session.execute(in_order)]


def profile_of(session: Session, run_id: str, key: ProfileKey) -> ProfileRow:
    """Return one trace of a run by a key from `profile_keys`."""
    statement = select(*columns_of(Profile, ProfileRow)).where(
        Profile.run_id == run_id,
        Profile.attempt == key.attempt,
        Profile.node_rank == key.node_rank,
        Profile.line == key.line,
    )
    row = session.execute(statement).one()
    return ProfileRow(**{**row._mapping, "summary": read_summary(row.summary)})


def list_profiled_runs(
    session: Session, device_name: str | None = None, *, limit: int = 25, offset: int = 0
) -> ProfilePage:
    """Return the newest runs with a trace, on all devices or those of one name."""
    is_profiled = Run.run_id.in_(select(Profile.run_id))
    statement = select(Run.run_id, Run.name, *columns_of(Run, RunFacts)).where(is_profiled)
    counted = select(Run.device_name, func.count()).where(is_profiled).group_by(Run.device_name)
    counts: dict[str | None, int] = {row[0]: row[1] for row in session.execute(counted)}
    num_matching = sum(counts.values())
    if device_name is not None:
        statement = statement.where(Run.device_name == device_name)
        num_matching = counts.get(device_name, 0)
    newest = statement.order_by(Run.created_at.desc(), Run.run_id.desc()).limit(limit).offset(offset)
    rows = []
    for row in session.execute(newest).all():
        key = profile_keys(session, row.run_id, limit=1)[0]
        rows.append(ProfiledRun(**row._mapping, profile=profile_of(session, row.run_id, key)))
    devices = tuple(sorted((name, number) for name, number in counts.items() if name is not None))
    return ProfilePage(tuple(rows), num_matching, devices)
