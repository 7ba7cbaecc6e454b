"""Queries of the record; they return frozen rows and read an index or the table of runs.

These are the queries for pages, commands and reports: `from db import queries`.
"""

from db.queries.comparison import Comparison, Ratio, compare, compare_all
from db.queries.details import (
    AttemptRow,
    CheckpointRow,
    EvaluationRow,
    EventRow,
    SystemRow,
    attempts_of,
    checkpoints_of,
    evaluations_of,
    events_of,
    has_system_samples,
    system_samples_of,
)
from db.queries.differences import Difference, distinguishing_settings
from db.queries.groups import Group, Repeat, Setting, groups_revision, speedup_groups, throughput_groups
from db.queries.predictions import AnswerFilter, PredictionRow, read_predictions
from db.queries.profile_summary import TimePart, device_parts, device_shares, time_parts
from db.queries.profiles import (
    ProfiledRun,
    ProfileKey,
    ProfilePage,
    ProfileRow,
    has_profile,
    list_profiled_runs,
    profile_keys,
    profile_of,
)
from db.queries.run_file import file_in_run
from db.queries.runs import (
    RunDetail,
    RunFilters,
    RunNotFoundError,
    RunOrder,
    RunPage,
    RunRow,
    get_run,
    list_runs,
    num_runs,
)
from db.queries.scaling import ScalingLaw, scaling_laws
from db.queries.speed import StepSpeed, step_speed_of, step_speeds_of
from db.queries.steps import (
    AttemptSteps,
    LossPoint,
    StepRow,
    ThroughputPoint,
    lineage_of,
    loss_series,
    redone_loss_series,
    steps_of,
    throughput_series,
)
from db.queries.time_shares import TimeShare, time_shares
from db.queries.timeline import AttemptSpan, timeline_of
from db.queries.utilization import Utilization, utilization

__all__ = [
    "AnswerFilter",
    "AttemptRow",
    "AttemptSpan",
    "AttemptSteps",
    "CheckpointRow",
    "Comparison",
    "Difference",
    "EvaluationRow",
    "EventRow",
    "Group",
    "LossPoint",
    "PredictionRow",
    "ProfileKey",
    "ProfilePage",
    "ProfileRow",
    "ProfiledRun",
    "Ratio",
    "Repeat",
    "RunDetail",
    "RunFilters",
    "RunNotFoundError",
    "RunOrder",
    "RunPage",
    "RunRow",
    "ScalingLaw",
    "Setting",
    "StepRow",
    "StepSpeed",
    "SystemRow",
    "ThroughputPoint",
    "TimePart",
    "TimeShare",
    "Utilization",
    "attempts_of",
    "checkpoints_of",
    "compare",
    "compare_all",
    "device_parts",
    "device_shares",
    "distinguishing_settings",
    "evaluations_of",
    "events_of",
    "file_in_run",
    "get_run",
    "groups_revision",
    "has_profile",
    "has_system_samples",
    "lineage_of",
    "list_profiled_runs",
    "list_runs",
    "loss_series",
    "num_runs",
    "profile_keys",
    "profile_of",
    "read_predictions",
    "redone_loss_series",
    "scaling_laws",
    "speedup_groups",
    "step_speed_of",
    "step_speeds_of",
    "steps_of",
    "system_samples_of",
    "throughput_groups",
    "throughput_series",
    "time_parts",
    "time_shares",
    "timeline_of",
    "utilization",
]
