"""A prefetched input is used only for the step batch that it was made from."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.data.prefetcher import DEPTH, Prefetcher
from elasticqa.data.sampler import Sampler, StepBatch

LENGTHS = np.arange(1, 12)
STEPS = 6
"""Two epochs of 3 steps; the last step of each has 3 features."""


def new_sampler() -> Sampler:
    plan = BatchPlan(num_train_features=11, global_batch_size=4, steps_per_epoch=3, num_steps=STEPS)
    return Sampler(plan, LENGTHS, seed=1, rank=0, world_size=1, micro_batch_size=4)


def features_of(step_batch: StepBatch) -> list[list[int]]:
    return [indices.tolist() for indices in step_batch.micro_batches]


class Maker:
    """Makes inputs and records which threads made those of each step."""

    def __init__(self) -> None:
        self.threads: dict[int, list[str]] = {}
        self.is_made = {step: threading.Event() for step in range(STEPS + DEPTH)}

    def __call__(self, step_batch: StepBatch) -> list[list[int]]:
        self.threads.setdefault(step_batch.step, []).append(threading.current_thread().name)
        self.is_made[step_batch.step].set()
        return features_of(step_batch)

    def is_prefetched(self, step: int) -> list[bool]:
        return [name != threading.current_thread().name for name in self.threads[step]]


@pytest.fixture(autouse=True)
def _without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)


@contextmanager
def started(maker: Maker, sampler: Sampler) -> Iterator[Prefetcher[list[list[int]]]]:
    prefetcher = Prefetcher(maker)
    prefetcher.start(sampler, torch.device("cpu"))
    try:
        yield prefetcher
    finally:
        prefetcher.close()


def test_each_input_after_the_first_is_prefetched_once() -> None:
    maker, sampler = Maker(), new_sampler()
    with started(maker, sampler) as prefetcher:
        for step in range(STEPS):
            step_batch = sampler.step_batch(step)
            assert prefetcher.take(step_batch) == features_of(step_batch)
    assert maker.is_prefetched(0) == [False]
    assert [maker.is_prefetched(step) for step in range(1, STEPS)] == [[True]] * (STEPS - 1)
    assert set(maker.threads) == set(range(STEPS))


def test_no_more_steps_are_prefetched_than_the_depth() -> None:
    maker, sampler = Maker(), new_sampler()
    with started(maker, sampler) as prefetcher:
        prefetcher.take(sampler.step_batch(0))
        assert maker.is_made[DEPTH].wait(60)
    assert set(maker.threads) == set(range(DEPTH + 1))


def test_input_of_an_unexpected_step_is_made_on_demand() -> None:
    maker, sampler = Maker(), new_sampler()
    with started(maker, sampler) as prefetcher:
        prefetcher.take(sampler.step_batch(0))
        assert prefetcher.take(sampler.step_batch(4)) == features_of(sampler.step_batch(4))
        assert maker.is_prefetched(4) == [False]
        assert prefetcher.take(sampler.step_batch(1)) == features_of(sampler.step_batch(1))


def test_prefetched_input_is_made_again_after_micro_batches_are_halved() -> None:
    maker, sampler = Maker(), new_sampler()
    with started(maker, sampler) as prefetcher:
        prefetcher.take(sampler.step_batch(0))
        assert maker.is_made[1].wait(60)
        assert sampler.halve_micro_batches(sampler.step_batch(0)) == 2
        step_batch = sampler.step_batch(1)
        assert len(step_batch.micro_batches) == 2
        assert prefetcher.take(step_batch) == features_of(step_batch)
    assert maker.is_prefetched(1) == [True, False]


def test_error_of_the_thread_is_raised_by_take() -> None:
    class BrokenMaker(Maker):
        def __call__(self, step_batch: StepBatch) -> list[list[int]]:
            if step_batch.step == 1:
                raise ValueError("feature 7 is broken")
            return super().__call__(step_batch)

    sampler = new_sampler()
    with started(BrokenMaker(), sampler) as prefetcher:
        prefetcher.take(sampler.step_batch(0))
        with pytest.raises(ValueError, match="feature 7 is broken"):
            prefetcher.take(sampler.step_batch(1))


def test_prefetcher_that_is_not_started_makes_every_input_on_demand() -> None:
    maker, sampler = Maker(), new_sampler()
    prefetcher = Prefetcher(maker)
    for step in range(STEPS):
        prefetcher.take(sampler.step_batch(step))
    assert [maker.is_prefetched(step) for step in range(STEPS)] == [[False]] * STEPS
