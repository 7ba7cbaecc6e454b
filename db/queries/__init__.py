"""Questions to the record, answered as frozen rows, each through an index or the one table of runs."""

from db.queries.comparison import Comparison, Difference, Ratio, compare, compare_all, default_reference
from db.queries.details import attempts_of, checkpoints_of, evaluations_of, events_of, system_samples_of
from db.queries.groups import Group, Repeat, Setting, speedup_groups, throughput_groups
from db.queries.rows import (
    AttemptRow,
    AttemptSteps,
    CheckpointRow,
    EvaluationRow,
    EventRow,
    LossPoint,
    RunDetail,
    RunRow,
    StepRow,
    SystemRow,
    ThroughputPoint,
    TimeShare,
)
from db.queries.runs import (
    RunFilters,
    RunNotFoundError,
    RunOrder,
    RunPage,
    get_run,
    list_runs,
    num_runs,
)
from db.queries.steps import lineage_of, loss_series, redone_loss_series, steps_of, throughput_series
from db.queries.time import time_shares

__all__ = [
    "AttemptRow",
    "AttemptSteps",
    "CheckpointRow",
    "Comparison",
    "Difference",
    "EvaluationRow",
    "EventRow",
    "Group",
    "LossPoint",
    "Ratio",
    "Repeat",
    "RunDetail",
    "RunFilters",
    "RunNotFoundError",
    "RunOrder",
    "RunPage",
    "RunRow",
    "Setting",
    "StepRow",
    "SystemRow",
    "ThroughputPoint",
    "TimeShare",
    "attempts_of",
    "checkpoints_of",
    "compare",
    "compare_all",
    "default_reference",
    "evaluations_of",
    "events_of",
    "get_run",
    "lineage_of",
    "list_runs",
    "loss_series",
    "num_runs",
    "redone_loss_series",
    "speedup_groups",
    "steps_of",
    "system_samples_of",
    "throughput_groups",
    "throughput_series",
    "time_shares",
]
