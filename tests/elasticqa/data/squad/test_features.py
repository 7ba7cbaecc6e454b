"""Windows equal the tokenizer's own truncation of the pair, for every family of tokenizers."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase

from elasticqa.data.hub import load_tokenizer
from elasticqa.data.squad.features import Features, Windowing, build_features
from elasticqa.data.squad.read import Example, read_squad
from elasticqa.errors import ConfigError
from tests.support.squad_samples import (
    CONTEXT,
    QUESTIONS,
    bert_tokenizer,
    example,
    mpnet_tokenizer,
    roberta_tokenizer,
    unigram_tokenizer,
    wrap,
)

TOKENIZERS = {
    "bert": bert_tokenizer(),
    "roberta": roberta_tokenizer(),
    "mpnet": mpnet_tokenizer(),
    "unigram": unigram_tokenizer(),
}
FAMILIES = pytest.mark.parametrize("family", TOKENIZERS)
TEXT = st.text(alphabet="abcdeTIz 0159.,-\u00e9\u00fc\u6771\u4eac\U0001f98a\u0301\u200b\t", max_size=60)


def samples() -> list[Example]:
    return [
        example(text, CONTEXT, CONTEXT.index(answer), CONTEXT.index(answer) + len(answer), key)
        for key, text, answer in QUESTIONS
    ]


def expected_windows(one: Example, tokenizer: PreTrainedTokenizerBase, windowing: Windowing) -> list[dict[str, Any]]:
    """Return the windows that the tokenizer's truncation gives, labelled token by token."""
    encoding = tokenizer(
        one.question.lstrip(),
        one.context,
        truncation="only_second",
        max_length=windowing.max_length,
        stride=windowing.doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=False,
    )
    begin, end = one.answers[0].start, one.answers[0].start + len(one.answers[0].text)
    windows = []
    for number in range(len(encoding["input_ids"])):
        sequences = encoding.sequence_ids(number)
        offsets = encoding["offset_mapping"][number]
        context = [place for place, sequence in enumerate(sequences) if sequence == 1]
        label = (0, 0)
        if context and offsets[context[0]][0] <= begin and offsets[context[-1]][1] >= end:
            first = max(place for place in context if offsets[place][0] <= begin)
            last = min(place for place in context if offsets[place][1] >= end)
            label = (min(first, last), max(first, last))
        windows.append(
            {
                "ids": encoding["input_ids"][number],
                "types": encoding["token_type_ids"][number] if "token_type_ids" in encoding else None,
                "offsets": [offsets[place] for place in context],
                "context": context,
                "label": label,
            }
        )
    return windows


def assert_equal(features: Features, expected: list[dict[str, Any]]) -> None:
    assert len(features) == len(expected)
    for number, window in enumerate(expected):
        begin, end = features.offsets[number], features.offsets[number + 1]
        start, stop = features.context_start[number], features.context_end[number]
        assert features.input_ids[begin:end].tolist() == window["ids"]
        types = (np.arange(end - begin) >= features.segment_start[number]).astype(int).tolist()
        assert types == (window["types"] or [0] * (end - begin))
        assert list(range(start, stop)) == window["context"]
        places = features.char_offsets[begin:end]
        assert [tuple(pair) for pair in places[start:stop].tolist()] == window["offsets"]
        assert not places[:start].any()
        assert not places[stop:].any()
        assert (features.start_position[number], features.end_position[number]) == window["label"]


@FAMILIES
@pytest.mark.parametrize(("max_length", "doc_stride"), [(512, 128), (64, 16), (40, 8), (48, 0)])
def test_windows_equal_the_truncated_pair(family: str, max_length: int, doc_stride: int) -> None:
    windowing = Windowing(max_length, doc_stride)
    features = build_features(samples(), TOKENIZERS[family], windowing)
    expected = [expected_windows(one, TOKENIZERS[family], windowing) for one in samples()]
    assert_equal(features, list(chain.from_iterable(expected)))
    counts = [len(windows) for windows in expected]
    assert features.example_index.tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
    assert features.lengths.max() <= max_length
    if max_length == 40:
        assert max(counts) > 1


