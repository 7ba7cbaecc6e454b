"""The trained model in Hugging Face form."""

import shutil
from pathlib import Path

from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from elasticqa.topology import Topology

_PREFIX = "model."
"""Where QuestionAnswerer keeps the transformers model."""


def save_pretrained(
    model: nn.Module, bare: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, directory: Path, topology: Topology
) -> None:
    """Write model and tokenizer so that ``from_pretrained`` reads them; every rank must call this.

    Args:
        model: as wrapped; its parameters may be sharded.
        bare: the transformers model inside, whose configuration is written.
        tokenizer: of that model.
        directory: replaced if it exists.
        topology: rank 0 writes.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if not topology.is_main:
        return
    temporary = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    bare.save_pretrained(
        temporary, state_dict={name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
    )
    tokenizer.save_pretrained(temporary)
    shutil.rmtree(directory, ignore_errors=True)
    temporary.rename(directory)
