"""A captured step is an eager step: losses, weights, dropout, and what is skipped."""

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
from elasticqa.errors import DoesNotFitError
from elasticqa.models.parallelize import free_gathered_weights
from elasticqa.training.graph_step import CudaGraphTrainStep
from tests.support.gpu_engines import FEATURES, alone, config_of, engine_of, sampler_of
from tests.support.ranks import run_on_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # Of torch.compile's own imports.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method.:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

STEPS = 50


def figures_of(topology: Topology, config: TrainConfig, num_steps: int = STEPS) -> list[list[float]]:
    """Return the figures of training steps; a function of a module, since ranks import it."""
    with ExitStack() as stack:
        engine, plan = engine_of(config, topology, stack)
        assert isinstance(engine, CudaGraphTrainStep) == bool(config.cuda_graphs)
        sampler = sampler_of(config, plan, topology)
        return [
            engine.run(sampler.step_batch(step), config.learning_rate, float(step == 7 and topology.rank == 0))
            .scalars.tolist()
            for step in range(num_steps)
        ]  # fmt: skip


def test_captured_losses_equal_eager_ones_on_the_kernels_that_a_gpu_older_than_8_0_has() -> None:
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        eager, captured = (
            figures_of(alone(), config_of("fp16", attention="sdpa", cuda_graphs=graphs)) for graphs in (False, True)
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
    eager = figures_of(topology, config_of(precision, attention=attention, cuda_graphs=False))
    captured = figures_of(topology, config_of(precision, attention=attention, cuda_graphs=True, **more))
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
    eager = figures_of(alone(), config_of(precision, attention=attention, cuda_graphs=False))
    config = config_of(precision, attention=attention, cuda_graphs=True, **more)
    first, second = run_on_ranks(2, figures_of, config)
    assert first == second
    gaps = [abs(mine[0] - other[0]) for mine, other in zip(first, eager, strict=True)]
    record_property("largest_gap", max(gaps))
    assert max(gaps) < tolerance
    assert [step for step, row in enumerate(first) if row[1] > 0] == [7]


def losses_around_an_evaluation(topology: Topology, config: TrainConfig) -> list[float]:
    """Return losses of two epochs with a pass without a backward pass between replays, then a step without a graph."""
    with ExitStack() as stack:
        engine, plan = engine_of(config, topology, stack)
        sampler = sampler_of(config, plan, topology)
        losses = []
        for step in range(20):
            if step == 14:
                with torch.no_grad():
                    engine.model.eval()
                    engine.model(pack(FEATURES, np.arange(2)).to(topology.device))
                    engine.model.train()
                free_gathered_weights(engine.model)
            losses.append(float(engine.run(sampler.step_batch(step), 1e-3).scalars[0]))
        return losses


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_step_without_a_graph_after_an_evaluation_sees_the_newest_weights() -> None:
    sharded = {"parallel": "fsdp", "reshard": False, "attention": "sdpa"}
    eager = losses_around_an_evaluation(alone(), config_of("fp32", attention="sdpa", cuda_graphs=False))
    for losses in run_on_ranks(2, losses_around_an_evaluation, config_of("fp32", cuda_graphs=True, **sharded)):
        assert losses == pytest.approx(eager, abs=1e-4)


@pytest.fixture(params=[False, True], ids=["plain", "kernels"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[CudaGraphTrainStep, StepBatch]]:
    """Return an engine with dropout and the plan of a step."""
    config = config_of("bf16", dropout=0.1, cuda_graphs=True, kernels=request.param)
    with ExitStack() as stack:
        built, plan = engine_of(config, alone(), stack)
        assert isinstance(built, CudaGraphTrainStep)
        yield built, sampler_of(config, plan, alone()).step_batch(0)


def test_dropout_of_a_replay_follows_from_the_step(engine: tuple[CudaGraphTrainStep, StepBatch]) -> None:
    built, plan = engine
    others = [replace(plan, step=step) for step in (1, 2)]
    losses = [built.run(each, 0.0).scalars[0].item() for each in [plan, *others, plan, others[1]]]
    # Sums of the flash kernel's backward pass have no fixed order, but with a rate of 0 no weight follows them.
    assert losses[0] == losses[3]
    assert losses[2] == losses[4]
    assert len(set(losses)) == 3


def test_capture_changes_no_weight(engine: tuple[CudaGraphTrainStep, StepBatch]) -> None:
    built, plan = engine
    before = [parameter.detach().clone() for parameter in built.model.parameters()]
    assert built.run(plan, 0.0).is_warmup
    for parameter, other in zip(built.model.parameters(), before, strict=True):
        assert torch.equal(parameter, other)
    steps = {float(state["step"]) for state in built.optimizer.state.values()}
    assert steps == {1.0}
    assert not built.run(plan, 0.0).is_warmup


def test_value_that_is_not_finite_changes_nothing_in_a_replay(engine: tuple[CudaGraphTrainStep, StepBatch]) -> None:
    built, plan = engine
    built.run(plan, 1e-3)
    weight = next(built.model.parameters())
    healthy = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("inf"))
    before = [parameter.detach().clone() for parameter in built.model.parameters()]
    loss, _, norm, _ = built.run(plan, 1e-3).scalars.tolist()
    assert not math.isfinite(loss) or not math.isfinite(norm)
    for parameter, other in zip(built.model.parameters(), before, strict=True):
        assert torch.equal(parameter, other)
    with torch.no_grad():
        weight.copy_(healthy)
    assert math.isfinite(built.run(plan, 1e-3).scalars[0].item())


def test_learning_rate_reaches_the_replay_and_the_optimizer_keeps_its_form(
    engine: tuple[CudaGraphTrainStep, StepBatch],
) -> None:
    built, plan = engine
    built.run(plan, 0.0)
    bias = next(p for p in built.model.parameters() if p.ndim == 1)
    before = bias.detach().clone()
    built.run(plan, 0.0)
    assert torch.equal(bias, before)
    built.run(plan, 1e-3)
    assert not torch.equal(bias, before)
    for group in built.optimizer.param_groups:
        assert isinstance(group["lr"], float)
        assert not group["capturable"]


def test_step_without_memory_frees_graphs_and_runs_in_halves(record_property: Callable[[str, object], None]) -> None:
    topology, config = alone(), config_of("bf16", cuda_graphs=True)
    with ExitStack() as stack:
        built, plan = engine_of(config, topology, stack)
        sampler = sampler_of(config, plan, topology)
        first = sampler.step_batch(0)
        expected = built.run(first, 0.0).scalars[0].item()
    with ExitStack() as stack:
        built, plan = engine_of(config, topology, stack)
        assert isinstance(built, CudaGraphTrainStep)
        most = built.num_tokens(first) - 1

        def check(_: torch.nn.Module, arguments: tuple[MicroBatch], __: torch.Tensor) -> None:
            if len(arguments[0].input_ids) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")

        built.model.register_forward_hook(check)
        with pytest.raises(DoesNotFitError):
            built.run(first, 0.0)
        assert sampler.halve_micro_batches(first) == 4
        loss = built.run(sampler.step_batch(0), 0.0).scalars[0].item()
    record_property("gap", abs(loss - expected))
    assert loss == pytest.approx(expected, abs=3e-2)


@pytest.mark.parametrize("graphs", [False, True])
def test_batches_made_ahead_give_the_losses_of_those_made_when_asked_for(graphs: bool) -> None:
    topology, config = alone(), config_of("bf16", cuda_graphs=graphs)
    runs = []
    for is_ahead in (False, True):
        with ExitStack() as stack:
            built, plan = engine_of(config, topology, stack)
            sampler = sampler_of(config, plan, topology)
            if is_ahead:
                built.prefetch(sampler)
            outputs = []
            for step in range(12):
                output = built.run(sampler.step_batch(step), 0.0)
                outputs.append((output.scalars[0].item(), output.fed_ids))
            runs.append(outputs)
    assert runs[0] == runs[1]
