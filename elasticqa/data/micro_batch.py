"""Features packed end to end into the tensors of one forward pass."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elasticqa.data.squad.features import Features

Indices = NDArray[np.int64]

NO_FEATURES: Indices = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class MicroBatch:
    """Features packed end to end: T tokens of B features, no padding.

    Attributes:
        feature_ids: (B,) index of each feature; -1 marks a stand-in that carries no weight.
        input_ids, position_ids, token_type_ids: (T,), position 0 is the first token of a feature.
        cu_lengths: (B + 1,) int32, where each feature begins; the last entry is T.
        start_positions, end_positions: (B,) token index within the feature.
        weights: (B,) 1 for a feature, 0 for a stand-in.
        pad_index: (B, L) which of the T tokens stands at a place of the padded batch. Where ``mask`` is False it runs
            on into the next features, so that the gradients of those places, all 0, are not added at one address.
        unpad_index: (T,) where each token stands in the flattened padded batch.
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
        """Tokens of the longest feature."""
        return self.mask.shape[1]

    def fed_ids(self) -> list[int]:
        """Return the ids of the features in this batch, as its tensors have them."""
        return [index for index in self.feature_ids.tolist() if index >= 0]

    def pinned(self) -> "MicroBatch":
        """Return the batch in page-locked memory, which a GPU reads by itself."""
        return MicroBatch(**{name: value.pin_memory() for name, value in vars(self).items()})

    def to(self, device: torch.device) -> "MicroBatch":
        """Return the batch on the device; the copy does not wait."""
        if device.type == "cpu":
            return self
        moved = {name: value.pin_memory().to(device, non_blocking=True) for name, value in vars(self).items()}
        return MicroBatch(**moved)


def pack(features: Features, indices: Indices) -> MicroBatch:
    """Return the features of the indices as one micro-batch.

    No indices give a stand-in of weight 0 (feature 0), since every rank runs equally many forward passes.
    """
    chosen = indices if len(indices) else np.zeros(1, dtype=np.int64)
    begins, ends = features.offsets[chosen], features.offsets[chosen + 1]
    lengths = (ends - begins).astype(np.int64)
    cu_lengths = np.concatenate([[0], np.cumsum(lengths)])
    position_ids = np.arange(cu_lengths[-1]) - np.repeat(cu_lengths[:-1], lengths)
    flat = np.repeat(begins, lengths) + position_ids
    longest = int(lengths.max())
    places = np.arange(longest)
    mask = places < lengths[:, None]
    row_of_token = np.repeat(np.arange(len(chosen)), lengths)
    weight = 1.0 if len(indices) else 0.0
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
        weights=torch.full((len(chosen),), weight),
        pad_index=torch.from_numpy((cu_lengths[:-1, None] + places) % cu_lengths[-1]),
        unpad_index=torch.from_numpy(row_of_token * longest + position_ids),
        mask=torch.from_numpy(mask),
    )
