"""Exact match and F1 as the official SQuAD v1.1 evaluation defines them.

Source: Rajpurkar et al. 2016, SQuAD: 100,000+ Questions for Machine Comprehension of Text (arXiv:1606.05250),
section 6.1; the normalization is that of the published evaluate-v1.1.py.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elasticqa.data.squad.read import Example

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one prediction: exact match ``em`` is 0 or 1, ``f1`` is 0..1."""

    em: int
    f1: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Mean exact match and F1 over examples, in percent."""

    em: float
    f1: float
    num_examples: int


def normalize(text: str) -> str:
    """Return the text in lower case without ASCII punctuation and articles, words separated by one space.

    >>> normalize("The  Lions' den, a cave")
    'lions den cave'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def f1_of_words(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of the words, each counted as often as it occurs.

    >>> f1_of_words(["in", "May", "1890"], ["May", "1890"])
    0.8
    """
    num_same = (Counter(prediction) & Counter(gold)).total()
    # 2PR / (P + R) with P = same / prediction and R = same / gold, written as one division
    return 2 * num_same / (len(prediction) + len(gold)) if num_same else 0.0


def score(prediction: str, golds: Iterable[str]) -> Score:
    """Return the best exact match and the best F1 over at least one gold text."""
    text = normalize(prediction)
    words = text.split()
    texts = {normalize(gold) for gold in golds}
    if words and text in texts:
        return Score(1, 1.0)
    return Score(int(text in texts), max(f1_of_words(words, gold.split()) for gold in texts))


def squad_scores(predictions: Mapping[str, str], examples: Sequence[Example]) -> list[Score]:
    """Return the score of each example in order; one without a prediction scores 0."""
    return [
        score(predictions[example.id], (answer.text for answer in example.answers))
        if example.id in predictions
        else Score(0, 0.0)
        for example in examples
    ]


def mean_metrics(scores: Sequence[Score]) -> Metrics:
    """Return the means of at least one score.

    >>> mean_metrics([Score(1, 1.0), Score(0, 0.5)])
    Metrics(em=50.0, f1=75.0, num_examples=2)
    """
    if not scores:
        raise ValueError("no examples to score: EM and F1 are means over at least one")
    num_examples = len(scores)
    em = 100 * sum(score.em for score in scores) / num_examples
    return Metrics(em, 100 * math.fsum(score.f1 for score in scores) / num_examples, num_examples)


def squad_metrics(predictions: Mapping[str, str], examples: Sequence[Example]) -> Metrics:
    """Return EM and F1 over all examples in percent; ``predictions`` maps ids to texts."""
    return mean_metrics(squad_scores(predictions, examples))
