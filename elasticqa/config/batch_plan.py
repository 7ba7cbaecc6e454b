"""The batch plan: steps and epochs of a run."""

from dataclasses import dataclass

from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError


@dataclass(frozen=True)
class BatchPlan:
    """Steps of a run, from its config and the number of features; independent of the world size."""

    num_train_features: int
    global_batch_size: int
    steps_per_epoch: int
    num_steps: int

    def position(self, step: int) -> tuple[int, int]:
        """Return (epoch, step within the epoch) of a step; all three count from 0."""
        return divmod(step, self.steps_per_epoch)

    def samples_seen(self, step: int) -> int:
        """Return the features consumed by the first ``step`` steps."""
        epoch, within = self.position(step)
        return epoch * self.num_train_features + min(within * self.global_batch_size, self.num_train_features)


def batch_plan(config: TrainConfig, num_train_features: int, world_size: int) -> BatchPlan:
    """Return the batch plan of a run; an unset global batch size becomes ``micro_batch_size * world_size``.

    Raises:
        ConfigError: the global batch is smaller than the world size, or there is no training feature.

    >>> batch_plan(TrainConfig(global_batch_size=4, epochs=2), num_train_features=10, world_size=3).num_steps
    6
    """
    size = config.with_global_batch_size(world_size).global_batch_size
    assert size is not None
    if size < world_size:
        raise ConfigError(
            f"global_batch_size={size} cannot feed world_size={world_size}: every rank needs a "
            f"feature; use at most {size} ranks or raise --global-batch-size"
        )
    if num_train_features == 0:
        raise ConfigError(
            f"dataset={config.dataset!r} has 0 training features: at least one answer must be in its context"
        )
    steps_per_epoch = -(-num_train_features // size)
    num_steps = steps_per_epoch * config.epochs
    if config.max_steps is not None:
        num_steps = min(num_steps, config.max_steps)
    return BatchPlan(num_train_features, size, steps_per_epoch, num_steps)
