"""EM and F1 equal two other implementations, on perturbed real answers."""

import random
import re
import string
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.text import SQuAD

from elasticqa.data.squad.metric import Metrics, Score, mean_metrics, normalize, score, squad_metrics, squad_scores
from elasticqa.data.squad.read import Answer, Example, read_squad

WORDS = st.lists(st.sampled_from(["a", "The", "an", "cat", "Cat.", "dog", "3,5", "x-y", "\u00e9", "''"]), max_size=6)
TEXT = WORDS.map(" ".join)


def perturbed(example: Example, rng: random.Random) -> str:
    """Return a text that is often close to a gold answer."""
    text = rng.choice(example.answers).text
    words = text.split()
    near, anywhere = max(0, example.answers[0].start - rng.randrange(12)), rng.randrange(len(example.context))
    return rng.choice(
        [
            text,
            "",
            f"The  {text.upper()}!",
            f"an {text}, a {text}",
            " ".join(words[1:]),
            " ".join(words + words[:1]),
            " ".join(rng.sample(words, len(words))),
            example.context[anywhere : anywhere + rng.randrange(40)],
            example.context[near : near + len(text) + rng.randrange(12)],
        ]
    )


def exact_scores(prediction: str, golds: list[str]) -> tuple[int, Fraction]:
    """Return EM and F1 from their definition, in exact arithmetic."""

    def words(text: str) -> list[str]:
        kept = "".join(character for character in text.lower() if character not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    def f1(gold: list[str], answer: list[str]) -> Fraction:
        same = sum((Counter(gold) & Counter(answer)).values())
        if same == 0:
            return Fraction(0)
        precision, recall = Fraction(same, len(answer)), Fraction(same, len(gold))
        return 2 * precision * recall / (precision + recall)

    answer = words(prediction)
    return int(any(words(gold) == answer for gold in golds)), max(f1(words(gold), answer) for gold in golds)


@pytest.fixture(scope="module")
def dev(shared_data: Path) -> list[Example]:
    return read_squad(shared_data / "squad" / "dev-v1.1.json.gz", for_training=False).examples


@pytest.fixture(scope="module")
def predictions(dev: list[Example]) -> dict[str, str]:
    rng = random.Random(0)
    return {example.id: perturbed(example, rng) for example in dev}


def test_metrics_equal_those_of_torchmetrics(dev: list[Example], predictions: dict[str, str]) -> None:
    some = dev[::2]
    metrics = squad_metrics(predictions, some)
    expected = SQuAD()(
        [{"id": e.id, "prediction_text": predictions[e.id]} for e in some],
        [
            {"id": e.id, "answers": {"text": [a.text for a in e.answers], "answer_start": [0] * len(e.answers)}}
            for e in some
        ],
    )
    assert metrics.num_examples == len(some) > 5_000
    assert 20 < metrics.em < metrics.f1 < 95
    assert metrics.em == pytest.approx(float(expected["exact_match"]), abs=1e-3)
    assert metrics.f1 == pytest.approx(float(expected["f1"]), abs=1e-3)


@given(prediction=TEXT, golds=st.lists(TEXT, min_size=1, max_size=4))
def test_score_of_any_text_equals_exact_arithmetic(prediction: str, golds: list[str]) -> None:
    em, f1 = exact_scores(prediction, golds)
    found = score(prediction, golds)
    assert found.em == em
    assert found.f1 == pytest.approx(float(f1), abs=1e-15)
    assert score(prediction, [*golds, "dog"]).f1 >= found.f1
    assert score(golds[0].upper() + "!", golds).em == 1


@given(text=st.text(max_size=40))
def test_normalized_text_has_single_spaces_and_no_punctuation(text: str) -> None:
    result = normalize(text)
    assert not set(result) & set(string.punctuation)
    assert result.split(" ") == result.split() or result == ""
    assert not set(result.split()) & {"a", "an", "the"}


@pytest.mark.parametrize(
    ("prediction", "golds", "em", "f1"),
    [
        ("The Oder.", ["oder"], 1, 1.0),
        ("river Oder", ["Oder"], 0, 2 / 3),
        ("in May 1890", ["1889", "May 1890"], 0, 0.8),
        ("", ["Oder"], 0, 0.0),
        ("the", ["a"], 1, 0.0),  # both are empty once normalized: equal, but without a common word
        ("theatre", ["atre"], 0, 0.0),
    ],
)
def test_score_by_hand(prediction: str, golds: list[str], em: int, f1: float) -> None:
    found = score(prediction, golds)
    assert found.em == em
    assert found.f1 == pytest.approx(f1)


def test_example_without_prediction_scores_zero() -> None:
    examples = [Example(key, "", "Oder", "?", (Answer("Oder", 0),), 0) for key in ("x", "y")]
    assert squad_scores({"x": "Oder"}, examples) == [Score(1, 1.0), Score(0, 0.0)]
    assert squad_metrics({"x": "Oder"}, examples) == Metrics(50.0, 50.0, 2)


def test_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no examples to score"):
        mean_metrics([])