@FAMILIES
@settings(max_examples=150, deadline=None)
@given(context=TEXT.filter(str.strip), question=TEXT, data=st.data())
def test_windows_of_any_text_equal_the_truncated_pair(
    family: str, context: str, question: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    answer = context[start:end].strip()
    assume(answer)
    start = context.index(answer, start)
    end = start + len(answer)
    one = example(question, context, start, end)
    tokenizer = TOKENIZERS[family]
    num_question = len(tokenizer(question.lstrip(), add_special_tokens=False)["input_ids"])
    doc_stride = data.draw(st.integers(0, 6))
    windowing = Windowing(num_question + 4 + doc_stride + data.draw(st.integers(1, 12)), doc_stride)
    features = build_features([one], tokenizer, windowing)
    assert_equal(features, expected_windows(one, tokenizer, windowing))


def test_answer_of_one_character_in_several_byte_tokens_keeps_start_before_end() -> None:
    features = build_features([example("?", "ab \U0001f98a", 3, 4)], TOKENIZERS["roberta"], Windowing())
    start, end = features.start_position[0], features.end_position[0]
    assert 0 < start < end
    assert features.char_offsets[start].tolist() == features.char_offsets[end].tolist() == [3, 4]


def test_answer_that_is_not_at_its_offset_gets_no_positions() -> None:
    one = example("Who?", "Ann met Bob.", 0, 3)
    moved = Example(one.id, "", "Bob met Ann.", one.question, one.answers, 0)
    features = build_features([moved], TOKENIZERS["bert"], Windowing())
    assert (features.start_position[0], features.end_position[0]) == (0, 0)


def test_tokenizer_is_not_modified() -> None:
    tokenizer = bert_tokenizer()
    before = tokenizer.backend_tokenizer.to_str()
    build_features(samples(), tokenizer, Windowing(40, 8))
    assert tokenizer.backend_tokenizer.to_str() == before


def test_question_that_leaves_too_few_tokens_is_refused_with_the_length_that_is_enough() -> None:
    rule = r"max_length=20 is too small: question 'q4' takes \d+ .*doc_stride=8"
    with pytest.raises(ConfigError, match=rule) as refused:
        build_features(samples(), TOKENIZERS["bert"], Windowing(20, 8))
    least = int(str(refused.value).split("--max-length above ")[1].split()[0])
    assert len(build_features(samples(), TOKENIZERS["bert"], Windowing(least + 1, 8)))
    with pytest.raises(ConfigError):
        build_features(samples(), TOKENIZERS["bert"], Windowing(least, 8))


def test_tokenizer_that_puts_the_context_first_is_refused() -> None:
    tokenizer: Tokenizer = bert_tokenizer().backend_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [CLS]", pair="$B [SEP] $A [CLS]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(ConfigError, match="the question must come first"):
        build_features(samples(), wrap(tokenizer), Windowing())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "num_features", "mean", "median"), [("train", 88_524, 170.75, 159), ("dev", 10_784, None, None)]
)
def test_number_and_lengths_of_the_features_of_squad(
    shared_data: Path, split: str, num_features: int, mean: float | None, median: float | None
) -> None:
    path = shared_data / "squad" / f"{split}-v1.1.json.gz"
    data = read_squad(path, for_training=split == "train")
    tokenizer = load_tokenizer("sentence-transformers/all-MiniLM-L6-v2")
    features = build_features(data.examples, tokenizer, Windowing(384, 128))
    assert len(features) == num_features
    if mean is not None:
        assert round(float(features.lengths.mean()), 2) == mean
        assert np.median(features.lengths) == median
    chosen = np.flatnonzero(np.diff(features.example_index, prepend=-1) > 0)[:: len(data.examples) // 300]
    for begin in chosen.tolist():
        index = int(features.example_index[begin])
        windows = expected_windows(data.examples[index], tokenizer, Windowing(384, 128))
        for number, window in enumerate(windows, begin):
            low, high = features.offsets[number], features.offsets[number + 1]
            assert features.input_ids[low:high].tolist() == window["ids"]
            assert (features.start_position[number], features.end_position[number]) == window["label"]
