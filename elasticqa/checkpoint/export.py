"""The trained model in Hugging Face form."""

import shutil
from pathlib import Path

from safetensors import SafetensorError
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from elasticqa.distributed.topology import Topology
from elasticqa.errors import CheckpointError

_PREFIX = "model."
"""Name of the transformers model inside QuestionAnswerer."""


def save_pretrained(
    model: nn.Module,
    pretrained: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    topology: Topology,
) -> None:
    """Write model and tokenizer so that ``from_pretrained`` reads them; every rank must call this.

    Args:
        model: parallelized; its parameters may be sharded.
        pretrained: the transformers model inside, whose configuration is written.
        tokenizer: of that model.
        directory: replaced if it exists.
        topology: of this attempt; rank 0 writes.

    Raises:
        CheckpointError: on every rank, if rank 0 could not write; ``directory`` is then unchanged.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    problem = None
    if topology.is_main:
        temporary = directory.with_name(f".{directory.name}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            pretrained.save_pretrained(
                temporary, state_dict={name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
            )
            tokenizer.save_pretrained(temporary)
            _share(temporary)
            shutil.rmtree(directory, ignore_errors=True)
            temporary.rename(directory)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            problem = " ".join(str(error).split())
    problem = topology.first_value(problem)
    if problem is not None:
        raise CheckpointError(
            f"model {directory} could not be written: {problem}; free some space and start again: the run resumes from "
            "its last checkpoint"
        )


def _share(directory: Path) -> None:
    """Give the weights the permissions of the other files: safetensors makes them private."""
    mode = (directory / "config.json").stat().st_mode
    for path in directory.iterdir():
        path.chmod(mode)
