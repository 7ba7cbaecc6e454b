"""`elasticqa prepare` with local paths and a fake hub, and training afterwards without a network."""

import json
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support import training
from tests.support.processes import run_python
from tests.support.servers import serving

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "someone/tiny"


@pytest.fixture
def hub(tiny_model: Path) -> Iterator[str]:
    """Return the address of a server that answers like the Hugging Face hub and has one model."""

    def answer(address: str) -> tuple[int, bytes, dict[str, str]]:
        path, headers = address.partition("?")[0], {"X-Repo-Commit": COMMIT}
        file = tiny_model / path.rpartition("/")[2]
        if path in (f"/api/models/{MODEL}", f"/api/models/{MODEL}/revision/main"):
            status, body = 200, json.dumps({"id": MODEL, "sha": COMMIT}).encode()
        elif path.startswith(f"/{MODEL}/resolve/") and file.is_file():
            status, body = 200, file.read_bytes()
        else:
            status, body = 404, b'{"error": "Entry not found"}'
            headers["X-Error-Code"] = "EntryNotFound"
        return status, body, {**headers, "ETag": f'"{sha256(body).hexdigest()}"'}

    with serving(answer) as port:
        yield f"http://127.0.0.1:{port}"


def prepare(home: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command and return the process."""
    return run_python("-m", "elasticqa.cli.main", "prepare", *flags, env=training.environment(home, **variables))


def flags(model: str | Path, data: Path) -> list[str]:
    """Return the options of a run of recipe `squad` on small data."""
    return [
        "--recipe=squad", f"--model={model}", f"--dataset={data}", "--max-length=160", "--doc-stride=32",
        "--max-steps=1",
    ]  # fmt: skip


def test_paths_are_prepared_and_listed_with_sizes(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    done = prepare(tmp_path, *flags(tiny_model, tiny_squad))
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if " MB " in line}
    assert rows["model"].endswith(str(tiny_model))
    assert "53 questions" in rows["train"]
    assert rows["dev"].endswith(str(tiny_squad / "dev.json"))
    assert "53 train, 20 dev" in rows["features"]
    assert rows["features"].endswith(str(tmp_path / "cache" / "features"))
    assert f"export ELASTICQA_HOME={tmp_path} HF_HUB_OFFLINE=1" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_training_uses_the_prepared_features(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    assert prepare(tmp_path, *flags(tiny_model, tiny_squad)).returncode == 0
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert made
    assert training.train(tmp_path, *flags(tiny_model, tiny_squad)).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")} == made


def test_prepared_model_of_the_hub_trains_without_a_network(hub: str, tiny_squad: Path, tmp_path: Path) -> None:
    home, cache = tmp_path / "home", tmp_path / "hf"
    arguments = flags(MODEL, tiny_squad)
    before = training.train(home, *arguments, HF_HOME=str(cache), HF_ENDPOINT="http://127.0.0.1:1")
    assert before.returncode == 2
    assert "elasticqa prepare" in before.stderr

    done = prepare(home, *arguments, HF_HOME=str(cache), HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    assert str(cache / "hub") in done.stdout
    assert f"HF_HOME={cache}" in done.stdout

    after = training.train(home, *arguments, HF_HOME=str(cache), HF_ENDPOINT="http://127.0.0.1:1")
    assert after.returncode == 0, after.stdout + after.stderr
    assert training.journal(training.only_run(home))["end"][0]["status"] == "finished"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model=/no/such/model"], "model='/no/such/model' cannot be found"),
        (["--dataset=/no/such/data"], "dataset='/no/such/data' cannot be found"),
        (["--max-length=5000"], "max_length=5000 exceeds"),
        (["--recipe=unheard-of"], "recipe='unheard-of' is not known"),
        (["--model=someone/absent"], "HF_HUB_OFFLINE is set"),
    ],
)
def test_wrong_request_is_one_line(
    more: list[str], message: str, tiny_model: Path, tiny_squad: Path, tmp_path: Path
) -> None:
    done = prepare(tmp_path, *flags(tiny_model, tiny_squad), *more)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unusable_home_is_one_line(tiny_model: Path, tiny_squad: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = prepare(tmp_path / "file" / "home", *flags(tiny_model, tiny_squad))
    assert done.returncode == 2
    assert "set ELASTICQA_HOME" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_has_an_example(tmp_path: Path) -> None:
    done = prepare(tmp_path, "--help")
    assert done.returncode == 0
    assert "elasticqa prepare --recipe squad" in done.stdout
