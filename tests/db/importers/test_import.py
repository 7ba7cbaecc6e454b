"""`elasticqa import` and the run directories that it writes."""

import gzip
import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import create_engine_for
from db.ingest.update import update_database
from db.models import Attempt, Evaluation, Profile, Run, Step
from elasticqa.cli.import_ import main
from tests.support.imported_results import (
    ENDED_AT,
    HISTORY,
    hf_folder,
    journal_lines,
    lightning_folder,
    state,
    write_json,
)
from tests.support.traces import kernel, operator, write_trace


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"ELASTICQA_HOME": str(tmp_path / "home"), "ELASTICQA_DB_URL": f"sqlite:///{tmp_path / 'record.db'}"}


def _runs(environ: dict[str, str]) -> list[Path]:
    folder = Path(environ["ELASTICQA_HOME"]) / "runs"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_imported_run_is_in_the_record_with_its_provenance(tmp_path: Path, environ: dict[str, str]) -> None:
    assert main([str(hf_folder(tmp_path / "squad-bert"))], environ) == 0
    engine = create_engine_for(environ["ELASTICQA_DB_URL"])
    with Session(engine) as session:
        run = session.scalars(select(Run).where(Run.provenance == "imported")).one()
        attempt = session.scalars(select(Attempt).where(Attempt.run_id == run.run_id)).one()
        steps = session.scalars(select(Step).where(Step.run_id == run.run_id)).all()
        evaluations = session.scalars(select(Evaluation).where(Evaluation.run_id == run.run_id)).all()
        assert (run.name, run.status, run.model) == ("squad-bert", "finished", "bert-base-uncased")
        assert (run.em, run.f1, run.wall_clock_s, run.train_time_s) == (55.0, 65.0, 20.0, 20.0)
        assert (run.samples_per_s, run.num_train_features, run.num_steps) == (5.0, 50, 14)
        assert (run.started_at, run.ended_at) == (ENDED_AT - 20, ENDED_AT)
        assert attempt.note == "imported from Hugging Face Trainer"
        assert [step.step for step in steps] == [3, 6, 9, 12]
        assert len(evaluations) == 2
    engine.dispose()


def test_ingest_has_no_problem_with_any_imported_format(tmp_path: Path, environ: dict[str, str]) -> None:
    sources = [
        hf_folder(tmp_path / "hf"),
        lightning_folder(tmp_path / "lightning"),
        write_trace(tmp_path / "trace.json", [operator("aten::mm", 0, 10), kernel("gemm", 5, 10)]),
    ]
    assert main([str(source) for source in sources], environ) == 0
    assert len(_runs(environ)) == 3
    Path(tmp_path / "record.db").unlink()
    assert update_database(environ).problems == []


def test_second_import_changes_nothing(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hf_folder(tmp_path / "hf")
    assert main([str(folder)], environ) == 0
    (run_dir,) = _runs(environ)
    before = (run_dir / "journal" / "attempt-0001-node-00000.jsonl").read_bytes()
    renamed = folder.rename(tmp_path / "other-name")
    os.utime(renamed / "trainer_state.json", (1, 1))
    assert main([str(renamed), str(renamed / "trainer_state.json")], environ) == 0
    assert _runs(environ) == [run_dir]
    assert (run_dir / "journal" / "attempt-0001-node-00000.jsonl").read_bytes() == before
    assert capsys.readouterr().out.count("exists already") == 2


def test_different_content_is_another_run(tmp_path: Path, environ: dict[str, str]) -> None:
    path = write_json(tmp_path / "trainer_state.json", state())
    main([str(path)], environ)
    write_json(path, state(log_history=HISTORY[:-1]))
    main([str(path)], environ)
    assert len(_runs(environ)) == 2


def test_trace_becomes_a_profile_and_is_copied(tmp_path: Path, environ: dict[str, str]) -> None:
    trace = write_trace(
        tmp_path / "trace.json.gz",
        [operator("aten::mm", 0, 10), kernel("gemm", 5, 10)],
        distributedInfo={"rank": 1, "world_size": 2},
    )
    assert main([str(trace)], environ) == 0
    (run_dir,) = _runs(environ)
    assert gzip.decompress((run_dir / "traces" / "trace.json.gz").read_bytes()) == gzip.decompress(trace.read_bytes())
    engine = create_engine_for(environ["ELASTICQA_DB_URL"])
    with Session(engine) as session:
        profile = session.scalars(select(Profile)).one()
        assert (profile.rank, profile.trace) == (1, "traces/trace.json.gz")
        assert profile.summary["span_us"] == pytest.approx(15.0)
        assert session.scalars(select(Run.world_size).where(Run.run_id == run_dir.name)).one() == 2
    engine.dispose()


def test_traces_of_torch_are_imported(shared_data: Path, environ: dict[str, str]) -> None:
    assert main([str(shared_data / "traces")], environ) == 0
    assert len(_runs(environ)) == 6


def test_damaged_file_is_one_line_and_adds_no_run(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "trainer_state.json"
    damaged.write_text('{"log_history": [{"step": 1, "loss": 0.5}, {"step"')
    assert main([str(damaged)], environ) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"elasticqa import: {damaged}: character ")
    assert captured.err.count("\n") == 1
    assert _runs(environ) == []


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500, b"{}", b"[]", b"null", b"{" * 10_000])
@pytest.mark.parametrize(
    "name", ["trainer_state.json", "metrics.csv", "events.out.tfevents.1", "t.json.gz", "b.tar.gz"]
)
def test_random_bytes_under_any_name_are_refused(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main([str(tmp_path / name)], environ) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert _runs(environ) == []


@pytest.mark.parametrize("name", ["absent.json", "unknown.bin", "folder"])
def test_unknown_files_are_refused(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "unknown.bin").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    assert main([str(tmp_path / name)], environ) == 2
    assert name in capsys.readouterr().err


def test_damaged_result_does_not_prevent_other_imports(tmp_path: Path, environ: dict[str, str]) -> None:
    lightning_folder(tmp_path / "logs" / "version_0", "step,train_loss\n0\n")
    lightning_folder(tmp_path / "logs" / "version_1")
    assert main([str(tmp_path / "logs")], environ) == 2
    assert len(_runs(environ)) == 1


def test_hostile_names_and_texts_are_stored_as_text(tmp_path: Path, environ: dict[str, str]) -> None:
    folder = tmp_path / "\x1b[31m\udcff"
    hf_folder(folder)
    write_json(folder / "config.json", {"_name_or_path": "a\x00b\ud800" + "x" * 5_000, "model_type": 7})
    assert main([str(folder)], environ) == 0
    (run_dir,) = _runs(environ)
    setup = next(line for line in journal_lines(run_dir) if line["kind"] == "setup")
    assert setup["model"]["name"].startswith("a\ufffdb\ufffdx")
    assert len(setup["model"]["name"]) == 2_000
    Path(tmp_path / "record.db").unlink()
    assert update_database(environ).problems == []


def test_home_that_cannot_be_written_is_one_line_error(
    tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").write_text("a file")
    assert main([str(hf_folder(tmp_path / "hf"))], environ) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_run_directory_is_readable_by_other_users(tmp_path: Path, environ: dict[str, str]) -> None:
    main([str(hf_folder(tmp_path / "hf"))], environ)
    (run_dir,) = _runs(environ)
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o755
