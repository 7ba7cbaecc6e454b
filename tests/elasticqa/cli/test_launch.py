"""The program that a component starts on each node: refusals, torchrun's options and the processes it starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from elasticqa.cli.launch import Launch, check, local_address, main, torchrun_options
from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError, ExitCode
from tests.support import training
from tests.support.processes import run_python

TWO_NODES = Launch(2, 2, 1, 3)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def endpoint(launch: Launch, **environ: str) -> tuple[str, int]:
    (option,) = (text for text in torchrun_options(launch, environ) if text.startswith("--rdzv-endpoint="))
    host, _, port = option.partition("=")[2].rpartition(":")
    return host, int(port)


@pytest.mark.parametrize(("nnodes", "expected"), [("1", (1, 1)), ("2", (2, 2)), ("1:4", (1, 4)), ("3:3", (3, 3))])
def test_nnodes_is_a_number_or_a_range(nnodes: str, expected: tuple[int, int]) -> None:
    launch = Launch.of(nnodes, 2, 0)
    assert (launch.min_nodes, launch.max_nodes) == expected
    assert (launch.nproc_per_node, launch.max_restarts) == (2, 0)


@pytest.mark.parametrize("nnodes", ["", "0", "two", "-1", "2:1", "0:2", "1:2:3", "1:", ":2", "1.5", "²"])
def test_other_nnodes_and_zero_processes_are_refused_with_advice(nnodes: str) -> None:
    with pytest.raises(ConfigError, match=r"nnodes=.*--nnodes"):
        Launch.of(nnodes, 1, 0)
    with pytest.raises(ConfigError, match="nproc_per_node=0 is too small"):
        Launch.of("1", 0, 0)


def test_rendezvous_of_one_node_is_local() -> None:
    assert endpoint(Launch(1, 1, 2, 0), SLURM_JOB_ID="7", TORCHX_RANK0_HOST="node1") == ("localhost", 0)


def test_rendezvous_is_on_the_first_host_of_the_scheduler() -> None:
    host, port = endpoint(TWO_NODES, SLURM_JOB_ID="7", TORCHX_RANK0_HOST="node4", SLURM_JOB_NODELIST="node[1-2]")
    assert host == "node4"
    assert 1024 < port < 65536


def test_torchrun_parses_an_ipv6_address_of_the_scheduler() -> None:
    host, port = endpoint(TWO_NODES, SLURM_JOB_ID="7", TORCHX_RANK0_HOST="fd77::1")
    assert host == "[fd77::1]"
    assert parse_rendezvous_endpoint(f"{host}:{port}", default_port=-1) == ("fd77::1", port)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "::1"])
def test_first_node_uses_the_name_that_all_nodes_use(host: str) -> None:
    assert local_address(TWO_NODES, {"TORCHX_RANK0_HOST": host}) == host
    assert endpoint(TWO_NODES, TORCHX_RANK0_HOST=host)[0] == (f"[{host}]" if ":" in host else host)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("fe80::1%lo", r"link-local address fe80::1 only, .*give it an address"),
        ("no-such-host.invalid", r"first node 'no-such-host\.invalid' cannot be reached from .*/etc/hosts"),
    ],
)
def test_first_node_that_cannot_be_reached_is_refused(host: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        local_address(TWO_NODES, {"TORCHX_RANK0_HOST": host})


def test_one_node_does_not_resolve_the_first_host() -> None:
    assert local_address(Launch(1, 1, 1, 0), {"TORCHX_RANK0_HOST": "no-such-host.invalid"}) == "localhost"


@pytest.mark.parametrize("variable", ["SLURM_JOB_NODELIST", "SLURM_JOB_NODELIST_HET_GROUP_0"])
def test_rendezvous_is_on_the_first_node_of_the_node_list(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = executable(tmp_path / "bin" / "scontrol", 'echo "$@" >> "$0.calls"; echo gpu-03; echo gpu-04')
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    assert endpoint(TWO_NODES, **{variable: "gpu-[03-04]", "SLURM_JOB_ID": "7"})[0] == "gpu-03"
    assert Path(f"{tool}.calls").read_text() == "show hostnames gpu-[03-04]\n"


def test_unreadable_node_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"node list 'n\[1-2\]' cannot be read: scontrol"):
        endpoint(TWO_NODES, SLURM_JOB_NODELIST="n[1-2]")


def test_local_replicas_meet_at_localhost_on_a_port_per_application() -> None:
    first = endpoint(TWO_NODES, TORCHX_JOB_ID="local_cwd://torchx/ddp-abc")
    second = endpoint(TWO_NODES, TORCHX_JOB_ID="local_cwd://torchx/ddp-abd")
    assert first[0] == second[0] == "localhost"
    assert first[1] != second[1]


def test_jobs_have_different_ports() -> None:
    ports = {endpoint(TWO_NODES, SLURM_JOB_ID=str(job), TORCHX_RANK0_HOST="n")[1] for job in range(1000, 1100)}
    assert len(ports) == 100


def test_options_have_the_launch_and_every_signal() -> None:
    options = torchrun_options(Launch(1, 4, 2, 5), {"SLURM_JOB_ID": "12", "TORCHX_RANK0_HOST": "n"})
    assert {"--nnodes=1:4", "--nproc-per-node=2", "--max-restarts=5", "--rdzv-id=12"} <= set(options)
    (signals,) = (option for option in options if option.startswith("--signals-to-handle="))
    assert {"SIGTERM", "SIGUSR1"} <= set(signals.partition("=")[2].split(","))


def test_missing_gpus_are_refused_before_the_data_is_read() -> None:
    with pytest.raises(ConfigError, match=r"gpu=1000 but torch .* sees \d+ on .*does not train on the CPU instead"):
        check(TrainConfig(dataset="/no/such/data"), None, 1000)


def test_world_size_of_min_nodes_must_not_exceed_the_batch(
    tiny_model: Path, tiny_squad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICQA_HOME", str(tmp_path))
    config = TrainConfig(
        model=str(tiny_model), dataset=str(tiny_squad), global_batch_size=3, max_length=160, doc_stride=32
    )
    check(config, Launch(1, 4, 2, 0), 0)
    with pytest.raises(ConfigError, match="global_batch_size=3 cannot feed world_size=4"):
        check(config, Launch(2, 4, 2, 0), 0)


def test_bad_request_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nnodes=2:1", "--recipe=demo"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


AGENT = """
import sys
from elasticqa.cli.launch import main
sys.executable = sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""
TRAINER = """
import json, os, sys, types
from elasticqa.cli.launch import main
train = sys.modules["elasticqa.training.main"] = types.ModuleType("elasticqa.training.main")
def print_call(argv):
    print(json.dumps([argv, dict(os.environ)]))
    if "closed" in argv[-1]:
        raise BrokenPipeError
    return 143
train.main = print_call
sys.executable = "/nothing"
sys.exit(main(sys.argv[1:]))
"""


