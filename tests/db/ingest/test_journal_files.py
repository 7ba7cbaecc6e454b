import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db.ingest.update import ingest
from db.models import Run
from tests.support.journals import attempt_line, journal_path, numbered, step_line, write_run
from tests.support.rows import of_runs, the_run


def test_incomplete_last_line_is_read_once_complete(engine: Engine, runs: Path) -> None:
    path = journal_path(runs, "a")
    whole = numbered([attempt_line("a"), step_line(1), step_line(2)])
    path.write_bytes(whole[:-20])
    assert ingest(engine, runs).problems == []
    assert the_run(engine, "a").step == 1
    path.write_bytes(whole)
    ingest(engine, runs)
    assert the_run(engine, "a").step == 2


def test_invalid_last_line_is_reported_once_others_follow(engine: Engine, runs: Path) -> None:
    path = journal_path(runs, "a")
    path.write_bytes(numbered([attempt_line("a")]) + b"\0\0\0\n")
    assert ingest(engine, runs).problems == []
    path.write_bytes(path.read_bytes() + numbered([step_line(1)], first=3))
    (problem,) = of_runs(ingest(engine, runs))
    assert problem.startswith("a/journal/attempt-0001-node-00000.jsonl:2 is not JSON")
    assert the_run(engine, "a").step == 1


def test_many_damaged_lines_are_counted(engine: Engine, runs: Path) -> None:
    path = journal_path(runs, "a")
    path.write_bytes(numbered([attempt_line("a")]) + b"{\n" * 1000 + numbered([step_line(1)], first=1002))
    problems = of_runs(ingest(engine, runs))
    assert len(problems) == 21
    assert problems[-1].endswith("has 980 more such lines")


def test_gap_in_line_numbers_is_reported_once(engine: Engine, runs: Path) -> None:
    path = journal_path(runs, "a")
    path.write_bytes(numbered([attempt_line("a"), step_line(1)]) + numbered([step_line(4)], first=5))
    (problem,) = of_runs(ingest(engine, runs))
    assert "has n=5 after n=2" in problem
    path.write_bytes(path.read_bytes() + numbered([step_line(5)], first=6))
    assert ingest(engine, runs).problems == []
    assert the_run(engine, "a").step == 5


def test_unknown_kinds_and_keys_are_ignored(engine: Engine, runs: Path) -> None:
    lines = [attempt_line("a", colour="blue"), {"kind": "weather", "wind": 3}, step_line(1, mood="good")]
    journal_path(runs, "a").write_bytes(numbered(lines))
    assert ingest(engine, runs).problems == []
    assert the_run(engine, "a").step == 1


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (attempt_line("a", schema_version=2), "schema_version=2, this release reads up to 1: upgrade"),
        (attempt_line("b"), "is of run 'b': its directory must have that name"),
        (attempt_line("a", provenance="dreamt"), "has provenance='dreamt'"),
        (attempt_line("a", config=[]), "has config=[]"),
        (step_line(1), "is not an attempt line"),
        (attempt_line("a", n="1"), "has n='1', which is not a count"),
    ],
)
def test_file_with_an_invalid_first_line_is_skipped(
    engine: Engine, runs: Path, first: dict[str, Any], message: str
) -> None:
    journal_path(runs, "a").write_bytes(numbered([first, step_line(1)]))
    write_run(runs, "good")
    (problem,) = of_runs(ingest(engine, runs))
    assert problem.startswith("a/journal/attempt-0001-node-00000.jsonl:1 ")
    assert message in problem
    with Session(engine) as session:
        assert session.get(Run, "a") is None
        assert session.get(Run, "good") is not None
    assert of_runs(ingest(engine, runs)) == [problem], "reported at every ingest"


def test_line_longer_than_a_chunk_is_reported_and_other_files_are_read(
    engine: Engine, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.ingest.journal_files.CHUNK_BYTES", 5000)
    path = journal_path(runs, "a")
    path.write_bytes(numbered([attempt_line("a"), step_line(1)]) + b"x" * 20_000)
    write_run(runs, "b", num_steps=100)
    (problem,) = of_runs(ingest(engine, runs))
    assert problem.startswith("a/journal/attempt-0001-node-00000.jsonl:2 and the next are longer than 5000")
    assert the_run(engine, "a").step == 1
    assert the_run(engine, "b").step == 100


def test_other_files_in_the_runs_directory_are_ignored(engine: Engine, runs: Path) -> None:
    write_run(runs, "a")
    (runs / "notes.txt").write_text("hello")
    (runs / "empty").mkdir()
    (runs / "-odd name").mkdir()
    (runs / "a" / "journal" / "attempt-0001.claim").write_text("")
    (runs / "a" / "journal" / "attempt-0002-node-00000.jsonl").mkdir()
    os.mkfifo(runs / "a" / "journal" / "attempt-0003-node-00000.jsonl")
    assert ingest(engine, runs).problems == []
    assert the_run(engine, "a").num_attempts == 1
