"""What a component starts on each node: the request, the way to torchrun, and what is refused before it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from elasticqa.cli.launch import Launch, check, main, own_address, torchrun_options
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
def test_nodes_are_a_number_or_a_range(nnodes: str, expected: tuple[int, int]) -> None:
    launch = Launch.of(nnodes, 2, 0)
    assert (launch.min_nodes, launch.max_nodes) == expected
    assert (launch.nproc_per_node, launch.max_restarts) == (2, 0)


@pytest.mark.parametrize("nnodes", ["", "0", "two", "-1", "2:1", "0:2", "1:2:3", "1:", ":2", "1.5", "²"])
def test_other_nodes_are_refused_with_the_way_out(nnodes: str) -> None:
    with pytest.raises(ConfigError, match=r"nnodes=.*--nnodes"):
        Launch.of(nnodes, 1, 0)


def test_no_process_a_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="nproc_per_node=0 is too small"):
        Launch.of("1", 0, 0)


def test_one_node_keeps_its_rendezvous_to_itself() -> None:
    assert endpoint(Launch(1, 1, 2, 0), SLURM_JOB_ID="7", TORCHX_RANK0_HOST="node1") == ("localhost", 0)


def test_several_nodes_meet_at_the_host_that_the_scheduler_names() -> None:
    host, port = endpoint(TWO_NODES, SLURM_JOB_ID="7", TORCHX_RANK0_HOST="node4", SLURM_JOB_NODELIST="node[1-2]")
    assert host == "node4"
    assert 1024 < port < 65536


def test_agent_reads_the_address_that_the_scheduler_names() -> None:
    host, port = endpoint(TWO_NODES, SLURM_JOB_ID="7", TORCHX_RANK0_HOST="fd77::1")
    assert host == "[fd77::1]"
    assert parse_rendezvous_endpoint(f"{host}:{port}", default_port=-1) == ("fd77::1", port)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "::1"])
def test_first_node_is_reached_by_the_name_that_the_others_have_for_it(host: str) -> None:
    assert own_address(TWO_NODES, {"TORCHX_RANK0_HOST": host}) == host
    assert endpoint(TWO_NODES, TORCHX_RANK0_HOST=host)[0] == (f"[{host}]" if ":" in host else host)


def test_first_node_of_the_link_only_is_refused_before_torch_reads_it() -> None:
    with pytest.raises(ConfigError, match=r"first node 'fe80::1%lo' is found at fe80::1 only, .*give it an address"):
        own_address(TWO_NODES, {"TORCHX_RANK0_HOST": "fe80::1%lo"})


def test_one_node_looks_for_no_other() -> None:
    assert own_address(Launch(1, 1, 1, 0), {"TORCHX_RANK0_HOST": "no-such-host.invalid"}) == "localhost"


def test_first_node_that_is_not_found_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"first node 'no-such-host\.invalid' cannot be reached from .*/etc/hosts"):
        own_address(TWO_NODES, {"TORCHX_RANK0_HOST": "no-such-host.invalid"})


@pytest.mark.parametrize("variable", ["SLURM_JOB_NODELIST", "SLURM_JOB_NODELIST_HET_GROUP_0"])
def test_several_nodes_meet_at_the_first_of_the_node_list(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = executable(tmp_path / "bin" / "scontrol", 'echo "$@" >> "$0.calls"; echo gpu-03; echo gpu-04')
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    assert endpoint(TWO_NODES, **{variable: "gpu-[03-04]", "SLURM_JOB_ID": "7"})[0] == "gpu-03"
    assert Path(f"{tool}.calls").read_text() == "show hostnames gpu-[03-04]\n"


def test_node_list_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"node list 'n\[1-2\]' cannot be read: scontrol"):
        endpoint(TWO_NODES, SLURM_JOB_NODELIST="n[1-2]")


def test_replicas_on_this_machine_meet_at_localhost_by_the_id_of_the_application() -> None:
    first = endpoint(TWO_NODES, TORCHX_JOB_ID="local_cwd://torchx/ddp-abc")
    second = endpoint(TWO_NODES, TORCHX_JOB_ID="local_cwd://torchx/ddp-abd")
    assert first[0] == second[0] == "localhost"
    assert first[1] != second[1]


def test_jobs_that_share_a_node_have_ports_of_their_own() -> None:
    ports = {endpoint(TWO_NODES, SLURM_JOB_ID=str(job), TORCHX_RANK0_HOST="n")[1] for job in range(1000, 1100)}
    assert len(ports) == 100


def test_options_carry_the_launch_and_every_signal() -> None:
    options = torchrun_options(Launch(1, 4, 2, 5), {"SLURM_JOB_ID": "12", "TORCHX_RANK0_HOST": "n"})
    assert {"--nnodes=1:4", "--nproc-per-node=2", "--max-restarts=5", "--rdzv-id=12"} <= set(options)
    (signals,) = (option for option in options if option.startswith("--signals-to-handle="))
    assert {"SIGTERM", "SIGUSR1"} <= set(signals.partition("=")[2].split(","))


def test_gpus_that_are_not_there_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"gpu=1000 but torch .* sees \d+ on .*does not train on the CPU instead"):
        check(TrainConfig(dataset="/no/such/data"), None, 1000)


def test_world_larger_than_the_batch_is_refused_for_the_fewest_nodes(
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
def tell(argv):
    print(json.dumps([argv, dict(os.environ)]))
    if "gone" in argv[-1]:
        raise BrokenPipeError
    return 143
train.main = tell
sys.executable = "/nothing"
sys.exit(main(sys.argv[1:]))
"""


def request(model: Path, data: Path, *more: str) -> list[str]:
    return [f"--model={model}", f"--dataset={data}", "--max-length=160", "--doc-stride=32", "--seed=3", *more]


def launched(home: Path, program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Return a launch of this machine, out of a shell of an allocation and of a trainer."""
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
def test_good_request_for_nodes_becomes_the_command_that_trains(
    tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    """The interpreter that is executed is a stand-in that tells its arguments and its environment."""
    stand_in = tmp_path / "python"
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    stand_in.write_text(f"#!{sys.executable}\n{code}\n", encoding="utf-8")
    stand_in.chmod(0o755)
    flags = request(tiny_model, tiny_squad)
    done = launched(tmp_path / "home", AGENT, str(stand_in), "--nnodes=1:2", "--nproc-per-node=2", *flags)
    assert done.returncode == 0, done.stderr
    arguments, seen = json.loads(done.stdout)
    assert arguments[:2] == ["-m", "elasticqa.elastic.torchrun"]
    assert "--nnodes=1:2" in arguments
    assert arguments[-len(flags) - 2 :] == ["-m", "elasticqa.training.main", *flags]
    check_environment(seen, 2)
    assert seen["ELASTICQA_MIN_NODES"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("kept", 143), ("gone", ExitCode.FAILED)])
def test_good_request_for_one_process_is_trained_in_it(
    name: str, status: int, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    """The trainer is a stand-in that tells its arguments and its environment; its status counts, and its errors do."""
    flags = request(tiny_model, tiny_squad, f"--name={name}")
    done = launched(tmp_path / "home", TRAINER, *flags)
    assert done.returncode == status, done.stderr
    assert ("BrokenPipeError" in done.stderr) == (name == "gone")
    arguments, seen = json.loads(done.stdout)
    assert arguments == flags
    check_environment(seen, 1)
    assert "ELASTICQA_MIN_NODES" not in seen
