"""A checkpoint saved over NCCL resumes with another strategy and with fewer GPUs."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from elasticqa.checkpoint.checkpointer import Checkpointer
from elasticqa.config.train_config import Parallel, TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.training.app_state import app_state_of
from tests.support.gpu_train_steps import alone, config_of, sampler_of, train_step_of
from tests.support.ranks import run_on_ranks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

SAVED_AT, STEPS = 20, 50


def losses_of(topology: Topology, config: TrainConfig, directory: Path, steps: range) -> list[float]:
    """Return the losses of the steps: from 0 with a checkpoint at the end, later ones resumed from it."""
    with ExitStack() as stack:
        train_step, plan = train_step_of(config, topology, stack)
        checkpointer = Checkpointer(directory, topology, app_state_of(train_step), keep=10)
        found = checkpointer.newest_whole()
        if steps.start:
            assert found is not None
            checkpointer.restore(*found)
        sampler = sampler_of(config, plan, topology)
        losses = [float(train_step.run(sampler.step_batch(step), config.learning_rate).scalars[0]) for step in steps]
        if not steps.start:
            checkpointer.start(steps.stop, "final")
            checkpointer.finish()
        return losses


@needs_two
@pytest.mark.parametrize(
    ("precision", "tolerance", "before", "after"), [("fp32", 1e-4, "ddp", "fsdp"), ("bf16", 3e-2, "fsdp", "ddp")]
)
def test_checkpoint_resumes_with_another_strategy_and_on_one_gpu(
    precision: str,
    tolerance: float,
    before: Parallel,
    after: Parallel,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    def config(parallel: Parallel) -> TrainConfig:
        graphs = parallel == "ddp" and precision == "bf16"
        return config_of(precision, parallel=parallel, cuda_graphs=graphs)  # type: ignore[arg-type]

    expected = losses_of(alone(), config("ddp"), tmp_path / "alone", range(STEPS))
    first, _ = run_on_ranks(2, losses_of, config(before), tmp_path / "two", range(SAVED_AT))
    second, _ = run_on_ranks(2, losses_of, config(after), tmp_path / "two", range(SAVED_AT, STEPS))
    third = losses_of(alone(), config("ddp"), tmp_path / "two", range(SAVED_AT, STEPS))
    assert expected[-1] < expected[0] - 0.03
    for name, losses in (("other strategy", [*first, *second]), ("one GPU", [*first, *third])):
        largest = max(abs(loss - other) for loss, other in zip(losses, expected, strict=True))
        record_property(name, largest)
        assert largest < tolerance, name


@pytest.mark.parametrize("kernels", [False, True])
def test_resumed_steps_with_dropout_equal_uninterrupted_ones_bit_for_bit(kernels: bool, tmp_path: Path) -> None:
    config = config_of("bf16", dropout=0.1, cuda_graphs=True, kernels=kernels)
    whole = losses_of(alone(), config, tmp_path / "whole", range(STEPS))
    first = losses_of(alone(), config, tmp_path / "parts", range(SAVED_AT))
    second = losses_of(alone(), config, tmp_path / "parts", range(SAVED_AT, STEPS))
    assert [*first, *second] == whole
