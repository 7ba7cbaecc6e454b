"""Names in a training state."""

import pytest
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from elasticqa.distributed.topology import Topology
from elasticqa.training.app_state import ModelState
from tests.support.ranks import run_on_ranks


def names_before_and_after_a_load(_: Topology) -> list[list[str]]:
    state = ModelState(DistributedDataParallel(nn.Linear(2, 1)))
    before = list(state.state_dict())
    state.load_state_dict(state.state_dict())
    return [before, list(state.state_dict())]


@pytest.mark.slow
def test_load_keeps_names_that_do_not_depend_on_ddp() -> None:
    assert run_on_ranks(1, names_before_and_after_a_load) == [[["weight", "bias"]] * 2]
