"""The named parts of a training state that a checkpoint saves and loads."""

from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from elasticqa.distributed.shards import local_part
from elasticqa.training.progress import Progress
from elasticqa.training.train_step import TrainStep


def app_state_of(train_step: TrainStep, progress: Progress | None = None) -> dict[str, Stateful]:
    """Return the parts of a training state by the names they have in checkpoints."""
    parts: dict[str, Stateful] = {
        "model": ModelState(train_step.model),
        "optimizer": OptimizerState(train_step.model, train_step.optimizer),
        "extra.updater": train_step.updater,
    }
    return parts if progress is None else {**parts, "progress": progress}


class ModelState:
    """Parameters by names that are the same under DDP, FSDP and torch.compile."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._parameters: list[Tensor] = []
        self._state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the parameters, not copied; names are cached, since looking them up takes milliseconds."""
        parameters = [local_part(parameter) for parameter in self._model.parameters()]
        if not _is_same(parameters, self._parameters):
            self._state = get_model_state_dict(self._model)
            self._parameters = parameters
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load parameters that `state_dict` returned."""
        # Copy the dict: torch renames its keys for a DDP model, and ``state`` may be the cached ``self._state``.
        set_model_state_dict(self._model, dict(state))


class OptimizerState:
    """Moments and parameter groups by the names of the parameters; torch creates moments that do not exist yet."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._moments: list[Tensor] = []
        self._state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state without copying its tensors; names are cached as in `ModelState`."""
        if not self._moments or not _is_same(self._current_moments(), self._moments):
            self._state = get_optimizer_state_dict(self._model, self._optimizer)
            self._moments = self._current_moments()
        groups = [
            {**named, **{name: value for name, value in group.items() if name != "params"}}
            for named, group in zip(self._state["param_groups"], self._optimizer.param_groups, strict=True)
        ]
        return {**self._state, "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `state_dict` returned."""
        set_optimizer_state_dict(self._model, self._optimizer, state)

    def _current_moments(self) -> list[Tensor]:
        values = [value for state in self._optimizer.state.values() for value in state.values()]
        return [local_part(value) for value in values if isinstance(value, Tensor)]


def _is_same(ones: list[Tensor], others: list[Tensor]) -> bool:
    return len(ones) == len(others) and all(
        one.data_ptr() == other.data_ptr() and one.shape == other.shape for one, other in zip(ones, others, strict=True)
    )
