"""Features: windows of a context with its question, in NumPy columns that can be memory-mapped.

Each context is tokenized once for all its questions; its windows are slices of the result. A window equals the
tokenizer's output for the pair with ``truncation="only_second"`` and a stride.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elasticqa.data.squad.read import Example
from elasticqa.data.squad.tokens import PairTemplate, Tokenized, copy_of_backend, tokenize
from elasticqa.errors import ConfigError, shown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Windowing:
    """Lengths in tokens: of a whole window, and of the context that consecutive windows share."""

    max_length: int = 384
    doc_stride: int = 128


@dataclass(frozen=True)
class Features:
    """N features of T tokens in total, concatenated without padding.

    Attributes:
        input_ids: (T,) int32.
        char_offsets: (T, 2) int32, begin and end of each token in the context; zeros outside the context.
        offsets: (N + 1,) int64, begin of each feature; the last entry is T.
        segment_start: (N,) int32, first token of type 1; the feature's length if the model has no token types.
        context_start, context_end: (N,) int32, the context's tokens are [context_start, context_end).
        start_position, end_position: (N,) int32, first and last token of the first answer that is at its
            offset; both 0 (CLS) unless the window contains the whole answer.
        example_index: (N,) int32, index of the example that the feature was built from; ascending.
    """

    input_ids: Int32
    char_offsets: Int32
    offsets: Int64
    segment_start: Int32
    context_start: Int32
    context_end: Int32
    start_position: Int32
    end_position: Int32
    example_index: Int32

    def __len__(self) -> int:
        return len(self.example_index)

    @property
    def lengths(self) -> Int64:
        """Number of tokens of each feature, (N,)."""
        return np.diff(self.offsets)


def build_features(examples: Sequence[Example], tokenizer: "PreTrainedTokenizerBase", windowing: Windowing) -> Features:
    """Return the features of all examples, in the order of examples and windows; the tokenizer must be a fast one.

    Raises:
        ConfigError: the tokenizer does not put the question first, or a question leaves too few tokens for the context.
    """
    backend = copy_of_backend(tokenizer)
    template = PairTemplate.of(backend, has_types="token_type_ids" in tokenizer.model_input_names)
    context_number: dict[str, int] = {}
    numbers = [context_number.setdefault(example.context, len(context_number)) for example in examples]
    context_of = np.array(numbers, dtype=np.int64)
    contexts = tokenize(backend, list(context_number))
    questions = tokenize(backend, [example.question.lstrip() for example in examples], with_offsets=False)

    num_special = len(template.prefix) + len(template.middle) + len(template.suffix)
    room = windowing.max_length - num_special - np.diff(questions.offsets)
    sizes = np.diff(contexts.offsets)[context_of]
    _check_room(examples, windowing, room, sizes)
    windows = _cut(contexts.offsets[context_of], sizes, room, windowing.doc_stride)
    first, last = _answer_tokens(examples, contexts, context_of)
    return _assemble(template, questions, contexts, windows, (first, last))


def _check_room(examples: Sequence[Example], windowing: Windowing, room: Int64, sizes: Int64) -> None:
    stuck = np.flatnonzero((sizes > room) & (room <= windowing.doc_stride))
    if not len(stuck):
        return
    worst = int(stuck[np.argmin(room[stuck])])
    taken = windowing.max_length - int(room[worst])
    raise ConfigError(
        f"max_length={windowing.max_length} is too small: question {shown(examples[worst].id)} takes {taken} "
        f"with special tokens and must leave the context more than doc_stride={windowing.doc_stride}; "
        f"raise --max-length above {taken + windowing.doc_stride} or lower --doc-stride"
    )


def _cut(begin: Int64, sizes: Int64, room: Int64, doc_stride: int) -> tuple[Int64, Int64, Int64]:
    """Return for each window its example, and where it begins and ends in the tokens of all contexts."""
    step = np.maximum(room - doc_stride, 1)
    counts = np.where(sizes > room, 1 + -(-(sizes - room) // step), 1)
    example = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(example)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = number * step[example]
    end = np.minimum(start + room[example], sizes[example])
    return example, begin[example] + start, begin[example] + end


def _answer_tokens(examples: Sequence[Example], contexts: Tokenized, context_of: Int64) -> tuple[Int64, Int64]:
    """Return for each example the first and the last token of its answer, in the tokens of all contexts.

    The first is the last token that begins at or before the answer (-1 without an answer); the last is the first token
    that ends at or after it. Byte tokens of one character share its offsets, so the first can come after the last.
    """
    answers = [next((a for a in example.answers if a.is_at_offset(example.context)), None) for example in examples]
    found = np.array([answer is not None for answer in answers])
    begin = np.array([0 if answer is None else answer.start for answer in answers], dtype=np.int64)
    end = begin + np.array([0 if answer is None else len(answer.text) for answer in answers], dtype=np.int64)

    # Number the characters of all contexts consecutively, so that one searchsorted finds the tokens of all answers.
    sizes = np.zeros(len(contexts.offsets) - 1, dtype=np.int64)
    sizes[context_of] = [len(example.context) + 1 for example in examples]
    base = np.cumsum(sizes) - sizes
    global_offsets = contexts.char_offsets + np.repeat(base, np.diff(contexts.offsets))[:, None]
    # A normalizer that reorders marks can make offsets descend; searchsorted needs them ascending.
    np.maximum.accumulate(global_offsets, axis=0, out=global_offsets)
    first = np.searchsorted(global_offsets[:, 0], base[context_of] + begin, side="right") - 1
    last = np.searchsorted(global_offsets[:, 1], base[context_of] + end, side="left")
    return np.where(found, first, -1), last


def _assemble(
    template: PairTemplate,
    questions: Tokenized,
    contexts: Tokenized,
    windows: tuple[Int64, Int64, Int64],
    answers: tuple[Int64, Int64],
) -> Features:
    """Return the columns of `_cut`'s windows; ``answers`` are the first and last tokens of the examples' answers."""
    example, window_begin, window_end = windows
    question_begin, question_end = questions.offsets[example], questions.offsets[example + 1]
    context_start = len(template.prefix) + question_end - question_begin + len(template.middle)
    context_end = context_start + window_end - window_begin
    offsets = np.concatenate([[0], np.cumsum(context_end + len(template.suffix))])

    input_ids = np.empty(offsets[-1], dtype=np.int32)
    char_offsets = np.zeros((offsets[-1], 2), dtype=np.int32)
    rows = [question_begin, question_end, window_begin, window_end, offsets[:-1], offsets[1:]]
    for q_begin, q_end, c_begin, c_end, begin, end in np.stack(rows, axis=1).tolist():
        context = contexts.ids[c_begin:c_end]
        input_ids[begin:end] = np.concatenate(
            [template.prefix, questions.ids[q_begin:q_end], template.middle, context, template.suffix]
        )
        behind = end - len(template.suffix)
        char_offsets[behind - len(context) : behind] = contexts.char_offsets[c_begin:c_end]

    first, last = (tokens[example] for tokens in answers)
    inside = (first >= window_begin) & (last < window_end)
    first, last = np.minimum(first, window_end - 1), np.maximum(last, window_begin)
    first, last = np.minimum(first, last), np.maximum(first, last)
    lengths = np.diff(offsets)
    segment_start = lengths if template.segment_shift is None else context_start + template.segment_shift
    return Features(
        input_ids=input_ids,
        char_offsets=char_offsets,
        offsets=offsets,
        segment_start=segment_start.astype(np.int32),
        context_start=context_start.astype(np.int32),
        context_end=context_end.astype(np.int32),
        start_position=np.where(inside, first - window_begin + context_start, 0).astype(np.int32),
        end_position=np.where(inside, last - window_begin + context_start, 0).astype(np.int32),
        example_index=example.astype(np.int32),
    )
