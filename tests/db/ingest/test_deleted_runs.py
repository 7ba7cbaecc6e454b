"""Runs with deleted directories."""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.ingest.update import forget_deleted_runs, ingest, main
from db.models import Run
from db.storage.home import is_home_database
from tests.support.journals import attempt_line, journal_path, numbered, write_run
from tests.support.rows import every_row, of_runs, rebuilt, the_run


def own_runs(engine: Engine) -> set[str]:
    with Session(engine) as session:
        return set(session.scalars(select(Run.run_id).where(Run.provenance == "measured")))


def test_deleted_run_is_removed_from_the_database_of_its_home(engine: Engine, runs: Path, tmp_path: Path) -> None:
    for name in ("a", "a_b", "c"):
        write_run(runs, name)
    ingest(engine, runs, remove_deleted=True)
    shutil.rmtree(runs / "a")
    report = ingest(engine, runs, remove_deleted=True)
    assert (report.num_deleted, report.problems) == (1, [])
    assert own_runs(engine) == {"a_b", "c"}
    assert every_row(engine) == rebuilt(runs, tmp_path)
    assert ingest(engine, runs, remove_deleted=True).num_deleted == 0


def test_deleted_run_stays_in_a_shared_database(engine: Engine, runs: Path, tmp_path: Path) -> None:
    write_run(runs, "a")
    write_run(tmp_path / "elsewhere" / "runs", "b")
    ingest(engine, runs)
    ingest(engine, tmp_path / "elsewhere" / "runs")
    shutil.rmtree(runs / "a")
    assert ingest(engine, runs).num_deleted == 0
    assert own_runs(engine) == {"a", "b"}


def test_missing_runs_directory_deletes_no_run(engine: Engine, runs: Path) -> None:
    write_run(runs, "a")
    ingest(engine, runs, remove_deleted=True)
    runs.rename(runs.with_name("away"))
    assert ingest(engine, runs, remove_deleted=True).num_deleted == 0
    assert own_runs(engine) == {"a"}


def test_run_with_a_deleted_attempt_is_read_again(engine: Engine, runs: Path, tmp_path: Path) -> None:
    write_run(runs, "a")
    journal_path(runs, "a", 2).write_bytes(numbered([attempt_line("a", 2)]))
    ingest(engine, runs, remove_deleted=True)
    assert the_run(engine, "a").num_attempts == 2
    journal_path(runs, "a", 2).unlink()
    report = ingest(engine, runs, remove_deleted=True)
    assert (report.num_deleted, len(report.run_ids), of_runs(report)) == (1, 1, [])
    assert the_run(engine, "a").num_attempts == 1
    assert every_row(engine) == rebuilt(runs, tmp_path)


def test_file_below_a_file_counts_as_deleted(engine: Engine, runs: Path) -> None:
    kept, lost = (path.relative_to(runs).as_posix() for path in (write_run(runs, "a"), write_run(runs, "b")))
    ingest(engine, runs)
    shutil.rmtree(runs / "b")
    (runs / "b").write_text("no directory any more")
    assert forget_deleted_runs(engine, [runs], {kept, lost}) == {"b"}


def test_database_named_by_url_is_not_the_homes() -> None:
    assert is_home_database({"ELASTICQA_HOME": "h"})
    assert not is_home_database({"ELASTICQA_HOME": "h", "ELASTICQA_DB_URL": "sqlite:///x.db"})


def test_command_forgets_a_deleted_run_by_id(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs, "a")
    write_run(runs, "b")
    place = ["--home", str(tmp_path), "--url", f"sqlite:///{tmp_path / 'team.db'}"]
    assert main(place) == 0
    assert main([*place, "--forget", "a"]) == 2
    assert "delete that first" in capsys.readouterr().err
    shutil.rmtree(runs / "a")
    assert main([*place, "--forget", "a"]) == 0
    assert "a: 9 lines removed" in capsys.readouterr().out
    assert main([*place, "--forget", "a"]) == 2
    assert "not in the database" in capsys.readouterr().err


def test_command_prints_the_number_of_deleted_runs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELASTICQA_DB_URL", raising=False)
    write_run(runs, "a")
    write_run(runs, "b")
    assert main(["--home", str(tmp_path)]) == 0
    shutil.rmtree(runs / "a")
    capsys.readouterr()
    assert main(["--home", str(tmp_path)]) == 0
    assert "0 problems; 1 runs deleted" in capsys.readouterr().out
