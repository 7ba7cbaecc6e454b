"""The optimizations that a run uses on a CPU; those of a GPU are tested in tests/gpu."""

import pytest
import torch
from torch import nn

from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.errors import ConfigError
from elasticqa.models.acceleration import Acceleration, check_ranks_agree, choose_acceleration, compile_layers
from tests.support.models import tiny
from tests.support.ranks import run_on_ranks

MODEL = tiny("bert", "packed")


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch) -> Topology:
    """Return the topology of a single process on the CPU, even on a machine with GPUs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    return Topology.from_env({})


def test_cpu_uses_no_optimization_by_default(topology: Topology) -> None:
    taken = choose_acceleration(TrainConfig(), topology, MODEL, "fp32", num_steps=10_000)
    assert taken == Acceleration("sdpa", is_compiled=False, is_captured=False, is_fused=False, is_resharded=False)
    padded = tiny("bert", "padded")
    assert choose_acceleration(TrainConfig(), topology, padded, "fp32", num_steps=1).attention == "padded"


@pytest.mark.parametrize(("reshard", "expected"), [(None, True), (True, True), (False, False)])
def test_fsdp_on_a_cpu_frees_gathered_weights_by_default(
    reshard: bool | None, expected: bool, topology: Topology
) -> None:
    config = TrainConfig(parallel="fsdp", reshard=reshard)
    assert choose_acceleration(config, topology, MODEL, "fp32", num_steps=1).is_resharded is expected


def test_layers_are_compiled_on_request(topology: Topology) -> None:
    assert choose_acceleration(TrainConfig(compile=True), topology, MODEL, "fp32", num_steps=1).is_compiled


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig(cuda_graphs=True), "cuda_graphs=True does not work with a CPU; leave --cuda-graphs out"),
        (TrainConfig(kernels=True), "kernels=True does not work with this device, precision or model"),
    ],
)
def test_optimization_that_does_not_fit_the_device_is_refused(
    config: TrainConfig, message: str, topology: Topology
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        choose_acceleration(config, topology, MODEL, "fp32", num_steps=1)
    assert "\n" not in str(caught.value)


def refusal_of_ranks(topology: Topology, is_mixed: bool) -> str:
    is_captured = is_mixed and topology.rank == 1
    taken = Acceleration("flash", is_compiled=False, is_captured=is_captured, is_fused=False, is_resharded=False)
    try:
        check_ranks_agree(topology, "bf16" if is_captured else "fp16", taken)
    except ConfigError as error:
        return str(error)
    return "equal"


@pytest.mark.slow
def test_ranks_with_different_optimizations_are_refused() -> None:
    assert run_on_ranks(2, refusal_of_ranks, False) == ["equal", "equal"]
    for message in run_on_ranks(2, refusal_of_ranks, True):
        assert (
            "rank 0 would compute in fp16, flash, and rank 1 in bf16, flash, captured: use nodes with equal" in message
        )


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method.:DeprecationWarning")
def test_compiled_layers_keep_the_names_of_their_weights() -> None:
    model: nn.Module = tiny("bert", "packed")
    names = list(model.state_dict())
    compile_layers(model)
    assert list(model.state_dict()) == names
