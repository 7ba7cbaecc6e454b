"""Decay groups, the learning rate, and updates that are clipped, scaled or skipped."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from elasticqa.config.train_config import Parallel, TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.training.optimizer import INITIAL_LOSS_SCALE, Updater, build_optimizer, learning_rate_at
from tests.support.models import tiny
from tests.support.ranks import run_on_ranks
from tests.support.train_steps import losses, new_train_step

CPU = torch.device("cpu")
CONFIG = TrainConfig(learning_rate=0.1, weight_decay=0.5, max_grad_norm=1.0)


def linear() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(4, 3)


def give_gradients(model: nn.Module, size: float) -> None:
    torch.manual_seed(4)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * size


def test_matrices_decay_and_vectors_do_not() -> None:
    model = tiny("bert", "packed")
    decayed, kept = build_optimizer(model, CONFIG).param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.5, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    kept_names = {names[id(parameter)] for parameter in kept["params"]}
    assert kept_names == {name for name in names.values() if name.endswith("bias") or "LayerNorm" in name}
    assert len(kept_names) + len(decayed["params"]) == len(names)


def test_frozen_parameters_are_left_out() -> None:
    model = linear()
    model.bias.requires_grad_(False)
    groups = build_optimizer(model, CONFIG).param_groups
    assert [len(group["params"]) for group in groups] == [1, 0]


@pytest.mark.parametrize(
    ("warmup_ratio", "expected"),
    [(0.0, [1.0, 0.75, 0.5, 0.25, 0.0]), (0.5, [0.0, 0.5, 1.0, 0.5, 0.0]), (1.0, [0.0, 0.25, 0.5, 0.75, 0.0])],
)
def test_learning_rate_rises_and_falls_linearly(warmup_ratio: float, expected: list[float]) -> None:
    config = TrainConfig(learning_rate=1.0, warmup_ratio=warmup_ratio)
    assert [learning_rate_at(step, 4, config) for step in range(5)] == expected


def test_learning_rate_of_a_single_step_is_the_peak() -> None:
    assert learning_rate_at(0, 1, TrainConfig(learning_rate=2.0)) == 2.0


@pytest.mark.parametrize("size", [0.01, 100.0])
def test_update_equals_clipping_and_adamw_of_torch(size: float) -> None:
    model, expected = linear(), linear()
    give_gradients(model, size)
    give_gradients(expected, size)
    updater = Updater(build_optimizer(model, CONFIG), CONFIG, "fp32", CPU)
    norm = updater.step(0.1, torch.tensor(1.0))
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(expected.parameters(), 1.0))
    groups = [{"params": [expected.weight], "weight_decay": 0.5}, {"params": [expected.bias], "weight_decay": 0.0}]
    torch.optim.AdamW(groups, lr=0.1).step()
    for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)
        torch.testing.assert_close(parameter, other)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["loss", "gradient"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_update_with_a_value_that_is_not_finite_changes_nothing(bad: float, place: str, precision: str) -> None:
    model = linear()
    optimizer = build_optimizer(model, CONFIG)
    updater = Updater(optimizer, CONFIG, "fp16" if precision == "fp16" else "fp32", CPU)
    give_gradients(model, 1.0)
    updater.step(0.1, torch.tensor(1.0))
    before = [value.clone() for value in everything(model, optimizer)]
    give_gradients(model, 1.0)
    if place == "gradient":
        assert model.weight.grad is not None
        model.weight.grad[1, 2] = bad
    norm = updater.step(0.1, torch.tensor(bad if place == "loss" else 1.0))
    assert torch.isfinite(norm) == (place == "loss")
    for value, other in zip(everything(model, optimizer), before, strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0)
    give_gradients(model, 1.0)
    updater.step(0.1, torch.tensor(1.0))
    assert not torch.equal(model.weight, before[0])


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return parameters, moments and step counts."""
    states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    return [*(parameter.detach() for parameter in model.parameters()), *states]


