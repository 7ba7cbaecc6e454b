"""Compute answers from start and end logits: the best span of each feature, then the best feature of each example.

Each rank reduces its features to `Spans`, four numbers per feature, so that ranks gather little data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from elasticqa.data.squad.features import Features
from elasticqa.data.squad.read import Example

# Far larger than any logit, and the sum of two does not overflow.
_MAX_LOGIT = np.float32(1e37)


@dataclass(frozen=True)
class Spans:
    """The best span of each of M features, all (M,).

    Attributes:
        feature: int64, index of the feature.
        score: float32, start logit plus end logit.
        start_char, end_char: int32; the span is ``context[start_char:end_char]``.
    """

    feature: NDArray[np.int64]
    score: NDArray[np.float32]
    start_char: NDArray[np.int32]
    end_char: NDArray[np.int32]

    @classmethod
    def concatenate(cls, parts: Sequence["Spans"]) -> "Spans":
        """Return the spans of all parts, for example of all batches or ranks."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to one example; ``start_char`` is its offset in the context, None if the text is empty."""

    id: str
    text: str
    start_char: int | None
    score: float


def best_spans(
    features: Features,
    indices: NDArray[np.integer],
    start_logits: NDArray[np.floating],
    end_logits: NDArray[np.floating],
    max_answer_length: int = 30,
) -> Spans:
    """Return for each feature the span of context tokens with the highest sum of start and end logit.

    Considers every pair of tokens, not only the best few starts and ends. Among equal sums the earliest start wins,
    then the shortest span. NaN counts as the lowest logit. ``start_logits`` and ``end_logits`` are those of the tokens
    of the features with these indices, concatenated without padding.

    Raises:
        ValueError: the number of logits differs from the number of tokens.
    """
    chosen = np.asarray(indices, dtype=np.int64)
    lengths = features.offsets[chosen + 1] - features.offsets[chosen]
    for logits in (start_logits, end_logits):
        if logits.shape != (lengths.sum(),):
            raise ValueError(f"{len(chosen)} features have {lengths.sum()} tokens, not {logits.shape} logits")
    context = features.context_start[chosen].astype(np.int64)
    sizes = features.context_end[chosen] - context
    tokens = _ranges(np.cumsum(lengths) - lengths + context, sizes)
    # Number of context tokens from each token to the end of the feature, itself included: the longest possible span.
    remaining = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(tokens))
    score, width = _best_of_each_start(
        _finite(start_logits[tokens]), _finite(end_logits[tokens]), remaining, max_answer_length
    )

    best = np.full(len(chosen), -2 * _MAX_LOGIT, dtype=np.float32)
    start_char = np.zeros(len(chosen), dtype=np.int32)
    end_char = np.zeros(len(chosen), dtype=np.int32)
    filled = np.flatnonzero(sizes)  # a context, for example of control characters only, may have no tokens
    if len(filled):
        first = _first_maximum(score, np.cumsum(sizes)[filled] - sizes[filled], sizes[filled])
        best[filled] = score[first]
        char_offsets = features.char_offsets[_ranges(features.offsets[chosen] + context, sizes)]
        start_char[filled] = char_offsets[first, 0]
        end_char[filled] = char_offsets[first + width[first], 1]
    return Spans(chosen, best, start_char, end_char)


def _finite(logits: NDArray[np.floating]) -> NDArray[np.float32]:
    clipped = np.nan_to_num(logits.astype(np.float32), nan=-np.inf)
    return np.clip(clipped, -_MAX_LOGIT, _MAX_LOGIT)


def _best_of_each_start(
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    remaining: NDArray[np.int64],
    max_answer_length: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return for each start token the best sum, and the distance to the end token that gives it."""
    best = start + end
    width = np.zeros(len(best), dtype=np.int64)
    for distance in range(1, min(max_answer_length, len(best))):
        sums = start[:-distance] + end[distance:]
        better = (sums > best[:-distance]) & (remaining[:-distance] > distance)
        np.copyto(best[:-distance], sums, where=better)
        np.copyto(width[:-distance], distance, where=better)
    return best, width


def _first_maximum(
    values: NDArray[np.float32], begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the index of the first maximum of each segment; segments are contiguous and not empty."""
    is_maximum = values == np.repeat(np.maximum.reduceat(values, begins), sizes)
    maxima = np.flatnonzero(is_maximum)
    return np.take(maxima, np.searchsorted(maxima, begins))


def _ranges(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenation of ``range(begin, begin + size)`` for all begins and sizes."""
    shifts = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    result: NDArray[np.int64] = shifts + np.arange(len(shifts))
    return result


def join_spans(features: Features, spans: Spans, examples: Sequence[Example]) -> list[Prediction]:
    """Return one answer per example: the span with the highest score; among equal scores, that of the first window.

    Spans may be in any order, and a feature may have several.

    Raises:
        ValueError: a feature has no span.
    """
    if len(np.unique(spans.feature)) != len(features):
        missing = np.setdiff1d(np.arange(len(features)), spans.feature)
        raise ValueError(f"{len(missing)} of {len(features)} features have no span, the first is {missing[:1]}")
    owner = features.example_index[spans.feature]
    order = np.lexsort((spans.feature, -spans.score, owner))
    first = order[np.searchsorted(owner[order], np.arange(len(examples)))]
    columns = (spans.start_char[first], spans.end_char[first], spans.score[first])
    return [
        Prediction(example.id, example.context[start:end], start if end > start else None, value)
        for example, start, end, value in zip(examples, *(c.tolist() for c in columns), strict=True)
    ]
