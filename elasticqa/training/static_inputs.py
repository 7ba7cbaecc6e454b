"""Inputs of a CUDA graph: batches at fixed addresses, filled up to one of a few fixed sizes."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elasticqa.data.micro_batch import Indices, MicroBatch
from elasticqa.data.squad.features import Features

SMALLEST_QUANTUM = 64
"""Tokens: sizes that are multiples of it suit the matrix units."""


def token_quantum(deviation: float, global_batch_size: int, world_size: int) -> int:
    """Return the quantum, a power of two: a rank's tokens are padded to a multiple of it.

    It is about half the standard deviation of a rank's tokens per step: some 16 sizes then cover nearly all steps, and
    padding costs 1 to 2 percent. ``deviation`` is that of the features' lengths.

    >>> token_quantum(65.0, 24, 1), token_quantum(65.0, 96, 1), token_quantum(65.0, 48, 2)
    (128, 256, 64)
    """
    spread = deviation * math.sqrt(global_batch_size) / world_size / 2
    return max(SMALLEST_QUANTUM, 1 << math.floor(math.log2(max(spread, 1.0))))


@dataclass(frozen=True)
class StaticShape:
    """A fixed size for a share of features, filled up with placeholders, each of at most ``max_length`` tokens."""

    num_tokens: int
    micro_batch_size: int
    max_length: int

    @property
    def num_rows(self) -> int:
        """Maximum number of features and placeholders."""
        return self.micro_batch_size + -(-self.num_tokens // self.max_length)

    @property
    def parts(self) -> tuple[int, ...]:
        """Lengths of the parts of the buffer, in the order that `StaticInputs.views` reads them."""
        rows = self.num_rows
        return (*[self.num_tokens] * 3, rows + 1, *[rows] * 4, 2)


def fill(features: Features, indices: Indices, size: StaticShape, num_features: int) -> Tensor:
    """Return the int32 content of the buffer: the features, then placeholders of weight 0 up to the size.

    ``indices`` are those of this rank's share, ``num_features`` counts the global batch. If there is a GPU, the
    content is in pinned memory, which torch's allocator reuses. The vote to stop, its last element, is 0.
    """
    begins = features.offsets[indices]
    lengths = (features.offsets[indices + 1] - begins).astype(np.int64)
    num_real = int(lengths.sum())
    rows = _row_lengths(lengths, size)
    cu_lengths = np.concatenate([[0], np.cumsum(rows)])
    position_ids = np.arange(size.num_tokens) - np.repeat(cu_lengths[:-1], rows)
    input_ids = np.zeros(size.num_tokens, dtype=np.int32)
    input_ids[:num_real] = features.input_ids[np.repeat(begins, lengths) + position_ids[:num_real]]
    token_types = np.zeros(size.num_tokens, dtype=np.int32)
    token_types[:num_real] = position_ids[:num_real] >= np.repeat(features.segment_start[indices], lengths)
    of_rows = np.zeros((4, size.num_rows), dtype=np.int32)
    of_rows[0, : len(indices)] = features.start_position[indices]
    of_rows[1, : len(indices)] = features.end_position[indices]
    of_rows[2, : len(indices)] = 1
    of_rows[3] = -1
    of_rows[3, : len(indices)] = indices
    parts = (input_ids, position_ids, token_types, cu_lengths, of_rows.ravel(), [num_features, 0])
    content = torch.empty(sum(size.parts), dtype=torch.int32, pin_memory=torch.cuda.is_available())
    np.concatenate(parts, out=content.numpy(), casting="unsafe")
    return content


def fed_ids(content: Tensor, size: StaticShape) -> list[int]:
    """Return the ids of the features in the content of a buffer."""
    *_, ids, _ = content.split(size.parts)
    return [index for index in ids.tolist() if index >= 0]


def _row_lengths(lengths: NDArray[np.int64], size: StaticShape) -> NDArray[np.int64]:
    """Return the number of tokens in each row: features, placeholders of at most ``max_length``, and empty rows."""
    left = size.num_tokens - int(lengths.sum())
    num_whole, rest = divmod(left, size.max_length)
    rows = np.zeros(size.num_rows, dtype=np.int64)
    rows[: len(lengths)] = lengths
    rows[len(lengths) : len(lengths) + num_whole] = size.max_length
    if rest:
        rows[len(lengths) + num_whole] = rest
    return rows


class StaticInputs:
    """A buffer on the device, and the batch that is computed from it."""

    def __init__(self, size: StaticShape, device: torch.device) -> None:
        self._size = size
        self._buffer = torch.zeros(sum(size.parts), dtype=torch.int32, device=device)

    def load(self, content: Tensor, stop_vote: float) -> None:
        """Start to copy the content that `fill` returned, with this rank's vote to stop; the host does not wait."""
        content[-1] = stop_vote
        self._buffer.copy_(content, non_blocking=True)

    def views(self) -> tuple[MicroBatch, Tensor, Tensor]:
        """Return the batch, the features of the global batch and the vote to stop, computed from the buffer."""
        parts = self._buffer.split(self._size.parts)
        inputs, positions, types, cu_lengths, starts, ends, weights, ids, scalars = parts
        begins, lengths = cu_lengths[:-1, None], cu_lengths.diff()[:, None]
        places = torch.arange(self._size.max_length, device=self._buffer.device)
        tokens = torch.arange(self._size.num_tokens, dtype=torch.int32, device=self._buffer.device)
        rows = torch.searchsorted(cu_lengths[1:].contiguous(), tokens, right=True)
        batch = MicroBatch(
            feature_ids=ids,
            input_ids=inputs,
            position_ids=positions,
            token_type_ids=types,
            cu_lengths=cu_lengths,
            start_positions=starts.long(),
            end_positions=ends.long(),
            weights=weights.float(),
            pad_index=(begins + places) % self._size.num_tokens,
            unpad_index=rows * self._size.max_length + positions,
            # An empty row keeps one token, so that its loss (weight 0) is finite.
            mask=places < lengths.clamp(min=1),
        )
        num_features, stop_vote = scalars.float().unbind()
        return batch, num_features, stop_vote
