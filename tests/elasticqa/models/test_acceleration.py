"""Which shortcuts a run takes; what needs a GPU is in tests/gpu."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from elasticqa.config.train_config import TrainConfig
from elasticqa.distributed.topology import Topology
from elasticqa.errors import ConfigError
from elasticqa.models.acceleration import Acceleration, accelerate, check_equal, compile_layers
from tests.support.models import tiny
from tests.support.processes import run_python
from tests.support.ranks import run_on_ranks

MODEL = tiny("bert", "packed")


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch) -> Topology:
    """Return that of a single process on the CPU, whatever this machine has."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    return Topology.from_env({})


def test_cpu_takes_no_shortcut_by_itself(topology: Topology) -> None:
    taken = accelerate(TrainConfig(), topology, MODEL, "fp32", num_steps=10_000)
    assert taken == Acceleration("sdpa", is_compiled=False, is_captured=False, is_fused=False, is_resharded=False)
    padded = tiny("bert", "padded")
    assert accelerate(TrainConfig(), topology, padded, "fp32", num_steps=1).attention == "padded"


@pytest.mark.parametrize(("reshard", "expected"), [(None, True), (True, True), (False, False)])
def test_fsdp_on_a_cpu_frees_gathered_weights_unless_told_not_to(
    reshard: bool | None, expected: bool, topology: Topology
) -> None:
    config = TrainConfig(parallel="fsdp", reshard=reshard)
    assert accelerate(config, topology, MODEL, "fp32", num_steps=1).is_resharded is expected


def test_layers_are_compiled_where_that_is_asked_for(topology: Topology) -> None:
    assert accelerate(TrainConfig(compile=True), topology, MODEL, "fp32", num_steps=1).is_compiled


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig(cuda_graphs=True), "cuda_graphs=True does not fit a CPU; leave --cuda-graphs out"),
        (TrainConfig(kernels=True), "kernels=True does not fit this device, precision or model"),
    ],
)
def test_shortcut_that_the_device_cannot_take_is_refused(config: TrainConfig, message: str, topology: Topology) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        accelerate(config, topology, MODEL, "fp32", num_steps=1)
    assert "\n" not in str(caught.value)


def refusal_of_ranks(topology: Topology, is_mixed: bool) -> str:
    is_captured = is_mixed and topology.rank == 1
    taken = Acceleration("flash", is_compiled=False, is_captured=is_captured, is_fused=False, is_resharded=False)
    try:
        check_equal(topology, "bf16" if is_captured else "fp16", taken)
    except ConfigError as error:
        return str(error)
    return "equal"


@pytest.mark.slow
def test_ranks_that_would_not_compute_alike_are_refused() -> None:
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


@pytest.mark.parametrize("said", [None, "/somewhere/else"])
def test_compiled_code_is_kept_in_the_home_though_torch_has_a_default(said: str | None, tmp_path: Path) -> None:
    program = (
        "import os, sys, torch._dynamo, torch._inductor.codecache; from pathlib import Path\n"
        "from torch._inductor.runtime.cache_dir_utils import cache_dir\n"
        "from elasticqa.models.acceleration import keep_compiled\n"
        "cache_dir(); keep_compiled(Path(sys.argv[1]))\n"
        "print(cache_dir(), os.environ['TRITON_CACHE_DIR'])"
    )
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    environ |= {name: os.fspath(tmp_path / said[1:]) for name in names} if said else {}
    done = run_python("-c", program, tmp_path, env=environ)
    assert done.returncode == 0, done.stderr
    expected = [tmp_path / said[1:]] * 2 if said else [tmp_path / "compiled", tmp_path / "triton"]
    assert done.stdout.split() == [os.fspath(path) for path in expected]
