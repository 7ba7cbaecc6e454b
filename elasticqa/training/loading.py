"""Data and model of a run, loaded and checked before anything is written."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from transformers import PreTrainedModel

from elasticqa.config.train_config import TrainConfig
from elasticqa.data.hub import model_digest, resolve_model
from elasticqa.data.task import Task, load_task
from elasticqa.distributed.topology import Topology, check_parallel, resolve_precision
from elasticqa.models.question_answering import QuestionAnswerer, load_model
from elasticqa.run.home import home
from elasticqa.training.startup_timer import StartupTimer


@dataclass(frozen=True)
class Loaded:
    """Data and model of a run.

    ``pretrained`` is the transformers model; ``answerer`` wraps it for training.
    """

    task: Task
    pretrained: PreTrainedModel
    answerer: QuestionAnswerer
    digests: dict[str, str]
    """SHA-256 of the content of `dataset` and `model`; the latter on rank 0 only."""


def load(config: TrainConfig, topology: Topology, timer: StartupTimer) -> Loaded:
    """Return the data and the model that a config names; every rank must call this.

    Raises:
        ConfigError: strategy or precision do not fit the processes and devices, or the model cannot be loaded.
        DataError: a data file breaks its format.
    """
    check_parallel(config.parallel, topology.world_size, is_distributed=topology.is_distributed)
    resolve_precision(config.precision, topology.device)
    with ThreadPoolExecutor(1, "digest") as beside:
        digest_of_model = beside.submit(model_digest, config.model) if topology.is_main else None
        task = load_task(config, home())
        timer.end("features")
        pretrained, spec = load_model(resolve_model(config.model), config)
        answerer = QuestionAnswerer(pretrained, spec)
    digests = {"dataset": task.facts["digest"]}
    # If `load_model` has just downloaded the model, its digest can be computed only now.
    if digest_of_model is not None and (digest := digest_of_model.result() or model_digest(config.model)):
        digests["model"] = digest
    timer.end("model")
    return Loaded(task, pretrained, answerer, digests)
