"""How long the server takes for the pages, over a record of many runs.

    python benchmarks/dashboard_speed.py --database-url sqlite:////tmp/speed.db --results benchmarks/results/x.json

The database must be empty; it is migrated and filled by this script, with rows as ingest would write them. The pages
are served by uvicorn and asked for one after the other over one connection, gzip accepted; a time is that of a whole
answer, at the client.
"""

import argparse
import http.client
import json
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, func, insert, select, text

from db.engine import create_engine_for, migrate, writing
from db.models import Attempt, Run, Step

PAGES = ("/runs", "/runs?sort=f1", "/runs?text=17&status=finished", "/speedup", "/throughput", "/runs/{run_id}")
DEVICES = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB", "Tesla T4", "Intel(R) Xeon(R) Platinum 8480+")
NOW = 1_800_000_000.0
ROWS_AT_ONCE = 20_000


def main() -> None:
    """Fill the database and measure every page."""
    parser = argparse.ArgumentParser(description="Time of the dashboard's pages over a record of many runs.")
    parser.add_argument("--database-url", required=True, help="of an empty database, SQLite or PostgreSQL")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=10_000_000, help="of all runs together")
    parser.add_argument("--repeats", type=int, default=100, help="requests a page, after ten that do not count")
    parser.add_argument("--results", type=Path, required=True, help="JSON list that the measurements are added to")
    options = parser.parse_args()
    engine = create_engine_for(options.database_url)
    fill(engine, options.runs, options.steps)
    with engine.connect() as connection:
        steps = connection.scalar(select(func.count()).select_from(Step))
        run_id = connection.scalar(select(Run.run_id).order_by(Run.created_at.desc()).limit(1))
    common = {
        "engine": engine.dialect.name,
        "runs": options.runs,
        "steps": steps,
        "repeats": options.repeats,
        "cpu": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python", *sys.argv]),
    }
    engine.dispose()
    with served(options.database_url) as connection:
        rows = [
            {"page": page, **common, **measure(connection, page.format(run_id=run_id), options.repeats)}
            for page in PAGES
        ]
    known = json.loads(options.results.read_text()) if options.results.exists() else []
    options.results.write_text(json.dumps([*known, *rows], indent=1) + "\n")
    for row in rows:
        print(f"{row['page']:<32} p50 {row['p50_ms']:8.1f} ms  p95 {row['p95_ms']:8.1f} ms {row['bytes_gz']:>8,} B")


