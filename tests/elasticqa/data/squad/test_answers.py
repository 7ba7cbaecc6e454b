"""Spans equal a search over all pairs; joined answers do not depend on how ranks share the features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from elasticqa.data.hub import load_tokenizer
from elasticqa.data.squad.answers import Prediction, Spans, best_spans, join_spans
from elasticqa.data.squad.features import Features, Windowing, build_features
from elasticqa.data.squad.metric import squad_metrics
from elasticqa.data.squad.read import Answer, Example, read_squad

NUM_QUESTION = 2
CONTEXT = "abcdefghijklmnopqrstuvwxyz"
Logits = NDArray[np.float32]


def examples(count: int) -> list[Example]:
    return [Example(f"x{n}", "", CONTEXT, "?", (Answer("a", 0),), 0) for n in range(count)]


def features_of(windows: Sequence[tuple[int, int, int]]) -> Features:
    """Return features of (example, first context token, context tokens); token n of a context is character n."""
    owners, begins, sizes = (np.array(column, dtype=np.int64) for column in zip(*windows, strict=True))
    lengths = 1 + NUM_QUESTION + 1 + sizes + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    char_offsets = np.zeros((offsets[-1], 2), dtype=np.int32)
    for offset, begin, size in zip(offsets[:-1], begins, sizes, strict=True):
        place = offset + NUM_QUESTION + 2
        char_offsets[place : place + size, 0] = np.arange(begin, begin + size)
        char_offsets[place : place + size, 1] = np.arange(begin, begin + size) + 1
    start = np.full(len(windows), NUM_QUESTION + 2, dtype=np.int32)
    zeros = np.zeros(len(windows), dtype=np.int32)
    return Features(
        input_ids=np.zeros(offsets[-1], dtype=np.int32),
        char_offsets=char_offsets,
        offsets=offsets,
        segment_start=start,
        context_start=start,
        context_end=(start + sizes).astype(np.int32),
        start_position=zeros,
        end_position=zeros,
        example_index=owners.astype(np.int32),
    )


def best_answers(
    features: Features,
    start: NDArray[Any],
    end: NDArray[Any],
    questions: Sequence[Example],
    max_answer_length: int = 30,
) -> list[Prediction]:
    spans = best_spans(features, np.arange(len(features)), start, end, max_answer_length)
    return join_spans(features, spans, questions)


def searched_span(
    features: Features, number: int, start: Logits, end: Logits, max_answer_length: int
) -> tuple[float, int, int]:
    """Return score, first and end character of the best span, found by trying every pair of tokens."""
    begin = int(features.offsets[number])
    best: tuple[float, int, int] | None = None
    tokens = range(begin + features.context_start[number], begin + features.context_end[number])
    for first in tokens:
        for last in tokens:
            if first <= last < first + max_answer_length:
                total = float(start[first] + end[last])
                if best is None or total > best[0]:
                    best = (total, int(features.char_offsets[first, 0]), int(features.char_offsets[last, 1]))
    assert best is not None
    return best


WINDOWS = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 12)), min_size=1, max_size=9).flatmap(
    lambda shapes: st.lists(st.integers(0, 1), min_size=len(shapes), max_size=len(shapes)).map(
        lambda steps: [
            (owner, begin, size)
            for owner, (begin, size) in zip(np.cumsum([0, *steps[1:]]).tolist(), shapes, strict=True)
        ]
    )
)


@settings(max_examples=150, deadline=None)
@given(
    windows=WINDOWS, max_answer_length=st.integers(1, 14), seed=st.integers(0, 2**32 - 1), num_ranks=st.integers(1, 4)
)
def test_answers_equal_a_search_over_all_pairs(
    windows: list[tuple[int, int, int]], max_answer_length: int, seed: int, num_ranks: int
) -> None:
    features = features_of(windows)
    rng = np.random.default_rng(seed)
    # Few distinct values, so that ties occur.
    start, end = rng.integers(-3, 4, (2, len(features.input_ids))).astype(np.float32)
    expected = [searched_span(features, n, start, end, max_answer_length) for n in range(len(features))]
    spans = best_spans(features, np.arange(len(features)), start, end, max_answer_length)
    found = zip(spans.score.tolist(), spans.start_char.tolist(), spans.end_char.tolist(), strict=True)
    assert list(found) == expected

    questions = examples(windows[-1][0] + 1)
    answers = []
    for index, question in enumerate(questions):
        mine = [expected[n] for n in range(len(features)) if features.example_index[n] == index]
        score, first, last = max(mine, key=lambda span: span[0])
        answers.append(Prediction(question.id, CONTEXT[first:last], first, score))
    assert best_answers(features, start, end, questions, max_answer_length) == answers

    parts = []
    owner = np.repeat(np.arange(len(features)), features.lengths)
    for share in np.array_split(rng.permutation(len(features)), num_ranks):
        tokens = np.concatenate([np.flatnonzero(owner == n) for n in [*share, -1]])
        parts.append(best_spans(features, share, start[tokens], end[tokens], max_answer_length))
    twice = Spans.concatenate([*parts, parts[0]])
    assert join_spans(features, twice, questions) == answers


def logits_of(features: Features) -> tuple[Logits, Logits]:
    start, end = np.zeros((2, len(features.input_ids)), dtype=np.float32)
    return start, end


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_logits_that_are_not_finite_still_give_an_answer(bad: float) -> None:
    features = features_of([(0, 0, 5), (0, 4, 5)])
    for where in (slice(None), slice(3, 8)):
        start, end = logits_of(features)
        start[where], end[where] = bad, -bad
        answer = best_answers(features, start, end, examples(1))[0]
        assert answer.text
        assert np.isfinite(answer.score)


def test_half_precision_logits_are_accepted() -> None:
    features = features_of([(0, 0, 5)])
    start, end = (logits.astype(np.float16) for logits in logits_of(features))
    start[6] = end[7] = 2
    assert best_answers(features, start, end, examples(1)) == [Prediction("x0", "cd", 2, 4.0)]


def test_context_without_tokens_has_an_empty_answer() -> None:
    features = features_of([(0, 0, 0), (1, 0, 3)])
    answers = best_answers(features, *logits_of(features), examples(2))
    assert (answers[0].text, answers[0].start_char) == ("", None)
    assert answers[1].text == "a"
    empty = features_of([(0, 0, 0)])
    assert best_answers(empty, *logits_of(empty), examples(1))[0].text == ""


def test_rank_without_features_has_no_spans() -> None:
    features = features_of([(0, 0, 3)])
    none = np.empty(0, dtype=np.float32)
    spans = best_spans(features, np.empty(0, dtype=np.int64), none, none)
    assert len(spans.feature) == 0
    assert spans.score.dtype == np.dtype(np.float32)
    assert spans.start_char.dtype == np.dtype(np.int32)


def test_feature_without_span_is_refused() -> None:
    features = features_of([(0, 0, 3), (0, 2, 3)])
    start, end = logits_of(features)
    half = best_spans(features, np.array([1]), start[features.offsets[1] :], end[features.offsets[1] :])
    with pytest.raises(ValueError, match="1 of 2 features have no span"):
        join_spans(features, half, examples(1))


def test_logits_of_another_length_are_refused() -> None:
    features = features_of([(0, 0, 3)])
    start, end = logits_of(features)
    with pytest.raises(ValueError, match=r"1 features have 8 tokens, not \(7,\) logits"):
        best_spans(features, np.array([0]), start, end[1:])


@pytest.mark.slow
def test_gold_positions_of_whole_dev_give_the_gold_answers(shared_data: Path) -> None:
    data = read_squad(shared_data / "squad" / "dev-v1.1.json.gz", for_training=False)
    features = build_features(data.examples, load_tokenizer("sentence-transformers/all-MiniLM-L6-v2"), Windowing())
    rng = np.random.default_rng(0)
    start, end = rng.normal(size=(2, len(features.input_ids))).astype(np.float32)
    noise = squad_metrics(texts(best_answers(features, start, end, data.examples)), data.examples)
    assert noise.f1 < 15
    answered = np.flatnonzero(features.start_position)
    start[features.offsets[answered] + features.start_position[answered]] += 20
    end[features.offsets[answered] + features.end_position[answered]] += 20
    metrics = squad_metrics(texts(best_answers(features, start, end, data.examples)), data.examples)
    # The rest are answers that do not begin and end at token boundaries, or that no window contains whole.
    assert metrics.em > 99.5
    assert metrics.f1 > 99.7


def texts(answers: list[Prediction]) -> dict[str, str]:
    return {answer.id: answer.text for answer in answers}
