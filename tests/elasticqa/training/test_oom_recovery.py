"""A micro-batch that does not fit changes no weight on any rank, and training continues with halves."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.data.micro_batch import MicroBatch
from elasticqa.data.sampler import MicroBatchShape, Sampler
from elasticqa.distributed.topology import Topology
from elasticqa.errors import LocalOutOfMemoryError, MicroBatchTooLargeError
from elasticqa.training.oom_recovery import MemoryGuard
from tests.support.ranks import run_on_ranks
from tests.support.train_steps import BATCH, FEATURES, new_train_step
from tests.support.trainers import ALONE, trainer
from tests.support.training import fed, journal

LARGE, SMALL = MicroBatchShape(4, 100, 160), MicroBatchShape(2, 90, 80)


def no_memory() -> int:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_shapes_up_to_one_that_fitted_are_known() -> None:
    guard = MemoryGuard(ALONE)
    assert not guard.knows(SMALL)
    assert guard.run(lambda: 7, LARGE) == 7
    assert guard.knows(SMALL)
    assert guard.knows(LARGE)
    assert not guard.knows(MicroBatchShape(1, 101, 101))


def test_shape_that_does_not_fit_is_named_and_stays_unknown() -> None:
    guard = MemoryGuard(ALONE)
    with pytest.raises(
        MicroBatchTooLargeError, match=r"4 features, 100 tokens, does not fit .* of cpu; use --activation"
    ):
        guard.run(no_memory, LARGE)
    assert not guard.knows(SMALL)


def test_other_errors_are_raised_unchanged() -> None:
    def fail() -> None:
        raise RuntimeError("device-side assert")

    with pytest.raises(RuntimeError, match="device-side"):
        MemoryGuard(ALONE).run(fail, LARGE)


def test_out_of_memory_is_recognized_behind_another_error_and_from_the_driver() -> None:
    def fail_twice() -> None:
        try:
            no_memory()
        finally:
            raise RuntimeError("capture was invalidated")

    def fail_in_the_driver() -> None:
        raise RuntimeError("CUDA error: out of memory")

    for work in (fail_twice, fail_in_the_driver):
        with pytest.raises(MicroBatchTooLargeError):
            MemoryGuard(ALONE).run(work, LARGE)
        with pytest.raises(LocalOutOfMemoryError):
            MemoryGuard(ALONE).run_reducing(work, LARGE)


def limit(model: nn.Module, tokens: int) -> None:
    """Let passes of more tokens run out of memory, when most of the pass is done."""
    bare = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model

    def check(_: nn.Module, arguments: tuple[MicroBatch], __: Tensor) -> None:
        if len(arguments[0].input_ids) > tokens:
            no_memory()

    bare.register_forward_hook(check)


def test_step_that_does_not_fit_leaves_weights_and_no_gradients() -> None:
    made = new_train_step(ALONE, "ddp")
    limit(made.model, int(FEATURES.lengths.max()))
    before = [parameter.detach().clone() for parameter in made.model.parameters()]
    plan = BatchPlan(len(FEATURES), BATCH, 3, 9)
    sampler = Sampler(plan, FEATURES.lengths, seed=1, rank=0, world_size=1, micro_batch_size=BATCH)
    with pytest.raises(MicroBatchTooLargeError):
        made.run(sampler.step_batch(0), 1e-2)
    for parameter, other in zip(made.model.parameters(), before, strict=True):
        assert torch.equal(parameter, other)
        assert parameter.grad is None


def halved(topology: Topology, directory: Path, tokens: dict[int, int]) -> None:
    """Train where ranks have memory for so many tokens; a function of a module, since ranks import it."""
    made = trainer(directory, topology, dropout=0.0, eval_before=False)
    if topology.rank in tokens:
        limit(made.train_step.model, tokens[topology.rank])
    made.train()
    made.recorder.flush()


@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_halved_micro_batches_feed_the_same_and_give_the_same_losses(world_size: int, tmp_path: Path) -> None:
    longest = int(FEATURES.lengths.max())
    halved(ALONE, tmp_path / "whole", {})
    # Only the last of the ranks is short of memory.
    arguments = tmp_path / "halves", {world_size - 1: longest}
    if world_size == 1:
        halved(ALONE, *arguments)
    else:
        run_on_ranks(world_size, halved, *arguments)
    whole, halves = journal(tmp_path / "whole"), journal(tmp_path / "halves")
    events = [line["data"] for line in halves["event"] if line["name"] == "micro_batch_halved"]
    assert [event["micro_batch_size"] for event in events] == [1]
    assert fed(tmp_path / "halves") == fed(tmp_path / "whole")
    losses = [[line["loss"] for line in lines["step"]] for lines in (whole, halves)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    assert halves["step"][events[0]["step"] - 1]["is_warmup"]


def test_run_ends_where_a_single_feature_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(MicroBatchTooLargeError, match=r"a micro-batch of 1 features, \d+ tokens"):
        # The pass before the first step, of the first feature, has room.
        halved(ALONE, tmp_path, {0: int(FEATURES.lengths[0])})
