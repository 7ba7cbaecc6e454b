"""Whole training runs on GPUs: precisions, strategies over NCCL, resume, and facts of the devices in the journal."""

import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.support import training
from tests.support.processes import run as run_command

NUM_GPUS = torch.cuda.device_count()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(NUM_GPUS == 0, reason="needs a CUDA device")]
needs_two = pytest.mark.skipif(NUM_GPUS < 2, reason="needs two CUDA devices")

FP16_AS_ON_A_T4 = ("--precision=fp16", "--attention=sdpa")
CAPTURED = ("--precision=bf16", "--micro-batch-size=7")
"""CUDA graphs, unless an option excludes them."""

RUNS: dict[str, tuple[int, tuple[str, ...]]] = {
    "fp32": (1, ("--precision=fp32",)),
    "fp32-captured": (1, ("--precision=fp32", "--micro-batch-size=7")),
    "fp32-ddp": (2, ("--precision=fp32", "--parallel=ddp")),
    "fp32-fsdp": (2, ("--precision=fp32", "--parallel=fsdp")),
    "bf16": (1, ("--precision=bf16", "--cuda-graphs=False")),
    "bf16-ddp": (2, ("--precision=bf16", "--parallel=ddp", "--cuda-graphs=False")),
    "bf16-fsdp": (2, ("--precision=bf16", "--parallel=fsdp", "--cuda-graphs=False")),
    "bf16-captured": (1, (*CAPTURED, "--kernels=False", "--compile=False")),
    "bf16-captured-ddp": (2, (*CAPTURED, "--kernels=False", "--compile=False", "--parallel=ddp")),
    "bf16-compiled": (1, (*CAPTURED, "--compile=True")),
    "bf16-kernels": (1, CAPTURED),
    "bf16-kernels-ddp": (2, (*CAPTURED, "--parallel=ddp")),
    "bf16-kernels-fsdp": (2, (*CAPTURED, "--parallel=fsdp")),
    "bf16-compiled-fsdp": (2, (*CAPTURED, "--parallel=fsdp", "--compile=True")),
    "bf16-resharded-fsdp": (2, (*CAPTURED, "--parallel=fsdp", "--reshard=True")),
    "fp16": (1, FP16_AS_ON_A_T4),
    "fp16-captured": (1, (*FP16_AS_ON_A_T4, "--micro-batch-size=7")),
    "fp16-ddp": (2, (*FP16_AS_ON_A_T4, "--parallel=ddp")),
    "fp16-fsdp": (2, (*FP16_AS_ON_A_T4, "--parallel=fsdp")),
}
"""Name -> ranks and flags."""

Finished = dict[str, Future[Path]]
Note = Callable[[str, object], None]


def flags(model: Path, data: Path, *more: str) -> list[str]:
    """Return flags of 50 steps without dropout."""
    return training.flags(model, data, "--dropout=0", "--epochs=7", "--max-steps=50", *more)


def command(num_ranks: int, arguments: list[str]) -> list[str]:
    launch = [f"--nproc-per-node={num_ranks}", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    return [sys.executable, "-m", "torch.distributed.run", *launch, "-m", "elasticqa.training.main", *arguments]


def run(home: Path, num_ranks: int, arguments: list[str], device: int) -> Path:
    """Train in a new home directory and return the run directory."""
    visible = ",".join(map(str, range(NUM_GPUS))) if num_ranks > 1 else str(device)
    environ = training.environment(home, CUDA_VISIBLE_DEVICES=visible)
    done = run_command(*command(num_ranks, arguments), env=environ)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return training.only_run(home)


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tiny_squad: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return futures of the run directories of `RUNS`, which share the GPUs, since none is timed."""
    possible = {name: what for name, what in RUNS.items() if what[0] <= NUM_GPUS}
    result: Finished = {}
    with ThreadPoolExecutor(len(possible)) as pool:
        for number, (name, (num_ranks, more)) in enumerate(possible.items()):
            home = tmp_path_factory.mktemp(name)
            arguments = flags(tiny_model, tiny_squad, *more)
            result[name] = pool.submit(run, home, num_ranks, arguments, number % NUM_GPUS)
    return result


def gap(finished: Finished, name: str, other: str) -> float:
    """Return the largest difference of two runs' losses over 50 steps."""
    losses, expected = (training.losses(finished[key].result()) for key in (name, other))
    assert list(losses) == list(expected) == list(range(1, 51))
    assert expected[50] < expected[1] - 0.5
    return max(abs(losses[step] - expected[step]) for step in losses)


@needs_two
@pytest.mark.parametrize("name", ["fp32-captured", "fp32-ddp", "fp32-fsdp"])
def test_fp32_losses_equal_those_of_one_gpu(name: str, finished: Finished, record_property: Note) -> None:
    largest = gap(finished, name, "fp32")
    record_property("largest_gap", largest)
    assert largest < 1e-4


@pytest.mark.parametrize("name", [name for name in RUNS if not name.startswith("fp32")])
def test_half_precision_losses_are_close_to_those_of_fp32(name: str, finished: Finished, record_property: Note) -> None:
    if RUNS[name][0] > NUM_GPUS:
        pytest.skip("needs two CUDA devices")
    largest = gap(finished, name, "fp32")
    record_property("largest_gap", largest)
    assert largest < 5e-2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp32", ("fp32", "sdpa", False, True, False)),
        ("bf16", ("bf16", "flash", False, False, False)),
        ("bf16-captured", ("bf16", "flash", False, True, False)),
        ("bf16-kernels", ("bf16", "flash", False, True, True)),
        pytest.param("bf16-kernels-fsdp", ("bf16", "flash", False, True, True), marks=needs_two),
        pytest.param("bf16-resharded-fsdp", ("bf16", "flash", False, False, False), marks=needs_two),
        ("bf16-compiled", ("bf16", "flash", True, True, False)),
        ("fp16", ("fp16", "sdpa", False, True, False)),
    ],
)
def test_journal_names_the_optimizations_in_use(
    name: str, expected: tuple[str, str, bool, bool, bool], finished: Finished
) -> None:
    setup = training.journal(finished[name].result())["setup"][0]
    assert tuple(setup[key] for key in ("precision", "attention", "is_compiled", "is_captured", "is_fused")) == expected


