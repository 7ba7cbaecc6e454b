"""What the lines of a journal say about the attempt itself."""

from collections.abc import Iterable, Mapping
from typing import Any

from ulid import ULID

from db.ingest.lines import (
    BIG_INTEGER,
    INTEGER,
    LATEST_TIME,
    LIST,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    Check,
    Field,
    one_of,
    read,
)
from db.models import Attempt

SCHEMA_VERSION = 1
PROVENANCES = ("measured", "imported", "reported")
ENDS = ("finished", "failed", "preempted")

_RUN_ID = Field("run_id", TEXT, is_optional=False)
_T = Field("t", TIME, is_optional=False)
ATTEMPT_FIELDS = (
    _T,
    _RUN_ID,
    Field("provenance", one_of(*PROVENANCES), is_optional=False),
    Field("started_at", TIME),
    Field("config", OBJECT),
    Field("world_size", INTEGER),
    Field("num_nodes", INTEGER),
    Field("host", OBJECT),
    Field("software", OBJECT),
    Field("git", OBJECT),
    Field("scheduler", OBJECT),
    Field("command", LIST),
    Field("restart_count", INTEGER),
    Field("name", TEXT),
    Field("note", TEXT),
)
_HOSTS = Check(
    "a list of hosts, each an object with a node_rank",
    lambda value: (
        type(value) is list and all(type(host) is dict and INTEGER.accepts(host.get("node_rank")) for host in value)
    ),
)
MOST_PHASES = 50
_PHASES = Check(
    f"an object of at most {MOST_PHASES} names with seconds",
    lambda value: (
        type(value) is dict
        and len(value) <= MOST_PHASES
        and all(NUMBER.accepts(seconds) and 0 <= seconds < LATEST_TIME for seconds in value.values())
    ),
)
HOSTS_FIELDS = (_T, Field("hosts", _HOSTS, is_optional=False))
SETUP_FIELDS = (
    _T,
    Field("dataset", OBJECT),
    Field("model", OBJECT),
    Field("num_steps", INTEGER),
    Field("start_step", INTEGER),
    Field("resumed_from", TEXT),
    Field("precision", TEXT),
    Field("attention", TEXT),
    Field("setup_time_s", NUMBER),
    Field("phases", _PHASES),
)
END_FIELDS = (
    _T,
    Field("status", one_of(*ENDS), is_optional=False),
    Field("reason", TEXT),
    Field("step", INTEGER),
    Field("wall_clock_s", NUMBER),
    Field("train_time_s", NUMBER),
    Field("final_loss", NUMBER),
    Field("peak_memory_bytes", BIG_INTEGER),
    Field("peak_reserved_bytes", BIG_INTEGER),
    Field("samples_per_s", NUMBER),
    Field("tokens_per_s", NUMBER),
    Field("phases", _PHASES),
)
FIELDS_OF_KIND = {"attempt": ATTEMPT_FIELDS, "hosts": HOSTS_FIELDS, "setup": SETUP_FIELDS, "end": END_FIELDS}
"""Keys of the lines about the attempt itself; the functions below take lines that have them right."""
LONGEST_WAIT_S = 365 * 86_400.0


def submitted_at(run_id: str, started_at: float) -> float | None:
    """Return the Unix time at which a run id was made, or None where it does not tell.

    Args:
        run_id: any name; only a ULID has a time.
        started_at: Unix time of the first line; a name that only looks like a ULID has a time far from it.
    """
    try:
        made_at = float(ULID.from_str(run_id).timestamp)
    except ValueError:
        return None
    return made_at if 0 <= started_at - made_at < LONGEST_WAIT_S else None


