"""Dropout is a function of (seed, step, rank)."""

import torch

from elasticqa.training.train_step import seed_step


def draw(seed: int, step: int, rank: int) -> tuple[float, ...]:
    seed_step(seed, step, rank)
    return tuple(torch.rand(3).tolist())


def test_same_place_draws_the_same_after_other_draws() -> None:
    first = draw(42, 7, 1)
    torch.rand(100)
    assert draw(42, 7, 1) == first


def test_seeds_steps_and_ranks_draw_their_own() -> None:
    places = [(seed, step, rank) for seed in (0, 1, 2**63 - 1) for step in (0, 1, 10**6) for rank in (0, 1, 2)]
    assert len({draw(*place) for place in places}) == len(places)
