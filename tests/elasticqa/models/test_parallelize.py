"""A parallelized model computes the same as on one rank, and sharding divides its memory."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elasticqa.config.train_config import Parallel
from elasticqa.data.micro_batch import pack
from elasticqa.distributed.shards import local_part
from elasticqa.distributed.topology import Topology
from elasticqa.errors import ConfigError
from elasticqa.models.parallelize import free_gathered_weights, parallelize, set_gradient_sync
from elasticqa.models.question_answering import checkpoint_activations, encoder_layers, feature_losses
from tests.support.models import tiny
from tests.support.ranks import run_on_ranks
from tests.support.train_steps import FEATURES, losses, new_train_step

ALONE = Topology.from_env({})


def training_losses(topology: Topology, parallel: Parallel) -> list[float]:
    return losses(new_train_step(topology, parallel), range(4))


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "world_size"), [("ddp", 2), ("ddp", 3), ("fsdp", 1), ("fsdp", 2), ("fsdp", 3)])
def test_losses_of_parallel_ranks_equal_those_of_one_process(parallel: Parallel, world_size: int) -> None:
    expected = training_losses(ALONE, "none")
    assert expected[0] > expected[3] + 0.1
    for found in run_on_ranks(world_size, training_losses, parallel):
        assert found == pytest.approx(expected, abs=1e-5)


def local_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(local_part(tensor).nbytes for tensor in tensors)


def bytes_while_training(topology: Topology, parallel: Parallel) -> list[int]:
    trained = new_train_step(topology, parallel)
    sizes = [local_bytes(trained.model.parameters())]
    losses(trained, range(1))
    states = trained.optimizer.state_dict()["state"].values()
    return [*sizes, local_bytes(trained.model.parameters()), local_bytes(state["exp_avg"] for state in states)]


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3])
def test_sharded_rank_stores_its_share_of_parameters_and_moments(world_size: int) -> None:
    whole = local_bytes(tiny("bert", "packed").parameters())
    ranks = run_on_ranks(world_size, bytes_while_training, "fsdp")
    assert max(size for sizes in ranks for size in sizes) <= 1.05 / world_size * whole
    assert [sum(sizes) for sizes in zip(*ranks, strict=True)] == [whole] * 3


@pytest.mark.slow
def test_replicated_rank_stores_all_parameters_and_moments() -> None:
    whole = local_bytes(tiny("bert", "packed").parameters())
    assert run_on_ranks(2, bytes_while_training, "ddp") == [[whole] * 3] * 2


def test_single_process_gets_the_model_itself() -> None:
    model = nn.Linear(1, 1)
    assert parallelize(model, "none", ALONE, "fp32") is model
    assert parallelize(model, "ddp", ALONE, "fp32") is model


def test_encoder_layers_are_the_longest_module_list() -> None:
    many = [nn.Linear(1, 1), nn.ReLU()]
    model = nn.ModuleDict({"few": nn.ModuleList([nn.Linear(1, 1)]), "many": nn.ModuleList(many)})
    assert encoder_layers(model) == many
    with pytest.raises(ConfigError, match="no list of layers"):
        encoder_layers(nn.Linear(1, 1))


def gradients_of_two_passes(topology: Topology) -> list[float]:
    """Return the gradient of a weight after a pass without and after a pass with gradient sync."""
    torch.manual_seed(0)
    model = parallelize(nn.Linear(1, 1, bias=False), "ddp", topology, "fp32")
    gradients = []
    for is_last in (False, True):
        set_gradient_sync(model, is_last)
        model(torch.tensor([[1.0 + topology.rank]])).sum().backward()
        gradients += [float(p.grad) for p in model.parameters() if p.grad is not None]
    return gradients


@pytest.mark.slow
def test_gradients_are_reduced_only_in_passes_with_gradient_sync() -> None:
    assert run_on_ranks(2, gradients_of_two_passes) == [[1.0, 3.0], [2.0, 3.0]]


def outputs_around_an_unseen_update(topology: Topology) -> list[float]:
    """Return the logits' sums of a model that keeps gathered weights, while its shards are changed after each pass."""
    model = parallelize(tiny("bert", "packed"), "fsdp", topology, "fp32", is_resharded=False).eval()
    shards = [local_part(parameter) for parameter in model.parameters()]
    batch = pack(FEATURES, np.arange(2))
    sums = []
    for is_freed in (False, False, True):
        if is_freed:
            free_gathered_weights(model)
        with torch.no_grad():
            sums.append(float(model(batch).sum()))
            for shard in shards:
                shard.mul_(0.5)
    return sums


@pytest.mark.slow
def test_weights_are_gathered_again_once_they_are_freed() -> None:
    for before, kept, again in run_on_ranks(2, outputs_around_an_unseen_update):
        assert kept == before
        assert abs(again - before) > 0.01 * abs(before)


def checkpointed_gradients(topology: Topology, parallel: Parallel, attention: str) -> list[tuple[float, float, int]]:
    """Return for each parameter its summed gradient without and with checkpointing, and the extra runs of a layer."""
    results: list[tuple[list[float], int]] = []
    for is_on in (False, True):
        model = tiny("bert", attention)
        bare: Any = model.model
        for module in bare.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.3
        if is_on:
            checkpoint_activations(bare)
        wrapped = parallelize(model, parallel, topology, "fp32").train()
        runs = 0

        def count(*_: object) -> None:
            nonlocal runs
            runs += 1

        bare.bert.encoder.layer[0].intermediate.register_forward_hook(count)
        batch = pack(FEATURES, FEATURES.example_index.astype("int64"))
        torch.manual_seed(11)
        feature_losses(wrapped(batch), batch).sum().backward()
        sums = [
            float((p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad).double().abs().sum())
            for p in wrapped.parameters()
            if p.grad is not None
        ]
        results.append((sums, runs))
    (plain, few), (recomputed, many) = results
    return [(a, b, many - few) for a, b in zip(plain, recomputed, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["packed", "padded"])
@pytest.mark.parametrize(("parallel", "world_size"), [("ddp", 1), ("ddp", 2), ("fsdp", 2)])
def test_activation_checkpointing_recomputes_layers_with_equal_dropout(
    parallel: Parallel, world_size: int, attention: str
) -> None:
    for parameters in run_on_ranks(world_size, checkpointed_gradients, parallel, attention):
        assert len(parameters) > 30
        for plain, recomputed, more_runs in parameters:
            assert recomputed == pytest.approx(plain, rel=1e-6)
            assert more_runs == 1
        assert sum(plain for plain, _, _ in parameters) > 1
