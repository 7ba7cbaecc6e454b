"""Schema of a run's journal: one class for each kind of line, shared by the writer and the reader.

`elasticqa.run` writes these lines; `db.ingest` checks every line against its class. docs/journal.md explains the keys.
A field without a default is required. A null value counts as a missing one. Keys that no class lists are ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

SCHEMA_VERSION = 1
Kind = Literal["attempt", "hosts", "setup", "step", "evaluation", "checkpoint", "event", "system", "profile", "end"]
Provenance = Literal["measured", "imported", "reported"]

LATEST_TIME = 1e11
"""Unix seconds of the year 5138; calendars cannot show later times."""
MAX_PHASES = 50


@dataclass(frozen=True)
class Check:
    """The rule for a value. Python types do not suffice: bool is a subclass of int, and NaN is a float."""

    rule: str
    """Ending of error messages: "... which is not {rule}"."""
    accepts: Callable[[Any], bool]


def is_time(value: object) -> bool:
    """Return whether a value is a Unix time in seconds before the year 5138."""
    return type(value) in (int, float) and 0 <= value < LATEST_TIME  # type: ignore[operator] # it is a number


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e308 <= value <= 1e308


def _are_hosts(value: Any) -> bool:
    return type(value) is list and all(type(host) is dict and _is_count(host.get("node_rank")) for host in value)


def _are_phases(value: Any) -> bool:
    return type(value) is dict and len(value) <= MAX_PHASES and all(is_time(seconds) for seconds in value.values())


def _one_of(*words: str) -> Check:
    return Check(f"one of {', '.join(words)}", lambda value: type(value) is str and value in words)


Count = Annotated[int, Check("a count below 2^31", _is_count)]
BigCount = Annotated[int, Check("a count below 2^63", lambda value: type(value) is int and 0 <= value < 2**63)]
Number = Annotated[float, Check("a finite number", _is_number)]
Time = Annotated[float, Check("a Unix time in seconds", is_time)]
Flag = Annotated[bool, Check("true or false", lambda value: type(value) is bool)]
Text = Annotated[str, Check("a text", lambda value: type(value) is str)]
Object = Annotated[dict[str, Any], Check("an object", lambda value: type(value) is dict)]
Array = Annotated[list[Any], Check("a list", lambda value: type(value) is list)]
Hosts = Annotated[list[dict[str, Any]], Check("a list of hosts, each an object with a node_rank", _are_hosts)]
Phases = Annotated[dict[str, float], Check(f"an object of at most {MAX_PHASES} names with seconds", _are_phases)]
Unchecked = Annotated[Any, Check("any value", lambda _: True)]
"""Accepts anything; for keys without a database column."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Any line; `n`, the line number in the file, and `kind` stand beside these fields."""

    t: Time


@dataclass(frozen=True, kw_only=True)
class AttemptLine(Line):
    """Line 1 of every journal: run, config, host, software and scheduler of the attempt."""

    run_id: Text
    provenance: Annotated[Provenance, _one_of(*get_args(Provenance))]
    started_at: Time | None = None
    config: Object = field(default_factory=dict)
    world_size: Count | None = None
    num_nodes: Count | None = None
    host: Object = field(default_factory=dict)
    software: Object = field(default_factory=dict)
    git: Object = field(default_factory=dict)
    scheduler: Object = field(default_factory=dict)
    command: Array = field(default_factory=list)
    restart_count: Count | None = None
    name: Text | None = None
    note: Text | None = None
    schema_version: Unchecked = None
    attempt: Unchecked = None
    node_rank: Unchecked = None
    pid: Unchecked = None


@dataclass(frozen=True, kw_only=True)
class HostsLine(Line):
    """All hosts of the attempt, once node 0 knows them."""

    hosts: Hosts


@dataclass(frozen=True, kw_only=True)
class SetupLine(Line):
    """Dataset, model, precision and optimizations in use; ingest stores the whole line."""

    dataset: Object = field(default_factory=dict)
    model: Object = field(default_factory=dict)
    num_steps: Count | None = None
    start_step: Count | None = None
    resumed_from: Text | None = None
    precision: Text | None = None
    attention: Text | None = None
    setup_time_s: Number | None = None
    phases: Phases | None = None
    steps_per_epoch: Unchecked = None
    is_compiled: Unchecked = None
    is_captured: Unchecked = None
    is_fused: Unchecked = None
    is_resharded: Unchecked = None


@dataclass(frozen=True, kw_only=True)
class StepLine(Line):
    """One optimizer step of the whole global batch."""

    step: Count
    epoch: Count | None = None
    samples_seen: BigCount | None = None
    loss: Number | None = None
    grad_norm: Number | None = None
    learning_rate: Number | None = None
    step_time_s: Number | None = None
    data_time_s: Number | None = None
    num_features: Count | None = None
    num_tokens: Count | None = None
    num_padded_tokens: Count | None = None
    peak_memory_bytes: BigCount | None = None
    is_warmup: Flag
    max_rank_tokens: Count | None = None
    mean_rank_tokens: Number | None = None
    peak_reserved_bytes: BigCount | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationLine(Line):
    """EM and F1 in percent at a step."""

    step: Count
    split: Text
    em: Number | None = None
    f1: Number | None = None
    loss: Number | None = None
    num_examples: Count | None = None
    num_features: Count | None = None
    eval_time_s: Number | None = None
    predictions: Text | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointLine(Line):
    """A committed checkpoint."""

    step: Count
    path: Text
    bytes: BigCount | None = None
    save_time_s: Number | None = None
    blocked_time_s: Number | None = None
    reason: Text | None = None


@dataclass(frozen=True, kw_only=True)
class EventLine(Line):
    """Any other event, such as a resume or a lost peer."""

    name: Text
    message: Text | None = None
    data: Object = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SystemLine(Line):
    """Utilization of one node; also the heartbeat of the attempt."""

    cpu_percent: Number | None = None
    memory_bytes: BigCount | None = None
    gpus: Array = field(default_factory=list)
    node_rank: Unchecked = None


@dataclass(frozen=True, kw_only=True)
class ProfileLine(Line):
    """Summary of one profiler trace."""

    step: Count | None = None
    rank: Count | None = None
    summary: Object = field(default_factory=dict)
    trace: Text | None = None


@dataclass(frozen=True, kw_only=True)
class EndLine(Line):
    """Last line of an attempt."""

    status: Annotated[str, _one_of("finished", "failed", "preempted")]
    reason: Text | None = None
    step: Count | None = None
    wall_clock_s: Number | None = None
    train_time_s: Number | None = None
    final_loss: Number | None = None
    peak_memory_bytes: BigCount | None = None
    peak_reserved_bytes: BigCount | None = None
    samples_per_s: Number | None = None
    tokens_per_s: Number | None = None
    phases: Phases | None = None
    samples_seen: Unchecked = None
    is_fatal: Unchecked = None


@dataclass(frozen=True, kw_only=True)
class AnnotationLine(Line):
    """A line of `annotations.jsonl`: what a user added to the run."""

    kind: Annotated[str, _one_of("name", "tag", "untag", "note")]
    value: Text


LINES: dict[str, type[Line]] = {
    "attempt": AttemptLine,
    "hosts": HostsLine,
    "setup": SetupLine,
    "step": StepLine,
    "evaluation": EvaluationLine,
    "checkpoint": CheckpointLine,
    "event": EventLine,
    "system": SystemLine,
    "profile": ProfileLine,
    "end": EndLine,
}
"""The class of each kind, a `Kind`."""
