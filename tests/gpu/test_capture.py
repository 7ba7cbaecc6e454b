"""A CUDA-graph step equals an eager step: losses, weights, dropout and skipped updates."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from elasticqa.config.train_config import Precision, TrainConfig
from elasticqa.data.micro_batch import MicroBatch, pack
from elasticqa.data.sampler import StepBatch
from elasticqa.distributed.topology import Topology
from elasticqa.errors import MicroBatchTooLargeError
from elasticqa.models.parallelize import free_gathered_weights
from elasticqa.training.graph_step import CudaGraphTrainStep
from tests.support.gpu_train_steps import FEATURES, alone, config_of, sampler_of, train_step_of
from tests.support.ranks import run_on_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # Warnings from torch.compile's own imports.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method.:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

STEPS = 50


def scalars_of(topology: Topology, config: TrainConfig, num_steps: int = STEPS) -> list[list[float]]:
    """Return the scalars of training steps; at module level, since ranks import it."""
    with ExitStack() as stack:
        train_step, plan = train_step_of(config, topology, stack)
        assert isinstance(train_step, CudaGraphTrainStep) == bool(config.cuda_graphs)
        sampler = sampler_of(config, plan, topology)
        return [
            train_step.run(sampler.step_batch(step), config.learning_rate, float(step == 7 and topology.rank == 0))
            .scalars.tolist()
            for step in range(num_steps)
        ]  # fmt: skip


def test_captured_losses_equal_eager_ones_on_the_attention_kernels_of_older_gpus() -> None:
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        eager, captured = (
            scalars_of(alone(), config_of("fp16", attention="sdpa", cuda_graphs=graphs)) for graphs in (False, True)
        )
    assert max(abs(mine[0] - other[0]) for mine, other in zip(captured, eager, strict=True)) < 1e-2


@pytest.mark.parametrize(
    ("precision", "attention", "more", "tolerance"),
    [
        ("fp32", "sdpa", {}, 1e-4),
        ("bf16", "auto", {}, 3e-2),
        ("bf16", "auto", {"compile": True}, 3e-2),
        ("bf16", "auto", {"kernels": True}, 3e-2),
        ("fp16", "auto", {}, 1e-2),
        ("fp16", "auto", {"kernels": True}, 1e-2),
        ("fp16", "sdpa", {}, 1e-2),
    ],
)
def test_captured_losses_equal_eager_ones(
    precision: Precision,
    attention: str,
    more: dict[str, bool],
    tolerance: float,
    record_property: Callable[[str, object], None],
) -> None:
    topology = alone()
    eager = scalars_of(topology, config_of(precision, attention=attention, cuda_graphs=False))
    captured = scalars_of(topology, config_of(precision, attention=attention, cuda_graphs=True, **more))
    assert eager[-1][0] < eager[0][0] - 0.03
    gaps = [abs(mine[0] - other[0]) for mine, other in zip(captured, eager, strict=True)]
    record_property("largest_gap", max(gaps))
    assert max(gaps) < tolerance
    assert [row[1] for row in captured] == [row[1] for row in eager]
    assert [row[3] for row in captured] == [row[3] for row in eager]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize(
    ("precision", "attention", "more", "tolerance"),
    [
        ("fp32", "sdpa", {}, 1e-4),
        ("bf16", "auto", {}, 3e-2),
        ("bf16", "auto", {"kernels": True}, 3e-2),
        ("fp32", "sdpa", {"parallel": "fsdp", "reshard": False}, 1e-4),
        ("bf16", "auto", {"parallel": "fsdp", "reshard": False}, 3e-2),
        ("bf16", "auto", {"parallel": "fsdp", "reshard": False, "compile": True}, 3e-2),
        ("bf16", "auto", {"parallel": "fsdp", "reshard": False, "kernels": True}, 3e-2),
        ("fp16", "auto", {"parallel": "fsdp", "reshard": False, "kernels": True}, 1e-2),
    ],
)
def test_captured_ranks_equal_one_eager_process(
    precision: Precision,
    attention: str,
    more: dict[str, object],
    tolerance: float,
    record_property: Callable[[str, object], None],
) -> None:
    eager = scalars_of(alone(), config_of(precision, attention=attention, cuda_graphs=False))
    config = config_of(precision, attention=attention, cuda_graphs=True, **more)
    first, second = run_on_ranks(2, scalars_of, config)
    assert first == second
    gaps = [abs(mine[0] - other[0]) for mine, other in zip(first, eager, strict=True)]
    record_property("largest_gap", max(gaps))
    assert max(gaps) < tolerance
    assert [step for step, row in enumerate(first) if row[1] > 0] == [7]


def losses_around_an_evaluation(topology: Topology, config: TrainConfig) -> list[float]:
    """Return losses of 20 steps with an evaluation between replays, followed by steps with and without a graph."""
    with ExitStack() as stack:
        train_step, plan = train_step_of(config, topology, stack)
        sampler = sampler_of(config, plan, topology)
        losses = []
        for step in range(20):
            if step == 14:
                with torch.no_grad():
                    train_step.model.eval()
                    train_step.model(pack(FEATURES, np.arange(2)).to(topology.device))
                    train_step.model.train()
                free_gathered_weights(train_step.model)
            losses.append(float(train_step.run(sampler.step_batch(step), 1e-3).scalars[0]))
        return losses


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_eager_step_after_an_evaluation_uses_the_newest_weights() -> None:
    sharded = {"parallel": "fsdp", "reshard": False, "attention": "sdpa"}
    eager = losses_around_an_evaluation(alone(), config_of("fp32", attention="sdpa", cuda_graphs=False))
    for losses in run_on_ranks(2, losses_around_an_evaluation, config_of("fp32", cuda_graphs=True, **sharded)):
        assert losses == pytest.approx(eager, abs=1e-4)


@pytest.fixture(params=[False, True], ids=["plain", "kernels"])
def graph_step(request: pytest.FixtureRequest) -> Iterator[tuple[CudaGraphTrainStep, StepBatch]]:
    """Return a CUDA-graph step with dropout, and the batch of a step."""
    config = config_of("bf16", dropout=0.1, cuda_graphs=True, kernels=request.param)
    with ExitStack() as stack:
        built, plan = train_step_of(config, alone(), stack)
        assert isinstance(built, CudaGraphTrainStep)
        yield built, sampler_of(config, plan, alone()).step_batch(0)


def test_dropout_of_a_replay_depends_on_the_step(graph_step: tuple[CudaGraphTrainStep, StepBatch]) -> None:
    built, step_batch = graph_step
    others = [replace(step_batch, step=step) for step in (1, 2)]
    losses = [built.run(each, 0.0).scalars[0].item() for each in [step_batch, *others, step_batch, others[1]]]
    # The flash kernel's backward pass sums in no fixed order, but with a learning rate of 0 no weight changes.
    assert losses[0] == losses[3]
    assert losses[2] == losses[4]
    assert len(set(losses)) == 3


def test_capture_does_not_change_weights(graph_step: tuple[CudaGraphTrainStep, StepBatch]) -> None:
    built, step_batch = graph_step
    before = [parameter.detach().clone() for parameter in built.model.parameters()]
    assert built.run(step_batch, 0.0).is_warmup
    for parameter, other in zip(built.model.parameters(), before, strict=True):
        assert torch.equal(parameter, other)
    steps = {float(state["step"]) for state in built.optimizer.state.values()}
    assert steps == {1.0}
    assert not built.run(step_batch, 0.0).is_warmup


def test_replay_skips_the_update_if_the_loss_is_not_finite(graph_step: tuple[CudaGraphTrainStep, StepBatch]) -> None:
    built, step_batch = graph_step
    built.run(step_batch, 1e-3)
    weight = next(built.model.parameters())
    healthy = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("inf"))
    before = [parameter.detach().clone() for parameter in built.model.parameters()]
    loss, _, norm, _ = built.run(step_batch, 1e-3).scalars.tolist()
    assert not math.isfinite(loss) or not math.isfinite(norm)
    for parameter, other in zip(built.model.parameters(), before, strict=True):
        assert torch.equal(parameter, other)
    with torch.no_grad():
        weight.copy_(healthy)
    assert math.isfinite(built.run(step_batch, 1e-3).scalars[0].item())


def test_replay_uses_the_learning_rate_and_keeps_the_form_of_the_optimizer_state(
    graph_step: tuple[CudaGraphTrainStep, StepBatch],
) -> None:
    built, step_batch = graph_step
    built.run(step_batch, 0.0)
    bias = next(p for p in built.model.parameters() if p.ndim == 1)
    before = bias.detach().clone()
    built.run(step_batch, 0.0)
    assert torch.equal(bias, before)
    built.run(step_batch, 1e-3)
    assert not torch.equal(bias, before)
    for group in built.optimizer.param_groups:
        assert isinstance(group["lr"], float)
        assert not group["capturable"]


def test_step_out_of_memory_frees_graphs_and_runs_in_half_micro_batches(
    record_property: Callable[[str, object], None],
) -> None:
    topology, config = alone(), config_of("bf16", cuda_graphs=True)
    with ExitStack() as stack:
        built, plan = train_step_of(config, topology, stack)
        sampler = sampler_of(config, plan, topology)
        first = sampler.step_batch(0)
        expected = built.run(first, 0.0).scalars[0].item()
    with ExitStack() as stack:
        built, plan = train_step_of(config, topology, stack)
        assert isinstance(built, CudaGraphTrainStep)
        most = built.num_tokens(first) - 1

        def check(_: torch.nn.Module, arguments: tuple[MicroBatch], __: torch.Tensor) -> None:
            if len(arguments[0].input_ids) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")

        built.model.register_forward_hook(check)
        with pytest.raises(MicroBatchTooLargeError):
            built.run(first, 0.0)
        assert sampler.halve_micro_batches(first) == 4
        loss = built.run(sampler.step_batch(0), 0.0).scalars[0].item()
    record_property("gap", abs(loss - expected))
    assert loss == pytest.approx(expected, abs=3e-2)


@pytest.mark.parametrize("graphs", [False, True])
def test_prefetched_batches_give_equal_losses(graphs: bool) -> None:
    topology, config = alone(), config_of("bf16", cuda_graphs=graphs)
    runs = []
    for is_prefetching in (False, True):
        with ExitStack() as stack:
            built, plan = train_step_of(config, topology, stack)
            sampler = sampler_of(config, plan, topology)
            if is_prefetching:
                built.prefetch(sampler)
            outputs = []
            for step in range(12):
                output = built.run(sampler.step_batch(step), 0.0)
                outputs.append((output.scalars[0].item(), output.fed_ids))
            runs.append(outputs)
    assert runs[0] == runs[1]
