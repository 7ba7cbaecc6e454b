"""Tokenize texts into columns, and find the special tokens around a question and a context."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from elasticqa.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Texts per call: few enough that encodings (hundreds of bytes per token) fit in memory, enough for all cores.
_CHUNK = 1024


@dataclass(frozen=True)
class Tokenized:
    """Concatenated tokens of many texts, without special tokens.

    Attributes:
        ids: (T,) int32.
        char_offsets: (T, 2) int32, begin and end of each token in its text; (0, 2) if not requested.
        offsets: (texts + 1,) int64, begin of each text's tokens; the last entry is T.
    """

    ids: NDArray[np.int32]
    char_offsets: NDArray[np.int32]
    offsets: NDArray[np.int64]


@dataclass(frozen=True)
class PairTemplate:
    """The special tokens in ``prefix question middle context suffix``, int32.

    ``segment_shift`` is the first token of type 1, counted from the first context token (0 or less); None if the model
    has no token types.
    """

    prefix: NDArray[np.int32]
    middle: NDArray[np.int32]
    suffix: NDArray[np.int32]
    segment_shift: int | None

    @classmethod
    def of(cls, backend: Tokenizer, *, has_types: bool) -> "PairTemplate":
        """Return the template, found by encoding a pair.

        Raises:
            ConfigError: the question does not come first, or the token types are not 0 and then 1.
        """
        encoding = backend.encode("question", "context")
        sequences = encoding.sequence_ids
        ids = np.array(encoding.ids, dtype=np.int32)
        if 0 not in sequences or 1 not in sequences:
            raise ConfigError("the tokenizer gives no token for 'question' or 'context': use the model's own")
        begin, end = sequences.index(0), len(sequences) - sequences[::-1].index(0)
        context_begin = sequences.index(1)
        context_end = len(sequences) - sequences[::-1].index(1)
        types = encoding.type_ids
        ones = types.index(1) if has_types and 1 in types else None
        in_order = end <= context_begin and (ones is None or end <= ones <= context_begin)
        if not in_order or (has_types and types != sorted(min(kind, 1) for kind in types)):
            raise ConfigError(
                f"the tokenizer lays a pair out as sequences {sequences} with token types {types}: the "
                "question must come first, with types 0 and then 1; use a model of the BERT or RoBERTa family"
            )
        shift = None if ones is None else ones - context_begin
        return cls(ids[:begin], ids[end:context_begin], ids[context_end:], shift)


def copy_of_backend(tokenizer: "PreTrainedTokenizerBase") -> Tokenizer:
    """Return a copy of a fast tokenizer's Rust tokenizer that neither truncates nor pads."""
    original: Tokenizer = tokenizer.backend_tokenizer
    backend = Tokenizer.from_str(original.to_str())
    backend.encode_special_tokens = original.encode_special_tokens
    backend.no_truncation()
    backend.no_padding()
    return backend


def tokenize(backend: Tokenizer, texts: Sequence[str], *, with_offsets: bool = True) -> Tokenized:
    """Return the tokens of the texts; uses one thread per core."""
    encode = backend.encode_batch if with_offsets else backend.encode_batch_fast
    ids: list[NDArray[np.int32]] = []
    char_offsets: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
    lengths: list[int] = []
    for begin in range(0, len(texts), _CHUNK):
        encodings = encode(list(texts[begin : begin + _CHUNK]), add_special_tokens=False)
        lengths += [len(encoding) for encoding in encodings]
        ids.append(np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype=np.int32))
        if with_offsets:
            pairs = chain.from_iterable(e.offsets for e in encodings)
            char_offsets.append(np.fromiter(chain.from_iterable(pairs), dtype=np.int32))
    return Tokenized(
        ids=np.concatenate(ids),
        char_offsets=np.concatenate(char_offsets).reshape(-1, 2),
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
    )
