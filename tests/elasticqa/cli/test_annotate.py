import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import create_engine_for
from db.models import Run
from db.storage.home import database_url
from elasticqa.cli.annotate import main
from elasticqa.errors import ConfigError
from elasticqa.run.annotations import annotate
from elasticqa.run.home import find_run
from tests.support.journals import write_run


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    write_run(tmp_path / "runs", "01AAA")
    write_run(tmp_path / "runs", "01ABB")
    return {"ELASTICQA_HOME": str(tmp_path)}


def lines_of(environ: dict[str, str], run_id: str) -> list[dict[str, Any]]:
    path = Path(environ["ELASTICQA_HOME"]) / "runs" / run_id / "annotations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def the_run(environ: dict[str, str], run_id: str) -> Run:
    engine = create_engine_for(database_url(environ))
    with Session(engine) as session:
        run = session.scalars(select(Run).where(Run.run_id == run_id)).one()
    engine.dispose()
    return run


def test_annotations_are_appended_and_ingested(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["01AAA", "--name", "grün", "--tag", "a", "--tag", "b", "--note", "n"], environ) == 0
    assert main(["01AA", "--untag", "a"], environ) == 0
    assert [(line["n"], line["kind"], line["value"]) for line in lines_of(environ, "01AAA")] == [
        (1, "name", "grün"),
        (2, "note", "n"),
        (3, "tag", "a"),
        (4, "tag", "b"),
        (5, "untag", "a"),
    ]
    run = the_run(environ, "01AAA")
    assert (run.name, run.tags, run.note) == ("grün", ["b"], "n")
    assert "01AAA: untag 'a'" in capsys.readouterr().out


def test_reported_run_is_annotated_in_the_home_directory(environ: dict[str, str]) -> None:
    assert main(["reported-squad", "--tag", "paper"], environ) == 0
    assert the_run(environ, "reported-squad").tags == ["paper"]


def test_annotation_after_a_torn_line_is_kept(environ: dict[str, str], tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "01AAA"
    (directory / "annotations.jsonl").write_text('{"n": 1, "t": 5.0, "ki')
    annotate(directory, [("tag", "x")])
    assert (directory / "annotations.jsonl").read_text().count("\n") == 2
    assert main(["01AAA", "--tag", "y"], environ) == 0
    assert the_run(environ, "01AAA").tags == ["x", "y"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["01AAA"], "nothing to annotate: give --name"),
        (["01A", "--tag", "x"], "is a prefix of 2 runs: give more characters of 01AAA, 01ABB"),
        (["zz", "--tag", "x"], "run 'zz' is not in "),
        (["", "--tag", "x"], "run '' is not in "),
        (["01AAA", "--tag", " "], "is blank"),
        (["01AAA", "--note", "\udcff"], "is not UTF-8"),
    ],
)
def test_wrong_request_is_one_line_and_changes_nothing(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert main(argv, environ) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (Path(environ["ELASTICQA_HOME"]) / "runs" / "01AAA" / "annotations.jsonl").exists()


def test_unusable_database_is_one_line_and_keeps_the_annotation(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["01AAA", "--tag", "x"], environ | {"ELASTICQA_DB_URL": "mongodb://x"}) == 2
    assert "the database URL cannot be used" in capsys.readouterr().err
    assert lines_of(environ, "01AAA")[0]["value"] == "x"


def test_find_run_without_a_runs_directory_names_the_list_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="elasticqa runs"):
        find_run("x", tmp_path / "absent")
