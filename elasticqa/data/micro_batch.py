"""The tensors of one forward pass: features concatenated without padding."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elasticqa.data.squad.features import Features

Indices = NDArray[np.int64]

NO_FEATURES: Indices = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class MicroBatch:
    """B features of T tokens in total, concatenated without padding; L is the length of the longest.

    Attributes:
        feature_ids: (B,) index of each feature; -1 for a placeholder.
        input_ids, position_ids, token_type_ids: (T,); positions start at 0 in each feature.
        cu_lengths: (B + 1,) int32, offset of each feature; the last entry is T.
        start_positions, end_positions: (B,) token index within the feature.
        weights: (B,) weight in the loss: 1 for a feature, 0 for a placeholder.
        pad_index: (B, L) index of the token at each position of the padded batch. Padding positions point to the
            following tokens: if all pointed to one token, the backward pass would add all (zero) gradients at one
            address, which is slow.
        unpad_index: (T,) index of each token in the flattened padded batch.
        mask: (B, L) True at real tokens.
    """

    feature_ids: torch.Tensor
    input_ids: torch.Tensor
    position_ids: torch.Tensor
    token_type_ids: torch.Tensor
    cu_lengths: torch.Tensor
    start_positions: torch.Tensor
    end_positions: torch.Tensor
    weights: torch.Tensor
    pad_index: torch.Tensor
    unpad_index: torch.Tensor
    mask: torch.Tensor

    @property
    def max_length(self) -> int:
        """L, the number of tokens of the longest feature."""
        return self.mask.shape[1]

    def fed_ids(self) -> list[int]:
        """Return the indices of the features in this batch, without placeholders."""
        return [index for index in self.feature_ids.tolist() if index >= 0]

    def pinned(self) -> "MicroBatch":
        """Return the batch in page-locked memory, which a GPU can copy asynchronously."""
        return MicroBatch(**{name: value.pin_memory() for name, value in vars(self).items()})

    def to(self, device: torch.device) -> "MicroBatch":
        """Return the batch on the device; the copy is asynchronous."""
        if device.type == "cpu":
            return self
        moved = {name: value.pin_memory().to(device, non_blocking=True) for name, value in vars(self).items()}
        return MicroBatch(**moved)


def pack(features: Features, indices: Indices) -> MicroBatch:
    """Return the features with these indices as one micro-batch.

    Without indices the micro-batch holds feature 0 as a placeholder of weight 0, since all ranks run the same number
    of forward passes.
    """
    chosen = indices if len(indices) else np.zeros(1, dtype=np.int64)
    begins, ends = features.offsets[chosen], features.offsets[chosen + 1]
    lengths = (ends - begins).astype(np.int64)
    cu_lengths = np.concatenate([[0], np.cumsum(lengths)])
    position_ids = np.arange(cu_lengths[-1]) - np.repeat(cu_lengths[:-1], lengths)
    flat = np.repeat(begins, lengths) + position_ids
    longest = int(lengths.max())
    columns = np.arange(longest)
    row_of_token = np.repeat(np.arange(len(chosen)), lengths)
    return MicroBatch(
        feature_ids=torch.from_numpy(chosen if len(indices) else np.full(1, -1, dtype=np.int64)),
        input_ids=torch.from_numpy(features.input_ids[flat].astype(np.int64)),
        position_ids=torch.from_numpy(position_ids),
        token_type_ids=torch.from_numpy(
            (position_ids >= np.repeat(features.segment_start[chosen], lengths)).astype(np.int64)
        ),
        cu_lengths=torch.from_numpy(cu_lengths.astype(np.int32)),
        start_positions=torch.from_numpy(features.start_position[chosen].astype(np.int64)),
        end_positions=torch.from_numpy(features.end_position[chosen].astype(np.int64)),
        weights=torch.full((len(chosen),), 1.0 if len(indices) else 0.0),
        pad_index=torch.from_numpy((cu_lengths[:-1, None] + columns) % cu_lengths[-1]),
        unpad_index=torch.from_numpy(row_of_token * longest + position_ids),
        mask=torch.from_numpy(columns < lengths[:, None]),
    )
