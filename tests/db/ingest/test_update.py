import os
from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.ingest.update import ingest, main
from db.models import Step
from elasticqa.run.journal import Journal
from tests.support.journals import attempt_line, end_line, journal_path, setup_line, step_line, write_run
from tests.support.processes import run_python
from tests.support.rows import every_row, ingest_at_once, of_runs, rebuilt, the_run


def test_ingest_twice_changes_nothing(engine: Engine, runs: Path) -> None:
    write_run(runs, "a")
    first = ingest(engine, runs)
    before = every_row(engine)
    second = ingest(engine, runs)
    assert first.num_lines > 9
    assert (second.run_ids, second.num_lines, second.problems) == (set(), 0, [])
    assert every_row(engine) == before


def test_ingest_in_pieces_equals_ingest_at_once(engine: Engine, runs: Path, tmp_path: Path) -> None:
    source = write_run(tmp_path / "source", "a", num_steps=40).read_bytes()
    target = journal_path(runs, "a")
    for end in range(0, len(source) + 97, 97):
        target.write_bytes(source[:end])
        ingest(engine, runs)
    assert every_row(engine) == rebuilt(runs, tmp_path)


def test_small_chunks_and_batches_give_equal_rows(
    engine: Engine, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        write_run(runs, name, num_steps=60)
    at_once = rebuilt(runs, tmp_path)
    monkeypatch.setattr("db.ingest.journal_files.CHUNK_BYTES", 3000)
    monkeypatch.setattr("db.ingest.update.BATCH_BYTES", 7000)
    ingest(engine, runs)
    assert every_row(engine) == at_once


def test_replaced_journal_is_read_again(engine: Engine, runs: Path, tmp_path: Path) -> None:
    write_run(runs, "a", num_steps=50)
    write_run(runs, "a_b", num_steps=3)
    ingest(engine, runs)
    write_run(runs, "a", num_steps=4)
    (problem,) = of_runs(ingest(engine, runs))
    assert "is shorter than before: the run is read again" in problem
    assert the_run(engine, "a").step == 4
    assert every_row(engine) == rebuilt(runs, tmp_path)


def test_journal_written_by_elasticqa_is_read(engine: Engine, runs: Path) -> None:
    with Journal(runs / "a", 1, 0) as journal:
        for line in (attempt_line("a"), setup_line(), step_line(1, loss=float("nan")), end_line(1)):
            journal.write(line.pop("kind"), line)
    assert ingest(engine, runs).problems == []
    with Session(engine) as session:
        assert session.scalars(select(Step)).one().loss is None
    assert the_run(engine, "a").status == "finished"


def test_concurrent_ingests_neither_lose_nor_duplicate_rows(runs: Path, tmp_path: Path) -> None:
    assert ingest_at_once(f"sqlite:///{tmp_path / 'shared.db'}", runs, tmp_path) == rebuilt(runs, tmp_path)


def test_command_fills_a_new_database_and_prints_counts(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(runs, "a")
    path.write_bytes(path.read_bytes().replace(b'"grad_norm": 0.5', b'"grad_norm": "x"', 1))
    assert main(["--home", str(tmp_path), "--url", f"sqlite:///{tmp_path / 'new' / 'x.db'}"]) == 0
    out, err = capsys.readouterr()
    assert "of 9 runs; 1 problems" in out
    assert "a/journal/attempt-0001-node-00000.jsonl:3 has grad_norm='x'" in err


def test_module_runs_in_the_home_of_the_environment(runs: Path, tmp_path: Path) -> None:
    write_run(runs, "a")
    environ = {**os.environ, "ELASTICQA_HOME": str(tmp_path), "ELASTICQA_DB_URL": ""}
    done = run_python("-m", "db.ingest", env=environ)
    assert "of 9 runs; 0 problems" in done.stdout
    assert (tmp_path / "elasticqa.db").is_file()
