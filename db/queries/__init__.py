"""Questions to the record, answered as frozen rows, each through an index or the one table of runs."""

from db.queries.comparison import Comparison, Difference, Ratio, compare, compare_all, default_reference
from db.queries.details import (
    attempts_of,
    checkpoints_of,
    evaluations_of,
    events_of,
    has_system_samples,
    system_samples_of,
)
from db.queries.distinguishing_settings import distinguishing_settings
from db.queries.groups import Group, Repeat, Setting, groups_revision, speedup_groups, throughput_groups
from db.queries.peaks import mfu, peak_flops_per_s
from db.queries.predictions import AnswerFilter, PredictionPage, PredictionRow, read_predictions
from db.queries.profile_summary import DeviceShares, ProfileSummary, TimePart, device_parts, device_shares, time_parts
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
from db.queries.run_file import file_in_run
from db.queries.runs import RunFilters, RunNotFoundError, RunOrder, RunPage, get_run, list_runs, num_runs
from db.queries.scaling import ScalingFit, ScalingLaw, scaling_laws
from db.queries.speed import StepSpeed, step_speed_of, step_speeds_of
from db.queries.steps import lineage_of, loss_series, redone_loss_series, steps_of, throughput_series
from db.queries.time import time_shares
from db.queries.timeline import AttemptSpan, timeline_of
from db.queries.utilization import Utilization, utilization

__all__ = [
    "AttemptRow",
    "AttemptSteps",
    "CheckpointRow",
    "Comparison",
    "DeviceShares",
    "Difference",
    "EvaluationRow",
    "EventRow",
    "Group",
    "LossPoint",
    "PredictionPage",
    "PredictionRow",
    "ProfileKey",
    "ProfilePage",
    "ProfileRow",
    "ProfileSummary",
    "ProfiledRun",
    "Ratio",
    "Repeat",
    "RunDetail",
    "RunFilters",
    "RunNotFoundError",
    "RunOrder",
    "RunPage",
    "RunRow",
    "ScalingFit",
    "ScalingLaw",
    "Setting",
    "StepRow",
    "StepSpeed",
    "AttemptSpan",
    "SystemRow",
    "ThroughputPoint",
    "TimePart",
    "TimeShare",
    "Utilization",
    "AnswerFilter",
    "attempts_of",
    "checkpoints_of",
    "compare",
    "compare_all",
    "default_reference",
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
    "mfu",
    "num_runs",
    "peak_flops_per_s",
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
