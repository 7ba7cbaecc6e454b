"""Groups in which the page of a run shows the recorded config; add a new option here."""

from collections.abc import Mapping
from typing import Any

_GROUPS = {
    "Model and data": (
        "recipe model dataset eval_file strict max_train_features max_eval_examples max_length doc_stride "
        "max_answer_length"
    ),
    "Learning": (
        "epochs max_steps global_batch_size learning_rate weight_decay warmup_ratio max_grad_norm dropout seed"
    ),
    "Speed and memory": (
        "parallel precision attention micro_batch_size activation_checkpointing compile cuda_graphs kernels reshard"
    ),
}
OTHER = "Other settings"


def group_config(config: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return (group, [(setting, value)]) of every recorded setting; settings of no group come last.

    >>> group_config({"new": True, "seed": 1})
    [('Learning', [('seed', 1)]), ('Other settings', [('new', True)])]
    """
    groups = {title: names.split() for title, names in _GROUPS.items()}
    groups[OTHER] = sorted(set(config).difference(*groups.values()))
    found = [(title, [(name, config[name]) for name in names if name in config]) for title, names in groups.items()]
    return [(title, settings) for title, settings in found if settings]
