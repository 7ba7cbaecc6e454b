"""SQuAD features as padded batches for models of transformers: to the full length, or to the longest of a batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks.support.setup import MAX_LENGTH
from elasticqa.data.squad.features import Features

Batch = dict[str, Tensor]
MULTIPLE = 8
"""Lengths of batches are multiples of this, which suits the GPU's matrix units."""


class PaddedDataset(Dataset[Batch]):
    """Builds a whole batch at once, so that no collator spends time per row."""

    def __init__(self, features: Features, *, is_padded: bool, order: NDArray[np.integer] | None = None) -> None:
        """Wrap features without a copy.

        Args:
            features: memory-mapped, so that data loader workers share them.
            is_padded: pad to the full length, else to the longest feature of a batch.
            order: index of the feature of each row; default: all features in order.
        """
        self._features = features
        self._is_padded = is_padded
        self._order = np.arange(len(features)) if order is None else np.asarray(order)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Batch:
        return {name: values[0] for name, values in self.__getitems__([index]).items()}

    def __getitems__(self, rows: Sequence[int]) -> Batch:
        """Return the batch of these rows."""
        features = self._features
        indices = self._order[np.asarray(rows)]
        begins = features.offsets[indices]
        lengths = features.offsets[indices + 1] - begins
        longest = MAX_LENGTH if self._is_padded else -(-int(lengths.max()) // MULTIPLE) * MULTIPLE
        places = np.arange(longest)
        mask = places < lengths[:, None]
        tokens = features.input_ids[np.where(mask, begins[:, None] + places, 0)]
        is_second = mask & (places >= features.segment_start[indices][:, None])
        columns = {
            "input_ids": np.where(mask, tokens, 0),
            "attention_mask": mask,
            "token_type_ids": is_second,
            "start_positions": features.start_position[indices],
            "end_positions": features.end_position[indices],
        }
        return {name: torch.from_numpy(column.astype(np.int64)) for name, column in columns.items()}


def identity_collator(batch: Any) -> Any:
    """Return the batch that `PaddedDataset` built."""
    return batch
