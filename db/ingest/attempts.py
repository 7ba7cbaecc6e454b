"""Facts about an attempt, collected from the lines of its journals."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from ulid import ULID

from db.journal_schema import AttemptLine, EndLine, HostsLine, Line, SetupLine, is_time
from db.models import Attempt

MAX_QUEUE_WAIT_S = 365 * 86_400.0
_BY_RANK = itemgetter("node_rank")


def submitted_at(run_id: str, started_at: float) -> float | None:
    """Return the Unix time at which a run id was made; None unless it is a ULID at most a year before the start."""
    try:
        made_at = float(ULID.from_str(run_id).timestamp)
    except ValueError:
        return None
    return made_at if 0 <= started_at - made_at < MAX_QUEUE_WAIT_S else None


def new_attempt(run_id: str, number: int) -> Attempt:
    """Return an attempt without any facts."""
    return Attempt(
        run_id=run_id,
        attempt=number,
        # Larger than any real node rank, so that the first journal replaces these values.
        node_rank=2**31 - 1,
        status="running",
        started_at=0.0,
        last_seen_at=0.0,
        hosts=[],
        setup={},
        phases={},
        steady_features=0,
        steady_tokens=0,
        steady_time_s=0.0,
    )


def apply_line(attempt: Attempt, node_rank: int, line: Line, raw: Mapping[str, Any]) -> None:
    """Apply a line about the attempt from the journal of a node; `raw` is the whole object of the line."""
    if isinstance(line, AttemptLine):
        _apply_start(attempt, node_rank, line)
    elif isinstance(line, HostsLine):
        _apply_hosts(attempt, line)
    elif isinstance(line, SetupLine):
        _apply_setup(attempt, line, raw)
    elif isinstance(line, EndLine):
        _apply_end(attempt, line)


def _apply_start(attempt: Attempt, node_rank: int, line: AttemptLine) -> None:
    # Journals are read in any order: use the facts of the lowest node rank.
    known = {item["node_rank"] for item in attempt.hosts}
    if line.host and node_rank not in known:
        attempt.hosts = sorted([*attempt.hosts, {**line.host, "node_rank": node_rank}], key=_BY_RANK)
    if node_rank > attempt.node_rank:
        return
    attempt.node_rank = node_rank
    attempt.started_at = line.t if line.started_at is None else line.started_at
    for name in ("provenance", "name", "note", "config", "world_size", "num_nodes", "restart_count"):
        setattr(attempt, name, getattr(line, name))
    for name in ("software", "git", "scheduler", "command"):
        setattr(attempt, name, getattr(line, name))
    attempt.queue_wait_s = _queue_wait_s(attempt)


def _apply_hosts(attempt: Attempt, line: HostsLine) -> None:
    # This line replaces what the nodes' own journals say.
    ranks = {host["node_rank"] for host in line.hosts}
    others = [item for item in attempt.hosts if item["node_rank"] not in ranks]
    attempt.hosts = sorted([*others, *line.hosts], key=_BY_RANK)


def _apply_setup(attempt: Attempt, line: SetupLine, raw: Mapping[str, Any]) -> None:
    attempt.setup = {key: value for key, value in raw.items() if key not in ("n", "t", "kind")}
    attempt.start_step = line.start_step
    attempt.resumed_from = line.resumed_from
    attempt.setup_time_s = line.setup_time_s
    _add_phases(attempt, line.phases)


def _apply_end(attempt: Attempt, line: EndLine) -> None:
    # Totals of this line replace the sums over the steps.
    attempt.ended_at = line.t
    for name in ("status", "reason", "wall_clock_s", "final_loss"):
        setattr(attempt, name, getattr(line, name))
    for name in ("train_time_s", "peak_memory_bytes", "peak_reserved_bytes"):
        if getattr(line, name) is not None:
            setattr(attempt, name, getattr(line, name))
    if attempt.end_step is None:
        attempt.end_step = line.step
    _add_phases(attempt, line.phases)
    if not attempt.steady_time_s:
        # Only for a result without step lines; otherwise the throughput comes from the steps.
        attempt.samples_per_s, attempt.tokens_per_s = line.samples_per_s, line.tokens_per_s


def _add_phases(attempt: Attempt, phases: Mapping[str, float] | None) -> None:
    attempt.phases = {**attempt.phases, **(phases or {})}


def add_steps(attempt: Attempt, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add new step rows to the attempt's sums, in the order of the journal.

    The sums grow row by row, so they are equal bit for bit however ingest splits the journal.
    """
    features, tokens, seconds = attempt.steady_features, attempt.steady_tokens, attempt.steady_time_s
    train_time_s = attempt.train_time_s
    for row in rows:
        step_time_s = row["step_time_s"]
        attempt.end_step = row["step"]
        for name in ("peak_memory_bytes", "peak_reserved_bytes"):
            if row[name] is not None:
                setattr(attempt, name, max(getattr(attempt, name) or 0, row[name]))
        if step_time_s is None:
            continue
        train_time_s = (train_time_s or 0.0) + step_time_s
        if not row["is_warmup"] and row["num_features"] is not None and row["num_tokens"] is not None:
            features += row["num_features"]
            tokens += row["num_tokens"]
            seconds += step_time_s
    attempt.train_time_s = train_time_s
    attempt.steady_features, attempt.steady_tokens, attempt.steady_time_s = features, tokens, seconds
    if seconds > 0:
        attempt.samples_per_s = features / seconds
        attempt.tokens_per_s = tokens / seconds


def add_evaluations(attempt: Attempt, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add new evaluation rows, in the order of the journal."""
    for row in rows:
        if row["eval_time_s"] is not None:
            attempt.eval_time_s = (attempt.eval_time_s or 0.0) + row["eval_time_s"]
        attempt.em = row["em"] if row["em"] is not None else attempt.em
        attempt.f1 = row["f1"] if row["f1"] is not None else attempt.f1


def _queue_wait_s(attempt: Attempt) -> float | None:
    """Return the seconds from submission to start; for a first attempt, the run id may give the submission time."""
    started_at: Any = attempt.scheduler.get("started_at")
    submitted: Any = attempt.scheduler.get("submitted_at")
    if not is_time(started_at):
        return None
    if not is_time(submitted):
        submitted = submitted_at(attempt.run_id, started_at) if attempt.attempt == 1 else None
    return None if submitted is None else max(0.0, float(started_at - submitted))