def test_journal_names_the_gpu_and_its_memory(finished: Finished) -> None:
    lines = training.journal(finished["bf16"].result())
    host = lines["hosts"][0]["hosts"][0]
    assert host["device_type"] == "cuda"
    assert host["device_name"] == torch.cuda.get_device_name(0)
    assert host["device_memory_bytes"] == torch.cuda.get_device_properties(0).total_memory
    assert all(0 < line["peak_memory_bytes"] < host["device_memory_bytes"] for line in lines["step"])
    assert lines["end"][0]["peak_memory_bytes"] == max(line["peak_memory_bytes"] for line in lines["step"])


def test_system_samples_contain_values_of_the_gpu(finished: Finished) -> None:
    samples = training.journal(finished["bf16-compiled"].result())["system"]
    gpus = [gpu for line in samples for gpu in line["gpus"]]
    assert gpus
    for gpu in gpus:
        assert 0 <= gpu["utilization_percent"] <= 100
        assert gpu["memory_bytes"] > 0
        assert gpu["power_w"] > 0


def test_replayed_steps_count_and_captured_ones_are_warmup(finished: Finished) -> None:
    steps = training.journal(finished["bf16-captured"].result())["step"]
    counted = [line for line in steps if not line["is_warmup"]]
    assert 10 < len(counted) < len(steps) - 4


@needs_two
def test_run_resumes_with_fewer_gpus(
    finished: Finished, tiny_model: Path, tiny_squad: Path, tmp_path: Path, record_property: Note
) -> None:
    arguments = flags(tiny_model, tiny_squad, "--precision=fp32")
    with training.started(tmp_path, command(2, arguments), step=5) as process:
        process.send_signal(signal.SIGTERM)
    directory = training.only_run(tmp_path)
    assert training.journal(directory)["end"][0]["status"] == "preempted"
    done = run_command(*command(1, arguments), env=training.environment(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    expected = training.losses(finished["fp32"].result())
    losses = training.losses(directory) | training.losses(directory, 2)
    record_property("resumed_after", max(training.losses(directory)))
    assert losses == pytest.approx(expected, abs=1e-4)
    fed = training.fed(directory) | training.fed(directory, 2)
    assert fed == training.fed(finished["fp32"].result())


@pytest.mark.parametrize("graphs", [False, True])
def test_profile_contains_kernels_of_the_gpu(graphs: bool, tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    arguments = flags(
        tiny_model, tiny_squad, "--precision=bf16", "--profile", "--micro-batch-size=7", f"--cuda-graphs={graphs}"
    )
    done = training.train(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    directory = training.only_run(tmp_path)
    (line,) = training.journal(directory)["profile"]
    assert (directory / line["trace"]).is_file()
    summary = line["summary"]
    assert summary["devices"]
    names = " ".join(kernel["name"] for kernel in summary["kernels"])
    assert "attention_forward" in names
    assert ("adamw_update" if graphs else "multi_tensor_apply") in names