def fill(engine: Engine, num_runs: int, num_steps: int) -> None:
    """Write runs with one attempt each, and their steps."""
    migrate(engine)
    generator = random.Random(0)
    each = max(1, num_steps // num_runs)
    with writing(engine).begin() as connection:
        assert not connection.scalar(select(func.count()).select_from(Run)), "the database is not empty"
        for start in range(0, num_runs, 1000):
            runs = [run_row(number, each, generator) for number in range(start, min(num_runs, start + 1000))]
            connection.execute(insert(Run), runs)
            connection.execute(insert(Attempt), [attempt_row(run) for run in runs])
        at_once = max(1, ROWS_AT_ONCE // each)
        for start in range(0, num_runs, at_once):
            numbers = range(start, min(num_runs, start + at_once))
            connection.execute(insert(Step), [row for number in numbers for row in step_rows(run_id_of(number), each)])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def run_id_of(number: int) -> str:
    """Return an id of the length of a ULID."""
    return f"01KB{number:022d}"


def run_row(number: int, num_steps: int, generator: random.Random) -> dict[str, Any]:
    """Return a finished run; five follow each other with one configuration."""
    group = number // 5
    parallel = ("none", "ddp", "fsdp")[group % 3]
    world_size = 1 if parallel == "none" else 2 ** (1 + group % 3)
    f1 = 80 + 10 * generator.random()
    device = DEVICES[group % len(DEVICES)]
    start = NOW - 600.0 * number
    return {
        "run_id": run_id_of(number),
        "provenance": "measured",
        "name": f"run {number}" if number % 2 else None,
        "tags": ["sweep"] if number % 7 == 0 else [],
        "recipe": ("squad", "baseline-10k", "distributed-10k")[group % 3],
        "model": "bert-base-uncased" if group % 4 else "bert-large-uncased",
        "dataset": "squad",
        "parallel": parallel,
        "precision": "bf16",
        "config": {f"setting_{index}": index * 0.5 for index in range(40)} | {"seed": number},
        "config_digest": f"{group:016x}{0:048x}",
        "status": "finished" if number % 11 else "failed",
        "created_at": start,
        "started_at": start,
        "ended_at": start + 500,
        "last_seen_at": start + 500,
        "num_attempts": 1,
        "world_size": world_size,
        "num_nodes": 1,
        "device_type": "cpu" if "Xeon" in device else "cuda",
        "device_name": device,
        "global_batch_size": 24,
        "num_epochs": 2.0,
        "step": num_steps,
        "num_steps": num_steps,
        "num_train_features": 12 * num_steps,
        "wall_clock_s": 500.0 / world_size * generator.uniform(0.9, 1.1),
        "final_loss": generator.random(),
        "em": f1 - 7,
        "f1": f1,
        "samples_per_s": 1_000.0 * world_size * generator.uniform(0.9, 1.1),
        "tokens_per_s": 170_000.0 * world_size,
        "peak_memory_bytes": 11 * 2**30,
    }


def attempt_row(run: dict[str, Any]) -> dict[str, Any]:
    """Return the one attempt of a run."""
    shared = ("run_id", "provenance", "name", "status", "config", "started_at", "ended_at", "last_seen_at")
    numbers = (
        "world_size",
        "num_nodes",
        "wall_clock_s",
        "samples_per_s",
        "tokens_per_s",
        "peak_memory_bytes",
        "em",
        "f1",
    )
    return {name: run[name] for name in (*shared, *numbers)} | {
        "attempt": 1,
        "node_rank": 0,
        "hosts": [{"node_rank": 0, "host_name": "node00", "device_name": run["device_name"], "num_devices": 1}],
        "software": {"python": "3.11", "torch": "2.13.0"},
        "git": {},
        "scheduler": {},
        "setup": {"precision": "bf16", "model": {"flops_per_token": 510_336_012}},
        "command": [],
        "end_step": run["step"],
        "steady_features": 24 * run["step"],
        "steady_tokens": 4_100 * run["step"],
        "steady_time_s": 0.02 * run["step"],
    }


def step_rows(run_id: str, num_steps: int) -> Iterator[dict[str, Any]]:
    """Yield the steps of a run."""
    for step in range(1, num_steps + 1):
        yield {
            "run_id": run_id,
            "attempt": 1,
            "step": step,
            "t": NOW + 0.02 * step,
            "epoch": 2 * step // (num_steps + 1),
            "samples_seen": 24 * step,
            "loss": 1.0 + 5.0 / step,
            "grad_norm": 2.0 + step % 17 / 10,
            "learning_rate": 4e-5,
            "step_time_s": 0.02 + step % 13 / 1000,
            "data_time_s": 0.0004,
            "num_features": 24,
            "num_tokens": 4_100,
            "num_padded_tokens": 9_216,
            "peak_memory_bytes": 11 * 2**30,
            "is_warmup": step <= 5,
        }


@contextmanager
def served(database_url: str) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to a dashboard over the database, with an empty home directory."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "ELASTICQA_HOME": home,
            "ELASTICQA_DB_URL": database_url,
            "ELASTICQA_DASHBOARD_AUTH": "off",
            "ELASTICQA_DASHBOARD_INGEST_INTERVAL_S": "3600",
        }
        command = [sys.executable, "-m", "uvicorn", "dashboard.app:app", "--port", str(port), "--log-level", "warning"]
        process = subprocess.Popen(command, env=environment)
        try:
            yield connect(port, process)
        finally:
            process.terminate()
            process.wait()


def connect(port: int, process: subprocess.Popen[bytes]) -> http.client.HTTPConnection:
    """Return a connection once the server answers, after the ingest with which it begins."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        except ConnectionError:
            time.sleep(0.2)
        else:
            return connection
    raise SystemExit("the dashboard did not start within a minute; its message stands above")


def measure(connection: http.client.HTTPConnection, page: str, repeats: int) -> dict[str, Any]:
    """Return percentiles of the time of a page in milliseconds, and its size as sent."""
    times, size = [], 0
    for index in range(repeats + 10):
        began = time.perf_counter()
        connection.request("GET", page, headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        body = answer.read()
        if index >= 10:
            times.append(1000 * (time.perf_counter() - began))
        if answer.status != 200:
            raise SystemExit(f"{page}: status {answer.status}")
        size = len(body)
    median, slow = np.quantile(times, [0.5, 0.95])
    return {"p50_ms": round(float(median), 2), "p95_ms": round(float(slow), 2), "bytes_gz": size}


if __name__ == "__main__":
    main()
