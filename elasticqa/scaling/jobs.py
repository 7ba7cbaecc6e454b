"""Runs as jobs of a TorchX scheduler: submitted, looked after, and found again after a kill."""

import importlib.util
import re
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import psutil
import torch
from torchx.runner import Runner, get_runner
from torchx.runner.config import apply
from torchx.specs import AppState, InvalidRunConfigException, is_terminal
from torchx.specs.finder import ComponentNotFoundException, ComponentValidationException

from elasticqa.config.environment import RUN_ID_VARIABLE
from elasticqa.errors import ConfigError, shown
from elasticqa.scaling.plan import Cell, Plan
from elasticqa.scaling.state import Try

State = Literal["queued", "running", "over", "unknown"]
SCHEDULERS = ("slurm", "local_cwd")
LOCAL = "local_cwd"
ASK_INTERVAL_S = 10.0
"""Between two questions to the controller of a cluster about one job."""


class Jobs:
    """The jobs of one study; closing it ends those that are processes of this machine and were started here."""

    def __init__(self, plan: Plan, logs: Path) -> None:
        self._plan = plan
        self._runner: Runner = get_runner()
        self._component = _component()
        self._cfg = self._options(logs)
        self._asked: dict[str, tuple[float, State]] = {}

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.close()

    def _options(self, logs: Path) -> dict[str, Any]:
        """Return the options of -cfg and .torchxconfig; a name that the scheduler does not have is refused."""
        scheduler = self._plan.scheduler
        options = self._runner.scheduler_run_opts(scheduler)
        for part in filter(None, self._plan.cfg.split(",")):
            name = part.split("=")[0]
            if "=" not in part or options.get(name) is None:
                raise ConfigError(
                    f"-cfg {shown(part)} is no option of {scheduler}: write NAME=VALUE,... as `torchx runopts "
                    f"{scheduler}` lists them"
                )
        cfg: dict[str, Any] = options.cfg_from_str(self._plan.cfg)
        apply(scheduler=scheduler, cfg=cfg)
        if scheduler == LOCAL:
            cfg.setdefault("log_dir", str(logs))
            cfg.setdefault("auto_set_cuda_visible_devices", self._plan.gpus)
        return cfg

    def submit(self, item: Try, flags: Iterable[str]) -> str:
        """Submit a run and return TorchX's handle.

        Raises:
            ConfigError: the scheduler refuses it; with its reason.
        """
        cell = item.slot.cell
        try:
            handle = self._runner.run_component(
                f"{self._component}:{component_of(cell)}",
                [*component_arguments(self._plan, cell, item.run_id), "--", *flags],
                self._plan.scheduler,
                self._cfg,
            )
        except (ComponentValidationException, ComponentNotFoundException, InvalidRunConfigException) as error:
            raise ConfigError(f"{item.slot} cannot be submitted: {error}") from error
        return str(handle)

    def state(self, item: Try, *, at_once: bool) -> State:
        """Return what the scheduler says of a run; ``unknown`` where nobody knows the job.

        Args:
            item: to ask about.
            at_once: ask now, and not only every ten seconds.

        Raises:
            ConfigError: the scheduler does not answer.
        """
        now = time.monotonic()
        asked_at, state = self._asked.get(item.run_id, (-ASK_INTERVAL_S, "unknown"))
        if not at_once and self._plan.scheduler != LOCAL and now - asked_at < ASK_INTERVAL_S:
            return state
        self._asked[item.run_id] = (now, state)
        try:
            status = self._runner.status(item.handle) if item.handle else None
        except ComponentValidationException as error:
            raise ConfigError(str(error)) from error
        if status is not None:
            state = _STATES.get(status.state, "over" if is_terminal(status.state) else "running")
        else:
            # This machine's scheduler forgets its jobs with the process that submitted them.
            is_left = self._plan.scheduler == LOCAL and is_alive(item.run_id)
            state = "running" if is_left else "unknown"
        self._asked[item.run_id] = (now, state)
        return state

    def find(self, item: Try) -> str | None:
        """Return the handle of a job that was submitted under the name of a run, or None.

        Raises:
            ConfigError: the scheduler does not answer.
        """
        if self._plan.scheduler == LOCAL:
            return None
        try:
            for listed in self._runner.list(self._plan.scheduler):
                job = self._runner.describe(listed.app_handle)
                if job is not None and job.roles and job.roles[0].name == job_name(item.slot.cell, item.run_id):
                    return str(listed.app_handle)
        except ComponentValidationException as error:
            raise ConfigError(str(error)) from error
        return None

    def last_words(self, item: Try, logs: Path) -> str:
        """Return the line in which a run that has no record of its end said why, or an empty text."""
        paths = [path for path in logs.rglob("stderr.log") if job_name(item.slot.cell, item.run_id) in path.parts]
        lines = [line for path in paths for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        if not paths and item.handle and self._plan.scheduler != LOCAL:
            lines = list(self._runner.log_lines(item.handle, job_name(item.slot.cell, item.run_id), 0))
        said = [line.strip() for line in lines if re.search(r"\w", line)]
        ours = [line.removeprefix("elasticqa: ") for line in said if line.startswith("elasticqa: ")]
        # Of torchrun's box only its head is an error, and one that says nothing.
        errors = [line for line in said if _ERROR.match(line) and "ChildFailedError" not in line]
        return (ours or errors or said or [""])[-1]


_ERROR = re.compile(r"[\w.]*(Error|Exception)\b.*:")
_STATES: dict[AppState, State] = {AppState.PENDING: "queued", AppState.SUBMITTED: "queued"}


def component_of(cell: Cell) -> str:
    """Return the component that starts a cell."""
    return "baseline" if cell.strategy == "none" else cell.strategy


def job_name(cell: Cell, run_id: str) -> str:
    """Return the name of a job, by which it is found again; at most 64 characters, as the scheduler wants it."""
    return f"{cell.name}-{run_id}"


def component_arguments(plan: Plan, cell: Cell, run_id: str) -> list[str]:
    """Return the launch arguments of a cell: every process has the same resources, whatever the cell."""
    nproc, cpus = cell.nproc_per_node, plan.cpus_per_process
    arguments = [
        *("--name", job_name(cell, run_id)),
        *("--cpu", str(cpus * nproc)),
        *("--gpu", str(nproc if plan.gpus else 0)),
        *("--memMB", str(plan.memory_per_process * nproc)),
        *("--env", f"{RUN_ID_VARIABLE}={run_id},OMP_NUM_THREADS={cpus}"),
    ]
    if cell.strategy != "none":
        # A failed worker group is not started again: its time would hold the first try.
        arguments += ["--nnodes", str(cell.num_nodes), "--nproc_per_node", str(nproc), "--max_restarts", "0"]
    return arguments


def check_machine(plan: Plan, num_cpus: int) -> list[str]:
    """Return warnings about what this machine cannot give to each process alone.

    Raises:
        ConfigError: the GPUs do not suffice.
    """
    if plan.scheduler != LOCAL:
        return []
    most = max(cell.world_size for cell in plan.cells())
    if plan.gpus and most > torch.cuda.device_count():
        raise ConfigError(
            f"--gpus with {most} processes, and torch sees {torch.cuda.device_count()} GPUs here: lower --nodes or "
            "--nproc-per-node, or use -s slurm"
        )
    warnings = []
    if max(plan.nodes) > 1:
        warnings.append("with -s local_cwd nodes are processes of this machine: the network is not measured")
    if most * plan.cpus_per_process > num_cpus:
        warnings.append(
            f"{most} processes of {plan.cpus_per_process} CPUs are more than the {num_cpus} CPUs of this machine: "
            "they share them, and their times are not those of a larger machine"
        )
    return warnings


def is_alive(run_id: str) -> bool:
    """Whether a process of this machine works for a run."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ID_VARIABLE) == run_id and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return False


def _component() -> Path:
    # By path: what starts training knows the core as a command only, and the core it as a file.
    spec = importlib.util.find_spec("components")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "train.py"