def request(model: Path, data: Path, *more: str) -> list[str]:
    return [f"--model={model}", f"--dataset={data}", "--max-length=160", "--doc-stride=32", "--seed=3", *more]


def launched(home: Path, program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Launch on this machine, with variables left over from a Slurm allocation and from another launch."""
    environ = training.environment(
        home, TORCHX_JOB_ID="local_cwd://torchx/x", SLURM_JOB_ID="7", ELASTICQA_MIN_NODES="2", KEPT="kept"
    )
    environ.pop("OMP_NUM_THREADS")
    return run_python("-c", program, *argv, env=environ)


def check_environment(seen: dict[str, str], num_processes: int) -> None:
    assert int(seen["OMP_NUM_THREADS"]) == max(1, len(os.sched_getaffinity(0)) // num_processes)
    assert seen["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert len(seen["ELASTICQA_RUN_ID"]) == 26
    assert seen["KEPT"] == "kept"
    assert "SLURM_JOB_ID" not in seen


@pytest.mark.slow
def test_request_with_nnodes_execs_torchrun(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    """A fake interpreter prints its arguments and its environment."""
    interpreter = tmp_path / "python"
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    interpreter.write_text(f"#!{sys.executable}\n{code}\n", encoding="utf-8")
    interpreter.chmod(0o755)
    flags = request(tiny_model, tiny_squad)
    done = launched(tmp_path / "home", AGENT, str(interpreter), "--nnodes=1:2", "--nproc-per-node=2", *flags)
    assert done.returncode == 0, done.stderr
    arguments, seen = json.loads(done.stdout)
    assert arguments[:2] == ["-m", "elasticqa.elastic.torchrun"]
    assert "--nnodes=1:2" in arguments
    assert arguments[-len(flags) - 2 :] == ["-m", "elasticqa.training.main", *flags]
    check_environment(seen, 2)
    assert seen["ELASTICQA_MIN_NODES"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("kept", 143), ("closed", ExitCode.FAILED)])
def test_request_without_nnodes_trains_in_this_process(
    name: str, status: int, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    """A fake trainer prints its arguments and its environment."""
    flags = request(tiny_model, tiny_squad, f"--name={name}")
    done = launched(tmp_path / "home", TRAINER, *flags)
    assert done.returncode == status, done.stderr
    assert ("BrokenPipeError" in done.stderr) == (name == "closed")
    arguments, seen = json.loads(done.stdout)
    assert arguments == flags
    check_environment(seen, 1)
    assert "ELASTICQA_MIN_NODES" not in seen
