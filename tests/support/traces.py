"""Events and trace files for the tests of `elasticqa.profiling.trace`; times in microseconds."""

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def on_host(cat: str, name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def operator(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return on_host("cpu_op", name, ts, dur, tid)


def runtime(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return on_host("cuda_runtime", name, ts, dur, tid)


def annotation(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return on_host("user_annotation", name, ts, dur, tid)


def on_device(cat: str, name: str, ts: float, dur: float, device: int = 0, stream: int = 7) -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": device,
        "tid": stream,
        "ts": ts,
        "dur": dur,
        "args": {"device": device, "stream": stream},
    }


def kernel(name: str, ts: float, dur: float, device: int = 0, stream: int = 7) -> Event:
    return on_device("kernel", name, ts, dur, device, stream)


def write_trace(path: Path, events: list[Event], **entries: Any) -> Path:
    """Write a trace, compressed if the name ends with .gz."""
    content = json.dumps({"schemaVersion": 1, **entries, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