def new_attempt(run_id: str, number: int) -> Attempt:
    """Return an attempt of which nothing is known yet."""
    return Attempt(
        run_id=run_id,
        attempt=number,
        # Above every real node, so that the first journal to be read gives its facts.
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


def apply_line(attempt: Attempt, node_rank: int, line: Mapping[str, Any]) -> None:
    """Take a line about the attempt from the journal of a node."""
    if line["kind"] == "attempt":
        _apply_start(attempt, node_rank, line)
    elif line["kind"] == "hosts":
        _apply_hosts(attempt, line)
    elif line["kind"] == "setup":
        _apply_setup(attempt, line)
    else:
        _apply_end(attempt, line)


def _apply_start(attempt: Attempt, node_rank: int, line: Mapping[str, Any]) -> None:
    """Take an `attempt` line: the lowest node's facts count, whichever journal is read first."""
    values = read(line, ATTEMPT_FIELDS)
    host = values["host"]
    if host:
        known = {item["node_rank"] for item in attempt.hosts}
        if node_rank not in known:
            attempt.hosts = _in_order([*attempt.hosts, {**host, "node_rank": node_rank}])
    if node_rank > attempt.node_rank:
        return
    attempt.node_rank = node_rank
    attempt.started_at = values["t"] if values["started_at"] is None else values["started_at"]
    for name in ("provenance", "name", "note", "config", "world_size", "num_nodes", "restart_count"):
        setattr(attempt, name, values[name])
    for name in ("software", "git", "scheduler", "command"):
        setattr(attempt, name, values[name])
    attempt.queue_wait_s = _queue_wait_s(attempt)


def _apply_hosts(attempt: Attempt, line: Mapping[str, Any]) -> None:
    """Take a `hosts` line; it wins over what the nodes' own journals say."""
    hosts = read(line, HOSTS_FIELDS)["hosts"]
    ranks = {host["node_rank"] for host in hosts}
    attempt.hosts = _in_order([*(item for item in attempt.hosts if item["node_rank"] not in ranks), *hosts])


def _apply_setup(attempt: Attempt, line: Mapping[str, Any]) -> None:
    """Take a `setup` line."""
    values = read(line, SETUP_FIELDS)
    attempt.setup = {key: value for key, value in line.items() if key not in ("n", "t", "kind")}
    attempt.start_step = values["start_step"]
    attempt.resumed_from = values["resumed_from"]
    attempt.setup_time_s = values["setup_time_s"]
    _add_phases(attempt, values["phases"])


def _apply_end(attempt: Attempt, line: Mapping[str, Any]) -> None:
    """Take an `end` line: what it states wins over what the steps added up to."""
    values = read(line, END_FIELDS)
    attempt.ended_at = values["t"]
    for name in ("status", "reason", "wall_clock_s", "final_loss"):
        setattr(attempt, name, values[name])
    for name in ("train_time_s", "peak_memory_bytes", "peak_reserved_bytes"):
        if values[name] is not None:
            setattr(attempt, name, values[name])
    if attempt.end_step is None:
        attempt.end_step = values["step"]
    _add_phases(attempt, values["phases"])
    if not attempt.steady_time_s:
        # Of a result without step lines; where there are some, they count.
        attempt.samples_per_s, attempt.tokens_per_s = values["samples_per_s"], values["tokens_per_s"]


def _add_phases(attempt: Attempt, phases: Mapping[str, float] | None) -> None:
    attempt.phases = {**attempt.phases, **(phases or {})}


def add_steps(attempt: Attempt, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add new rows of steps to the sums, in the order of the journal.

    Sums are carried on from row to row, so they come out equal to the last bit however often ingest has run.
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
    """Add new rows of evaluations, in the order of the journal."""
    for row in rows:
        if row["eval_time_s"] is not None:
            attempt.eval_time_s = (attempt.eval_time_s or 0.0) + row["eval_time_s"]
        attempt.em = row["em"] if row["em"] is not None else attempt.em
        attempt.f1 = row["f1"] if row["f1"] is not None else attempt.f1


def _queue_wait_s(attempt: Attempt) -> float | None:
    """Return the seconds from submission to start; the run id tells the former, of a first attempt only."""
    started_at: Any = attempt.scheduler.get("started_at")
    asked_at: Any = attempt.scheduler.get("submitted_at")
    if not TIME.accepts(started_at):
        return None
    if not TIME.accepts(asked_at):
        asked_at = submitted_at(attempt.run_id, started_at) if attempt.attempt == 1 else None
    return None if asked_at is None else max(0.0, float(started_at - asked_at))


def _in_order(hosts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(hosts, key=lambda host: int(host["node_rank"]))
