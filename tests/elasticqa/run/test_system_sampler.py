import json
import threading
from pathlib import Path

import psutil
import pytest
import torch

from elasticqa.run.journal import Journal
from elasticqa.run.system_sampler import sample, system_sampler


def test_sample_has_cpu_memory_and_every_gpu() -> None:
    facts = sample(node_rank=2)
    assert facts["node_rank"] == 2
    assert 0 <= facts["cpu_percent"] <= 100
    assert 0 < facts["memory_bytes"] < psutil.virtual_memory().total
    assert [gpu["index"] for gpu in facts["gpus"]] == list(range(torch.cuda.device_count()))
    json.dumps(facts, allow_nan=False)


def test_unsupported_query_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise RuntimeError("no answer")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "utilization", refuse)
    monkeypatch.setattr(torch.cuda, "device_memory_used", lambda _: 2**30)
    monkeypatch.setattr(torch.cuda, "power_draw", lambda _: 250_500)
    (gpu,) = sample(0)["gpus"]
    assert gpu == {"index": 0, "utilization_percent": None, "memory_bytes": 2**30, "power_w": 250.5}


@pytest.mark.gpu
def test_sample_of_a_gpu_has_its_memory() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert sample(0)["gpus"][0]["memory_bytes"] > 0


def test_sampler_writes_lines_until_it_is_stopped(tmp_path: Path) -> None:
    pause = threading.Event()
    with Journal(tmp_path, 1, 4) as journal:
        with system_sampler(journal, node_rank=4, interval_s=0.001):
            while journal.path.read_bytes().count(b"\n") < 3:
                pause.wait(0.001)
                journal.flush()
        journal.flush()
        size = journal.path.stat().st_size
        lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert journal.path.stat().st_size == size, "written after the end of the block"
    assert {(line["kind"], line["node_rank"]) for line in lines} == {("system", 4)}


def test_sampler_stops_at_once_with_a_long_interval(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0) as journal, system_sampler(journal, node_rank=0, interval_s=3600.0):
        pass