def bad_step(topology: Topology, parallel: Parallel) -> tuple[list[float], list[float]]:
    """Return sums of weights before and after an update that one rank's gradient spoils."""
    trained = new_train_step(topology, parallel)
    losses(trained, range(2))
    before = sums_of_weights(trained.model)
    for parameter in trained.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    if topology.rank == topology.world_size - 1:
        first = next(p.grad for p in trained.model.parameters() if p.grad is not None)
        (first.to_local() if hasattr(first, "to_local") else first).fill_(float("nan"))
    trained.updater.step(0.1, torch.tensor(1.0))
    return before, sums_of_weights(trained.model)


def sums_of_weights(model: nn.Module) -> list[float]:
    """Return the sum of each parameter that this rank holds."""
    return [float((p.to_local() if hasattr(p, "to_local") else p).double().sum()) for p in model.parameters()]


@pytest.mark.slow
def test_gradient_of_one_rank_that_is_not_finite_skips_the_update_on_all() -> None:
    for before, after in run_on_ranks(2, bad_step, "fsdp"):
        assert after == before


def spoiled_loss(topology: Topology, parallel: Parallel) -> bool:
    """Return whether a step with the loss that one rank made infinite left the weights as they were."""
    trained = new_train_step(topology, parallel)
    losses(trained, range(1))
    if topology.rank == 1:
        with torch.no_grad():
            trained.model.get_parameter(last_bias(trained.model)).fill_(float("inf"))
    before = sums_of_weights(trained.model)
    after = losses(trained, range(1, 2))
    return sums_of_weights(trained.model) == before and after[0] != after[0]


def last_bias(model: nn.Module) -> str:
    return next(name for name, _ in model.named_parameters() if name.endswith("qa_outputs.bias"))


@pytest.mark.slow
def test_loss_of_one_rank_that_is_not_finite_skips_the_update_on_all() -> None:
    assert run_on_ranks(2, spoiled_loss, "ddp") == [True, True]


def test_scale_halves_on_overflow_and_doubles_after_2000_good_steps() -> None:
    model = linear()
    updater = Updater(build_optimizer(model, CONFIG), CONFIG, "fp16", CPU)
    scales = []
    for step in range(4002):
        give_gradients(model, float("inf") if step == 1 else float(updater.scale))
        updater.step(1e-6, torch.tensor(1.0))
        scales.append(float(updater.scale))
    assert scales[0] == INITIAL_LOSS_SCALE
    changes = [step for step, (before, after) in enumerate(pairwise(scales), start=1) if before != after]
    assert changes == [1, 2001, 4001]
    assert [scales[step] / INITIAL_LOSS_SCALE for step in changes] == [0.5, 1.0, 2.0]


def test_scale_does_not_change_what_is_learned() -> None:
    plain, scaled = linear(), linear()
    give_gradients(plain, 3.0)
    give_gradients(scaled, 3.0 * INITIAL_LOSS_SCALE)
    norm = Updater(build_optimizer(plain, CONFIG), CONFIG, "fp32", CPU).step(0.1, torch.tensor(1.0))
    other = Updater(build_optimizer(scaled, CONFIG), CONFIG, "fp16", CPU).step(0.1, torch.tensor(1.0))
    torch.testing.assert_close(norm, other)
    torch.testing.assert_close(plain.weight, scaled.weight)


def test_scale_of_a_run_that_had_none_is_that_of_a_fresh_start() -> None:
    without = Updater(build_optimizer(linear(), CONFIG), CONFIG, "fp32", CPU)
    scaled = Updater(build_optimizer(linear(), CONFIG), CONFIG, "fp16", CPU)
    for name, tensor in without.state_dict().items():
        scaled.state_dict()[name].copy_(tensor)
    assert float(scaled.scale) == INITIAL_LOSS_SCALE
    scaled.scale.fill_(8.0)
    for name, tensor in scaled.state_dict().items():
        without.state_dict()[name].copy_(tensor)
    assert float(without.scale) == 1.0
