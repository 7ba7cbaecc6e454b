"""Small train steps on the ranks of a test, with equal weights and batches for every strategy."""

from elasticqa.config.batch_plan import BatchPlan
from elasticqa.config.train_config import Parallel, Precision, TrainConfig
from elasticqa.data.sampler import Sampler
from elasticqa.distributed.topology import Topology
from elasticqa.models.parallelize import parallelize
from elasticqa.training.optimizer import Updater, build_optimizer
from elasticqa.training.train_step import TrainStep
from tests.support.models import random_features, tiny

CONFIG = TrainConfig(learning_rate=1e-2)
FEATURES = random_features((12, 3, 40, 7, 22, 31, 5, 9, 18, 2, 27))
BATCH = 4


def new_train_step(topology: Topology, parallel: Parallel, precision: Precision = "fp32") -> TrainStep:
    """Return a train step with initial weights."""
    model = parallelize(tiny("bert", "packed"), parallel, topology, precision)
    optimizer = build_optimizer(model, CONFIG)
    return TrainStep(
        topology=topology,
        features=FEATURES,
        model=model,
        optimizer=optimizer,
        updater=Updater(optimizer, CONFIG, precision, topology.device),
        precision=precision,
        seed=1,
    )


def losses(train_step: TrainStep, steps: range) -> list[float]:
    """Return the losses of steps, numbered from 0; an epoch has 3 steps, and the last of them has 3 features."""
    sampler = Sampler(
        BatchPlan(len(FEATURES), BATCH, 3, 1000),
        FEATURES.lengths,
        seed=1,
        rank=train_step.topology.rank,
        world_size=train_step.topology.world_size,
        micro_batch_size=2,
    )
    return [float(train_step.run(sampler.step_batch(step), CONFIG.learning_rate).scalars[0]) for step in steps]
