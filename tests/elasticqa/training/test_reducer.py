"""Gradients are averaged over the ranks during the backward pass, and only there."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elasticqa.distributed.topology import Topology
from elasticqa.training.reducer import GradientReducer
from tests.support.ranks import run_on_ranks

WIDTH = 8
Gradients = list[list[float] | None]


def model_of() -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(5)), nn.Linear(WIDTH, 1))
    model[1].bias.requires_grad_(False)
    return model


def loss_of(model: nn.Module, rank: int) -> Tensor:
    torch.manual_seed(100 + rank)
    values = torch.randn(4, WIDTH)
    # The third layer is left out: its gradients never come.
    for number in (0, 1, 3, 4, 5):
        values = model[number](values)  # type: ignore[index]
    return values.square().mean()


def gradients(model: nn.Module) -> Gradients:
    return [None if p.grad is None else p.grad.flatten().tolist() for p in model.parameters()]


def gradients_of_ranks(topology: Topology, bucket_bytes: int) -> list[Gradients]:
    """Return gradients without reduction, with it, and without it again."""
    model = model_of()
    reducer = GradientReducer(list(model.parameters()), bucket_bytes=bucket_bytes)
    results = []
    for is_reduced in (False, True, True, False):
        model.zero_grad()
        loss = loss_of(model, topology.rank)
        if is_reduced:
            with reducer.during_backward():
                loss.backward()
        else:
            loss.backward()
        results.append(gradients(model))
    return results


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("bucket_bytes", [1, 300, 10**9])
def test_gradients_are_the_means_over_the_ranks(world_size: int, bucket_bytes: int) -> None:
    alone = []
    for rank in range(world_size):
        model = model_of()
        loss_of(model, rank).backward()
        alone.append(gradients(model))
    for rank, results in enumerate(run_on_ranks(world_size, gradients_of_ranks, bucket_bytes)):
        before, first, second, after = results
        assert before == after == alone[rank]
        assert first == second
        for found, *parts in zip(first, *alone, strict=True):
            if parts[0] is None:
                assert found is None
            else:
                expected = torch.tensor(parts).mean(0).tolist()
                assert found == pytest.approx(expected, abs=1e-6)


class _Fails(torch.autograd.Function):
    """Passes a value on, and has no gradient."""

    @staticmethod
    def forward(_: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")


def gradient_sent_before_an_error(topology: Topology) -> tuple[int, float]:
    """Return how many reductions are pending after an error in the pass, and the gradient that was sent before it."""
    last = nn.Linear(1, 1, bias=False)
    first = nn.Linear(1, 1)
    reducer = GradientReducer([*first.parameters(), *last.parameters()], bucket_bytes=1)
    value = torch.full((1, 1), 1.0 + topology.rank)
    with pytest.raises(torch.OutOfMemoryError), reducer.during_backward():
        last(_Fails.apply(first(value)) * 0 + value).sum().backward()  # type: ignore[no-untyped-call]
    assert last.weight.grad is not None
    return len(reducer._works), float(last.weight.grad)


@pytest.mark.slow
def test_error_in_the_backward_pass_leaves_no_reduction_pending() -> None:
    assert run_on_ranks(2, gradient_sent_before_an_error) == [(0, 1.5), (0, 1.5)]


def failing_backward(topology: Topology) -> bool:
    model = model_of()
    reducer = GradientReducer(list(model.parameters()))
    with pytest.raises(ZeroDivisionError), reducer.during_backward():
        raise ZeroDivisionError
    loss_of(model, topology.rank).backward()
    return True


@pytest.mark.slow
def test_error_in_the_backward_pass_ends_the_reduction() -> None:
    assert run_on_ranks(2, failing_backward) == [True, True]
