"""`elasticqa predict`: the answers of evaluation, from a directory or a run, in the official format."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from elasticqa.cli.predict import main
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.squad.read import Example, read_squad
from elasticqa.data.task import load_task
from elasticqa.distributed.topology import Topology
from elasticqa.models.question_answering import QuestionAnswerer, load_model
from elasticqa.training.evaluation import Evaluator
from elasticqa.training.prediction import Predictor
from tests.support.begun_runs import make_run
from tests.support.squad_samples import CONTEXT, QUESTIONS, document, write

QUESTION = "How long is the Oder?"


def predict(home: Path, *argv: str | Path) -> int:
    return main([str(argument) for argument in argv], {"ELASTICQA_HOME": str(home)})


@pytest.fixture
def run(tiny_model: Path, tmp_path: Path) -> Path:
    """Return a finished run of windows of 60 tokens, under the home directory ``tmp_path``."""
    config = TrainConfig(max_length=60, doc_stride=20, max_answer_length=3)
    directory = make_run(tmp_path / "runs", "01RUN", {"kind": "end", "status": "finished"}, config=config.to_dict())
    shutil.copytree(tiny_model, directory / "model")
    return directory


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write(tmp_path / "questions.json", document())


def without_answers(keep: int) -> dict[str, Any]:
    content = document()
    for question in content["data"][0]["paragraphs"][0]["qas"][keep:]:
        question["answers"] = []
    del content["data"][0]["paragraphs"][0]["qas"][-1]["answers"]
    return content


def test_answers_and_figures_are_those_of_evaluation(
    tiny_model: Path, tiny_squad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig(model=str(tiny_model), dataset=str(tiny_squad), max_length=160, doc_stride=32)
    task = load_task(config, tmp_path)
    assert task.dev is not None
    evaluator = Evaluator(
        features=task.dev,
        examples=task.dev_examples,
        topology=Topology.from_env({}),
        precision="fp32",
        max_answer_length=config.max_answer_length,
        run_directory=tmp_path,
        attempt=1,
    )
    figures = evaluator(QuestionAnswerer(*load_model(tiny_model, config)), 0)
    assert figures is not None
    assert figures.predictions is not None
    kept = [json.loads(line) for line in (tmp_path / figures.predictions).read_text(encoding="utf-8").splitlines()]

    output = tmp_path / "answers.json"
    lengths = ("--max-length=160", "--doc-stride=32")
    assert predict(tmp_path, tiny_model, "--input", tiny_squad / "dev.json", "--output", output, *lengths) == 0
    answers = json.loads(output.read_text(encoding="utf-8"))
    assert answers == {line["id"]: line["prediction"] for line in kept}
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == f"EM {figures.em:.2f}  F1 {figures.f1:.2f}  (20 questions)"
    assert captured.err == ""


@pytest.mark.parametrize("name", ["01RUN", "01R", "directory", "model"])
def test_run_and_its_directories_answer_with_the_lengths_of_the_run(
    name: str, run: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = {"directory": str(run), "model": str(run / "model")}.get(name, name)
    assert predict(tmp_path, model, "--input", questions) == 0
    answers = json.loads(capsys.readouterr().out)
    expected = Predictor.load(run / "model")(read_squad(questions, for_training=False).examples)
    assert answers == {prediction.id: prediction.text for prediction in expected}
    predictor = Predictor.load(run / "model")
    assert (predictor.windowing.max_length, predictor.windowing.doc_stride) == (60, 20)
    assert predictor.max_answer_length == 3
    for text in answers.values():
        assert text
        assert text in CONTEXT


def test_lengths_asked_for_win_over_those_of_the_run(run: Path) -> None:
    predictor = Predictor.load(run / "model", max_length=50, doc_stride=10)
    assert (predictor.windowing.max_length, predictor.windowing.doc_stride) == (50, 10)


def test_model_of_no_run_answers_with_windows_that_it_has_positions_for(tiny_model: Path) -> None:
    windowing = Predictor.load(tiny_model).windowing
    assert windowing.max_length == 192
    assert windowing.doc_stride < 192


def test_one_question_gives_its_answer_alone(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(tmp_path, tiny_model, "--question", QUESTION, "--context", CONTEXT) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.out.strip() in CONTEXT
    assert captured.err == ""


def test_figures_stay_out_of_answers_on_standard_output(
    tiny_model: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(tmp_path, tiny_model, "--input", questions) == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)) == [key for key, _, _ in QUESTIONS]
    assert captured.err.startswith("EM ")
    assert captured.err.endswith("(4 questions)\n")


@pytest.mark.parametrize(("keep", "figures"), [(0, ""), (2, "(2 of 4 questions)\n")])
def test_questions_without_answers_are_answered_and_not_scored(
    keep: int, figures: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test.json.gz"
    path.write_bytes(gzip.compress(json.dumps(without_answers(keep)).encode()))
    assert predict(tmp_path, tiny_model, "--input", path) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 4
    assert captured.err.endswith(figures)
    assert captured.err.startswith("EM") == bool(keep)


def test_long_context_is_answered_from_all_its_windows(tiny_model: Path) -> None:
    predictor = Predictor.load(tiny_model, max_length=64, doc_stride=16)
    example = Example("x", "", CONTEXT * 20, QUESTION, (), 0)
    (prediction,) = predictor([example])
    assert prediction.start_char is not None
    assert example.context.startswith(prediction.text, prediction.start_char)


def refused(home: Path, capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    """Return the one line that a wrong request ends with."""
    assert predict(home, *argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("elasticqa predict: ")
    return captured.err


def test_unfinished_run_has_no_model(run: Path, questions: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.rmtree(run / "model")
    assert "run 01RUN has no model yet" in refused(tmp_path, capsys, "01RUN", "--input", questions)


def test_model_that_is_nowhere_is_refused(questions: Path, tmp_path: Path, capsys: Any) -> None:
    assert "run 'nowhere' is not in" in refused(tmp_path, capsys, "nowhere", "--input", questions)


def test_encoder_without_a_trained_head_is_refused(minilm: Path, questions: Path, tmp_path: Path, capsys: Any) -> None:
    message = refused(tmp_path, capsys, minilm, "--input", questions)
    assert "was not trained to answer questions: its config.json says BertModel" in message


def test_damaged_model_is_refused(tiny_model: Path, questions: Path, tmp_path: Path, capsys: Any) -> None:
    for name, part in {"config.json": "config", "tokenizer.json": "tokenizer", "model.safetensors": "loaded"}.items():
        damaged = tmp_path / f"without-{len(name)}"
        shutil.copytree(tiny_model, damaged)
        (damaged / name).write_text("{", encoding="utf-8")
        message = refused(tmp_path, capsys, damaged, "--input", questions)
        assert "model=" in message
        assert part in message


def test_bad_questions_are_refused(tiny_model: Path, tmp_path: Path, capsys: Any) -> None:
    content = document()
    del content["data"][0]["paragraphs"][0]["qas"][1]["question"]
    path = write(tmp_path / "bad.json", content)
    assert "question 2, id 'q2', field question: is missing" in refused(tmp_path, capsys, tiny_model, "--input", path)
    assert "cannot be read" in refused(tmp_path, capsys, tiny_model, "--input", tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("question", "context", "part"),
    [(" ", CONTEXT, "question=' ' is empty"), (QUESTION, "", "context='' is empty"), ("\udcff", "c", "is not UTF-8")],
)
def test_text_that_cannot_be_asked_is_refused(
    question: str, context: str, part: str, tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    assert part in refused(tmp_path, capsys, tiny_model, "--question", question, "--context", context)


def test_question_too_long_for_a_window_is_refused_with_the_option(
    tiny_model: Path, tmp_path: Path, capsys: Any
) -> None:
    message = refused(
        tmp_path, capsys, tiny_model, "--question", "why " * 200, "--context", CONTEXT * 3, "--max-length", "160"
    )
    assert "--max-length" in message


def test_output_is_checked_before_the_work(tiny_model: Path, questions: Path, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "absent" / "answers.json"
    assert "create" in refused(tmp_path, capsys, tiny_model, "--input", questions, "--output", output)
    refused(tmp_path, capsys, tiny_model, "--input", questions, "--output", tmp_path)


@pytest.mark.parametrize("argv", [[], ["--question", "q"], ["--context", "c"], ["--input", "f", "--question", "q"]])
def test_half_a_request_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["model", *argv], {})
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
