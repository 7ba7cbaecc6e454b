"""One of several processes builds the cached features; if it is killed, the next one builds them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticqa.data.squad.cache import FeatureRequest, load_or_build
from elasticqa.data.squad.features import Windowing
from tests.support.paths import REPOSITORY
from tests.support.squad_samples import bert_tokenizer, document, write

WORKER = """
import sys
from pathlib import Path
from elasticqa.data.squad.cache import FeatureRequest, load_or_build
from elasticqa.data.squad.features import Windowing
from tests.support.squad_samples import wrap
from tokenizers import Tokenizer
path, cache, tokenizer = map(Path, sys.argv[1:])
tokenizer = wrap(Tokenizer.from_file(str(tokenizer)))
print("ready", flush=True)
sys.stdin.readline()
request = FeatureRequest(path, for_training=True, windowing=Windowing(40, 8))
cached = load_or_build(request, tokenizer, cache)
folder, = [child for child in cache.iterdir() if child.is_dir()]
print(folder.stat().st_ino, folder.stat().st_mtime_ns, len(cached.features), flush=True)
"""

HOLDER = """
import sys
from pathlib import Path
from db.storage.file_lock import locked
lock, unfinished = map(Path, sys.argv[1:])
with locked(lock):
    unfinished.mkdir()
    (unfinished / "input_ids.npy").write_bytes(b"torn")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def start(code: str, *arguments: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_concurrent_processes_share_one_build(tmp_path: Path) -> None:
    # Saved, since training a tokenizer breaks ties differently in each process.
    saved, path = tmp_path / "tokenizer.json", write(tmp_path / "a.json", document())
    bert_tokenizer().backend_tokenizer.save(str(saved))
    workers = [start(WORKER, path, tmp_path / "cache", saved) for _ in range(3)]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    outputs = {worker.communicate()[0] for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert len(outputs) == 1


@pytest.mark.slow
def test_next_process_builds_after_the_builder_is_killed(tmp_path: Path) -> None:
    request = FeatureRequest(write(tmp_path / "a.json", document()), True, Windowing(40, 8))
    tokenizer, cache_dir = bert_tokenizer(), tmp_path / "cache"
    before = load_or_build(request, tokenizer, cache_dir).features.input_ids.tolist()
    [folder] = [path for path in cache_dir.iterdir() if path.is_dir()]
    (folder / "meta.json").unlink()
    holder = start(HOLDER, folder.with_suffix(".lock"), folder.with_suffix(".unfinished"))
    holder.send_signal(signal.SIGKILL)
    assert load_or_build(request, tokenizer, cache_dir).features.input_ids.tolist() == before
    holder.communicate()
    assert holder.returncode == -signal.SIGKILL
    assert [path for path in cache_dir.iterdir() if path.is_dir()] == [folder]
