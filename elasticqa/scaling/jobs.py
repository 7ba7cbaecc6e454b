"""The runs of a study as jobs of a TorchX scheduler: submitted, polled, and found again after a crash."""

import re
import time
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torchx.runner import Runner, get_runner
from torchx.runner.config import apply
from torchx.specs import AppState, InvalidRunConfigException, is_terminal
from torchx.specs.finder import ComponentNotFoundException, ComponentValidationException

from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.errors import ConfigError, shown
from elasticqa.scaling.matrix import Cell, StudyMatrix
from elasticqa.scaling.study import StudyRun

JobState = Literal["queued", "running", "over", "unknown"]
SCHEDULERS = ("slurm", "local_cwd")
LOCAL = "local_cwd"
POLL_INTERVAL_S = 10.0
"""Shortest time between two queries of a cluster's controller for one job."""


class Jobs:
    """The jobs of one study; closing it ends the jobs that it started on this machine."""

    def __init__(self, matrix: StudyMatrix, logs: Path) -> None:
        self._matrix = matrix
        self._runner: Runner = get_runner()
        # TorchX names a component FILE:FUNCTION.
        self._component = files("components") / "train.py"
        self._cfg = self._options(logs)
        self._polled: dict[str, tuple[float, JobState]] = {}

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def _options(self, logs: Path) -> dict[str, Any]:
        """Return the scheduler options from -cfg and .torchxconfig; an unknown name is refused."""
        scheduler = self._matrix.scheduler
        options = self._runner.scheduler_run_opts(scheduler)
        for part in filter(None, self._matrix.cfg.split(",")):
            name = part.split("=")[0]
            if "=" not in part or options.get(name) is None:
                raise ConfigError(
                    f"-cfg {shown(part)} is not an option of {scheduler}: write NAME=VALUE,... as `torchx runopts "
                    f"{scheduler}` lists them"
                )
        cfg: dict[str, Any] = options.cfg_from_str(self._matrix.cfg)
        apply(scheduler=scheduler, cfg=cfg)
        if scheduler == LOCAL:
            cfg.setdefault("log_dir", str(logs))
            cfg.setdefault("auto_set_cuda_visible_devices", self._matrix.gpus)
        return cfg

    def submit(self, run: StudyRun, flags: Iterable[str]) -> str:
        """Submit a run and return TorchX's handle.

        Raises:
            ConfigError: the scheduler refuses it.
        """
        cell = run.slot.cell
        try:
            handle = self._runner.run_component(
                f"{self._component}:{'baseline' if cell.strategy == 'none' else cell.strategy}",
                [*component_arguments(self._matrix, cell, run.run_id), "--", *flags],
                self._matrix.scheduler,
                self._cfg,
            )
        except (ComponentValidationException, ComponentNotFoundException, InvalidRunConfigException) as error:
            raise ConfigError(f"{run.slot} cannot be submitted: {error}") from error
        return str(handle)

    def state(self, run: StudyRun, *, at_once: bool) -> JobState:
        """Return the state of a run's job; ``unknown`` if neither the scheduler nor this machine has it.

        Unless ``at_once``, a cluster's scheduler is queried every ten seconds only.

        Raises:
            ConfigError: the scheduler does not answer.
        """
        now = time.monotonic()
        polled_at, state = self._polled.get(run.run_id, (-POLL_INTERVAL_S, "unknown"))
        if not at_once and self._matrix.scheduler != LOCAL and now - polled_at < POLL_INTERVAL_S:
            return state
        self._polled[run.run_id] = (now, state)
        try:
            status = self._runner.status(run.handle) if run.handle else None
        except ComponentValidationException as error:
            raise ConfigError(str(error)) from error
        if status is not None:
            state = _STATES.get(status.state, "over" if is_terminal(status.state) else "running")
        else:
            # The local scheduler knows only jobs that this process submitted.
            state = "running" if self._matrix.scheduler == LOCAL and is_alive(run.run_id) else "unknown"
        self._polled[run.run_id] = (now, state)
        return state

    def find(self, run: StudyRun) -> str | None:
        """Return the handle of the job with a run's job name, or None.

        Raises:
            ConfigError: the scheduler does not answer.
        """
        if self._matrix.scheduler == LOCAL:
            return None
        try:
            for listed in self._runner.list(self._matrix.scheduler):
                job = self._runner.describe(listed.app_handle)
                if job is not None and job.roles and job.roles[0].name == job_name(run.slot.cell, run.run_id):
                    return str(listed.app_handle)
        except ComponentValidationException as error:
            raise ConfigError(str(error)) from error
        return None

    def last_message(self, run: StudyRun, logs: Path) -> str:
        """Return the last error line of a run's log, or an empty text; use it if the journal has no `end` line."""
        name = job_name(run.slot.cell, run.run_id)
        paths = [path for path in logs.rglob("stderr.log") if name in path.parts]
        lines = [line for path in paths for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        if not paths and run.handle and self._matrix.scheduler != LOCAL:
            lines = list(self._runner.log_lines(run.handle, name, 0))
        messages = [line.strip() for line in lines if re.search(r"\w", line)]
        ours = [line.removeprefix("elasticqa: ") for line in messages if line.startswith("elasticqa: ")]
        # Skip torchrun's ChildFailedError, which does not name the cause.
        errors = [line for line in messages if _ERROR.match(line) and "ChildFailedError" not in line]
        return (ours or errors or messages or [""])[-1]


_ERROR = re.compile(r"[\w.]*(Error|Exception)\b.*:")
_STATES: dict[AppState, JobState] = {AppState.PENDING: "queued", AppState.SUBMITTED: "queued"}


def job_name(cell: Cell, run_id: str) -> str:
    """Return the name by which a job is found again; at most 64 characters, the scheduler's limit."""
    return f"{cell.name}-{run_id}"


def component_arguments(matrix: StudyMatrix, cell: Cell, run_id: str) -> list[str]:
    """Return the launch arguments of a cell; each process has the same resources in every cell."""
    nproc, cpus = cell.nproc_per_node, matrix.cpus_per_process
    arguments = [
        *("--name", job_name(cell, run_id)),
        *("--cpu", str(cpus * nproc)),
        *("--gpu", str(nproc if matrix.gpus else 0)),
        *("--memMB", str(matrix.memory_per_process * nproc)),
        *("--env", f"{RUN_ID_VARIABLE}={run_id},OMP_NUM_THREADS={cpus}"),
    ]
    if cell.strategy != "none":
        # No restarts: the wall clock would include the failed attempt.
        arguments += ["--nnodes", str(cell.num_nodes), "--nproc_per_node", str(nproc), "--max_restarts", "0"]
    return arguments


def check_machine(matrix: StudyMatrix, num_cpus: int) -> list[str]:
    """Return warnings about resources that processes must share on this machine.

    Raises:
        ConfigError: there are too few GPUs.
    """
    if matrix.scheduler != LOCAL:
        return []
    most = max(cell.world_size for cell in matrix.cells())
    if matrix.gpus and most > torch.cuda.device_count():
        raise ConfigError(
            f"--gpus with {most} processes, but torch sees {torch.cuda.device_count()} GPUs here: lower --nodes or "
            "--nproc-per-node, or use -s slurm"
        )
    warnings = []
    if max(matrix.nodes) > 1:
        warnings.append("with -s local_cwd all nodes are on this machine: the network is not measured")
    if most * matrix.cpus_per_process > num_cpus:
        warnings.append(
            f"{most} processes of {matrix.cpus_per_process} CPUs need more than the {num_cpus} CPUs of this machine: "
            "they share them, so their times do not apply to a larger machine"
        )
    return warnings


def is_alive(run_id: str) -> bool:
    """Return whether a process of this machine belongs to a run."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ID_VARIABLE) == run_id and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return False
