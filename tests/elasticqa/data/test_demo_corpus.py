"""The demo corpus: its files match their sources, and the builder refuses an invalid source."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.corpus import build

PARAGRAPH = (
    "The old mill at Ashford was built in 1820 by Ann Lee, a baker who had saved for nine years. When the "
    "river rose in 1851, the wheel was carried off and the sluice was broken, so that her son had to buy a "
    "steam engine. It came from Leeds on a barge. The mill kept working until 1920, although by then the "
    "village fetched most of its flour by rail from the harbour."
)
QUESTIONS = (
    "? Who built the mill? => Ann Lee",
    "? When was the wheel lost? => 1851",
    "? Where did the engine come from? => Leeds",
    "? Name the thing that brought the engine. => a barge",
)
SOURCE = "\n".join(["title: Old_Mill", "split: train", "", PARAGRAPH, *QUESTIONS, ""])


@dataclass(frozen=True)
class Entry:
    """A question of a built file, with its article and context."""

    title: str
    context: str
    id: str
    answers: list[tuple[str, int]]


def read(split: str) -> list[Entry]:
    content = json.loads((build.OUTPUT / f"{split}.json").read_text(encoding="utf-8"))
    return [
        Entry(
            article["title"],
            paragraph["context"],
            entry["id"],
            [(answer["text"], answer["answer_start"]) for answer in entry["answers"]],
        )
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]


def run(folder: Path, source: str, *options: str) -> int:
    """Build the corpus of one article in ``folder``; the article is written first."""
    (folder / "Old_Mill.txt").write_text(source, encoding="utf-8")
    return build.main(["--articles", str(folder), "--output", str(folder), *options])


def test_built_files_match_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--check"]) == 0, capsys.readouterr().err
    train, dev = capsys.readouterr().out.splitlines()
    assert train.startswith("train: ")
    assert dev.startswith("dev: ")


def test_splits_share_no_article() -> None:
    train, dev = ({entry.title for entry in read(split)} for split in build.SPLITS)
    assert train
    assert dev
    assert not train & dev


def test_each_answer_is_at_its_offset() -> None:
    for entry in read("train") + read("dev"):
        assert len(entry.answers) == 1
        for text, start in entry.answers:
            assert entry.context[start : start + len(text)] == text


def test_question_ids_are_distinct_and_24_hexadecimal_digits() -> None:
    ids = [entry.id for entry in read("train") + read("dev")]
    assert len(set(ids)) == len(ids)
    assert all(len(id_) == 24 and int(id_, 16) >= 0 for id_ in ids)


def test_corpus_has_the_promised_size() -> None:
    entries = read("train") + read("dev")
    assert len({entry.title for entry in entries}) >= 40
    assert len({entry.context for entry in entries}) >= 250
    assert len(entries) >= 1200


def test_no_paragraph_exceeds_110_tokens() -> None:
    count_tokens = build.token_counter(None)
    assert max(count_tokens(context) for context in {entry.context for entry in read("train") + read("dev")}) <= 110


def test_token_counter_counts_words_and_pieces_without_special_tokens() -> None:
    assert build.token_counter(None)("The lighthouse, unlit.") == 6  # the lighthouse , un ##lit .


def test_valid_source_is_written_as_squad_json_of_its_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, SOURCE.replace("=> 1851", "=> by @2")) == 0
    train = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    (article,) = train["data"]
    (paragraph,) = article["paragraphs"]
    assert (train["version"], article["title"], paragraph["context"]) == ("1.1", "Old_Mill", PARAGRAPH)
    assert [entry["question"] for entry in paragraph["qas"]] == [line[2:].split(" => ")[0] for line in QUESTIONS]
    first = PARAGRAPH.index("by")
    assert paragraph["qas"][1]["answers"] == [{"text": "by", "answer_start": PARAGRAPH.index("by", first + 1)}]
    assert json.loads((tmp_path / "dev.json").read_text(encoding="utf-8"))["data"] == []
    assert "train: 1 articles, 1 paragraphs, 4 questions" in capsys.readouterr().out


def test_id_stays_when_another_question_is_added(tmp_path: Path) -> None:
    def ids() -> list[str]:
        content = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
        return [entry["id"] for entry in content["data"][0]["paragraphs"][0]["qas"]]

    run(tmp_path, SOURCE)
    before = ids()
    run(tmp_path, SOURCE.replace(QUESTIONS[0], f"? Who ground the corn? => Ann Lee\n{QUESTIONS[0]}"))
    assert ids()[1:] == before


def test_check_fails_when_a_source_changed_after_the_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, SOURCE) == 0
    assert run(tmp_path, SOURCE, "--check") == 0
    assert run(tmp_path, SOURCE.replace("Who built", "Who founded"), "--check") == 1
    assert "train.json does not match the sources" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Old_Mill", "title: New_Mill", 'Old_Mill.txt: title "New_Mill" belongs in a file of that name'),
        ("title: Old_Mill\n", "", 'Old_Mill.txt: must start with "title: <Title>"'),
        ("split: train", "split: test", 'Old_Mill.txt: split "test" is not one of train, dev'),
        ("from the harbour.", "from the harbour. " + "It stood. " * 20, "tokens; it must have 60 to 110"),
        (PARAGRAPH, "Ann Lee lived in Leeds until 1851 and had a barge.", "tokens; it must have 60 to 110"),
        ("nine years. When", "nine years.\nWhen", 'question 1: "When the river rose'),
        ("nine years. When", "nine years.  When", "paragraph 1: separate words by one space"),
        ("old mill", "old *mill*", "paragraph 1: * is markup"),
        ("old mill", "\u201cold\u201d mill", "paragraph 1: \u201c is a curly quote"),
        ("old mill", "ole\u0301 mill", "paragraph 1: accents must be in composed form"),
        (QUESTIONS[0] + "\n", "", "paragraph 1: 3 questions; must be 4 to 6"),
        (QUESTIONS[0], "\n".join(f"? Who built number {i}? => Ann Lee" for i in range(4)), "7 questions"),
        (QUESTIONS[0], "\n" + QUESTIONS[0], 'paragraph 2: starts with "? Who built the mill?'),
        (" => Leeds", " Leeds", 'question 3: "? Where did the engine come from? Leeds" must be'),
        ("=> Leeds", "=> London", 'question 3: answer "London" @1 is not in the paragraph, which has 0'),
        ("=> Leeds", "=> Leeds @2", 'question 3: answer "Leeds" @2 is not in the paragraph, which has 1'),
        ("=> 1851", "=> 185", 'question 2: answer "185" @1 cuts a word'),
        ("=> a barge", "=> bar", 'question 4: answer "bar" @1 cuts a word'),
        ("=> a barge", f"=> {PARAGRAPH[:100]}", "is over 15 words"),
        ("the mill?", "the mill", 'question 1: "Who built the mill" must end with "?"'),
        ("When was the wheel lost?", "WHO built the mill?", 'question "who built the mill?" occurs twice'),
    ],
)
def test_invalid_source_is_refused_with_place_and_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    assert old in SOURCE
    assert run(tmp_path, SOURCE.replace(old, new, 1)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "train.json").exists()


def test_all_problems_are_shown_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, SOURCE.replace("=> Leeds", "=> London").replace("=> 1851", "=> 1852")) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_folder_without_articles_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--articles", str(tmp_path), "--output", str(tmp_path)]) == 1
    assert "has no .txt file" in capsys.readouterr().err


def test_folder_without_tokenizer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, SOURCE, "--tokenizer", str(tmp_path)) == 1
    assert "give --tokenizer a directory with a tokenizer.json" in capsys.readouterr().err
