"""Queries for pages, commands and reports: `from db import queries`.

They return frozen dataclasses, and read an index or the table of runs only.
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
from db.queries.steps import (
    AttemptSteps,
    LossPoint,
    StepRow,
    ThroughputPoint,
    lineage_of,
    loss_series,
    steps_of,
    throughput_series,
)
from db.queries.timeline import AttemptSpan, TimeShare, time_shares, timeline_of
from db.queries.utilization import StepSpeed, Utilization, step_speed_of, step_speeds_of, utilization
