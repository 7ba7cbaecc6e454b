"""Inputs made ahead of time are those of the plan that asks for them, or they are not used."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.data.prefetcher import DEPTH, Ahead
from elasticqa.data.sampler import StepPlan, StepPlanner

LENGTHS = np.arange(1, 12)
STEPS = 6
"""Two epochs of 3 steps, the last of which has 3 features."""


def planner() -> StepPlanner:
    plan = BatchPlan(num_features=11, global_batch_size=4, steps_per_epoch=3, num_steps=STEPS)
    return StepPlanner(plan, LENGTHS, seed=1, rank=0, world_size=1, micro_batch_size=4)


def features_of(plan: StepPlan) -> list[list[int]]:
    return [indices.tolist() for indices in plan.micro_batches]


class Made:
    """Makes inputs and notes which thread made those of a step."""

    def __init__(self) -> None:
        self.by: dict[int, list[str]] = {}
        self.is_made = {step: threading.Event() for step in range(STEPS + DEPTH)}

    def __call__(self, plan: StepPlan) -> list[list[int]]:
        self.by.setdefault(plan.step, []).append(threading.current_thread().name)
        self.is_made[plan.step].set()
        return features_of(plan)

    def is_by_thread(self, step: int) -> list[bool]:
        return [name != threading.current_thread().name for name in self.by[step]]


@contextmanager
def following(made: Made, source: StepPlanner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead[list[list[int]]]]:
    # The thread's device is chosen through CUDA, which is not everywhere.
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    ahead = Ahead(made)
    ahead.follow(source, torch.device("cpu"))
    try:
        yield ahead
    finally:
        ahead.close()


def test_every_step_gets_its_own_input_made_once_and_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    made, source = Made(), planner()
    with following(made, source, monkeypatch) as ahead:
        for step in range(STEPS):
            plan = source.step_plan(step)
            assert ahead.take(plan) == features_of(plan)
    assert made.is_by_thread(0) == [False]
    assert [made.is_by_thread(step) for step in range(1, STEPS)] == [[True]] * (STEPS - 1)
    assert set(made.by) == set(range(STEPS))


def test_nothing_is_made_further_ahead_than_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    made, source = Made(), planner()
    with following(made, source, monkeypatch) as ahead:
        ahead.take(source.step_plan(0))
        assert made.is_made[DEPTH].wait(60)
    assert set(made.by) == set(range(DEPTH + 1))


def test_step_that_was_not_expected_is_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made, source = Made(), planner()
    with following(made, source, monkeypatch) as ahead:
        ahead.take(source.step_plan(0))
        plan = source.step_plan(4)
        assert ahead.take(plan) == features_of(plan)
        assert made.is_by_thread(4) == [False]
        plan = source.step_plan(1)
        assert ahead.take(plan) == features_of(plan)


def test_input_of_other_micro_batches_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made, source = Made(), planner()
    with following(made, source, monkeypatch) as ahead:
        ahead.take(source.step_plan(0))
        assert made.is_made[1].wait(60)
        assert source.halve(source.step_plan(0)) == 2
        plan = source.step_plan(1)
        assert len(plan.micro_batches) == 2
        assert ahead.take(plan) == features_of(plan)
    assert made.is_by_thread(1) == [True, False]


def test_error_of_the_thread_is_raised_where_the_input_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    source = planner()

    def fail(plan: StepPlan) -> int:
        if plan.step == 1:
            raise ValueError("feature 7 is broken")
        return plan.step

    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    ahead = Ahead(fail)
    ahead.follow(source, torch.device("cpu"))
    assert ahead.take(source.step_plan(0)) == 0
    with pytest.raises(ValueError, match="feature 7 is broken"):
        ahead.take(source.step_plan(1))
    ahead.close()


def test_without_a_planner_there_is_no_thread() -> None:
    made, source = Made(), planner()
    ahead = Ahead(made)
    for step in range(STEPS):
        ahead.take(source.step_plan(step))
    ahead.close()
    assert [made.is_by_thread(step) for step in range(STEPS)] == [[False]] * STEPS
