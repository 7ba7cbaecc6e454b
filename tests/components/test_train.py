"""The components as TorchX loads them: validation, documentation, and the command of each node."""

import ast
import os
import sys
from pathlib import Path

import pytest
from torchx.runner import get_runner
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES, get_scheduler_factories
from torchx.specs import AppDef, Role
from torchx.specs.builders import materialize_appdef
from torchx.specs.finder import ComponentValidationException, get_component
from ulid import ULID

from components.slurm.scheduler import SlurmScheduler
from tests.support.paths import REPOSITORY

SOURCE = REPOSITORY / "components" / "train.py"
NAMES = ("baseline", "ddp", "fsdp")


def app(name: str, *arguments: str) -> AppDef:
    return materialize_appdef(get_component(f"{SOURCE}:{name}").fn, list(arguments))


def role(name: str, *arguments: str) -> Role:
    (only,) = app(name, *arguments).roles
    return only


@pytest.mark.parametrize("name", NAMES)
def test_component_is_valid_and_documents_every_argument(name: str) -> None:
    component = get_component(f"{SOURCE}:{name}")
    assert component.validation_errors == []
    documented = (component.fn.__doc__ or "").partition("Args:")[2]
    (function,) = (
        node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    for argument in [*function.args.kwonlyargs, function.args.vararg]:
        assert argument is not None
        assert f"{argument.arg}: " in documented


@pytest.mark.parametrize("name", NAMES)
def test_component_starts_the_launcher_in_this_interpreter(name: str) -> None:
    only = role(name, "--", "--recipe", "demo", "--seed=3")
    assert only.entrypoint == sys.executable
    assert only.args[:2] == ["-m", "elasticqa.cli.launch"]
    assert only.args[-3:] == ["--recipe", "demo", "--seed=3"]
    parallel = only.args[only.args.index("--parallel") + 1]
    assert parallel == ("none" if name == "baseline" else name)


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
@pytest.mark.parametrize(("nnodes", "fewest", "most"), [("1", 1, 1), ("2", 2, 2), ("1:4", 1, 4)])
def test_replicas_are_the_nodes(name: str, nnodes: str, fewest: int, most: int) -> None:
    only = role(name, "--nnodes", nnodes, "--nproc_per_node", "2", "--max_restarts", "5")
    assert (only.min_replicas, only.num_replicas) == (fewest, most)
    launch = only.args[only.args.index("--nnodes") :]
    assert launch[:6] == ["--nnodes", nnodes, "--nproc-per-node", "2", "--max-restarts", "5"]


@pytest.mark.parametrize("nnodes", ["0", "two", "2:1", "1:2:3", ":", "-1"])
def test_impossible_nodes_are_refused_without_a_traceback(nnodes: str) -> None:
    with pytest.raises(ComponentValidationException, match="nnodes="):
        role("ddp", f"--nnodes={nnodes}")


def test_baseline_is_one_process_without_nodes() -> None:
    only = role("baseline")
    assert (only.min_replicas, only.num_replicas) == (1, 1)
    assert "--nnodes" not in only.args


@pytest.mark.parametrize("name", NAMES)
def test_resources_are_requested_and_gpus_checked_on_the_node(name: str) -> None:
    only = role(name, "--cpu", "8", "--gpu", "2", "--memMB", "1000")
    assert (only.resource.cpu, only.resource.gpu, only.resource.memMB) == (8, 2, 1000)
    assert only.args[2:4] == ["--gpus", "2"]
    assert "--gpus" not in role(name).args


def test_environment_is_forwarded_and_overridden_by_env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICQA_HOME", "/scratch/me")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("HF_HOME", raising=False)
    env = role("ddp", "--env", "OMP_NUM_THREADS=5,A=it's").env
    assert env["ELASTICQA_HOME"] == "/scratch/me"
    assert (env["OMP_NUM_THREADS"], env["A"]) == ("5", "it's")
    assert "HF_HOME" not in env


def test_run_id_is_new_or_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICQA_RUN_ID", raising=False)
    first, second = (ULID.from_str(role("ddp").env["ELASTICQA_RUN_ID"]) for _ in range(2))
    assert first != second
    monkeypatch.setenv("ELASTICQA_RUN_ID", "mine")
    assert role("ddp").env["ELASTICQA_RUN_ID"] == "mine"


def test_job_may_be_requeued() -> None:
    assert role("ddp").max_retries > 1


@pytest.mark.parametrize("scheduler", ["local_cwd", "slurm"])
@pytest.mark.parametrize("name", NAMES)
def test_dry_run_shows_the_request(scheduler: str, name: str, tmp_path: Path) -> None:
    config = {"log_dir": str(tmp_path)} if scheduler == "local_cwd" else {}
    with get_runner() as runner:
        info = runner.dryrun_component(f"{SOURCE}:{name}", ["--", "--recipe", "demo"], scheduler, cfg=config)
    assert "elasticqa.cli.launch" in str(info)


def test_slurm_is_ours_and_the_other_schedulers_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICQA_HOME", os.devnull)
    factories = get_scheduler_factories()
    assert set(factories) == set(DEFAULT_SCHEDULER_MODULES)
    assert isinstance(factories["slurm"]("session"), SlurmScheduler)
