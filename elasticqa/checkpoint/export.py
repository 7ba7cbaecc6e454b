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

    ``pretrained`` is the transformers model inside ``model``, whose configuration is written. Replaces ``directory``.

    Raises:
        CheckpointError: on every rank, if rank 0 could not write; ``directory`` is then unchanged.
    """
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    problem = None
    if topology.is_main:
        temporary = directory.with_name(f".{directory.name}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            weights = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
            pretrained.save_pretrained(temporary, state_dict=weights)
            tokenizer.save_pretrained(temporary)
            # The weights get the permissions of the other files: safetensors makes them private.
            mode = (temporary / "config.json").stat().st_mode
            for path in temporary.iterdir():
                path.chmod(mode)
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
