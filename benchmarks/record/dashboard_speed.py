"""Response times of the dashboard's pages over a record of many runs.

    python -m benchmarks.record.dashboard_speed --database-url sqlite:////FOLDER/speed.db --results x.json

An empty database is migrated and filled (`fill_database.py`); a database with the right number of runs is used as it
is. uvicorn serves the pages and figures; one client requests them in sequence over one connection with gzip and
measures the time of the whole response. The first response after the start of the server is reported separately.
"""

import argparse
import http.client
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmarks.record.fill_database import fill
from db.engine import create_engine_for, migrate
from db.models import Run, Step
from db.queries import num_runs

PAGES = (
    "/runs",
    "/runs?sort=f1",
    "/runs?page=150&sort=wall_clock_s",
    "/runs?text=17&status=finished",
    "/speedup",
    "/speedup?recipe=squad",
    "/throughput",
    "/profiler",
    "/runs/{run_id}",
    "/figures/runs/{run_id}/loss.json",
    "/figures/runs/{run_id}/throughput.json",
    "/figures/runs/{run_id}/timeline.json",
    "/figures/speedup.json?section=squad",
    "/figures/throughput.json",
)
WARMUPS = 10
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def main() -> None:
    """Fill the database and measure every page."""
    parser = argparse.ArgumentParser(description="Response times of the dashboard's pages over a record of many runs.")
    parser.add_argument("--database-url", required=True, help="empty database, SQLite or PostgreSQL")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=10_000_000, help="sum over all runs")
    parser.add_argument("--repeats", type=int, default=100, help="requests per page, after ten for warm-up")
    parser.add_argument("--results", type=Path, required=True, help="JSON list to which the measurements are added")
    options = parser.parse_args()
    engine = create_engine_for(options.database_url)
    migrate(engine)
    with Session(engine) as session:
        found = num_runs(session)
    if not found:
        fill(engine, options.runs, options.steps)
    with Session(engine) as session:
        # Reported runs are added when the server starts.
        runs = session.scalar(select(func.count()).where(Run.provenance == "measured"))
        steps = session.scalar(select(func.count()).select_from(Step))
        run_id = session.scalar(select(Run.run_id).where(Run.status == "finished").order_by(Run.created_at.desc()))
    if runs != options.runs:
        raise SystemExit(f"--runs {options.runs}, but the database has {runs} runs: use an empty database")
    common = {
        "engine": engine.dialect.name,
        "runs": runs,
        "steps": steps,
        "repeats": options.repeats,
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python -m benchmarks.record.dashboard_speed --runs {options.runs} --steps {options.steps}",
    }
    engine.dispose()
    with served(options.database_url) as connection:
        rows = [
            {"page": page, **common, **measure(connection, page.format(run_id=run_id), options.repeats)}
            for page in PAGES
        ]
    known = json.loads(options.results.read_text()) if options.results.exists() else []
    options.results.write_text(json.dumps([*known, *rows], indent=1) + "\n")
    print(table(rows))


def table(measurements: list[dict[str, Any]]) -> str:
    """Return the measurements of one size as a Markdown table, with one column per database engine."""
    by_page: dict[str, dict[str, dict[str, Any]]] = {}
    for each in measurements:
        by_page.setdefault(each["page"], {})[each["engine"]] = each
    engines = list(dict.fromkeys(each["engine"] for each in measurements))
    heads = [f"{NAMES[engine]} p50, p95 (first) ms" for engine in engines]
    lines = ["| page | " + " | ".join(heads) + " | bytes sent |", "|---" * (len(engines) + 2) + "|"]
    for page, found in by_page.items():
        cells = [
            f"{found[engine]['p50_ms']:.1f}, {found[engine]['p95_ms']:.1f} ({found[engine]['first_ms']:.0f})"
            for engine in engines
        ]
        size = max(each["bytes_gz"] for each in found.values())
        lines.append(f"| `{page}` | {' | '.join(cells)} | {size:,} |")
    return "\n".join(lines)


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


@contextmanager
def served(database_url: str) -> Iterator[http.client.HTTPConnection]:
    """Start a dashboard on the database with an empty home directory; yield a connection to it."""
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
            with closing(connect(port, process)) as connection:
                yield connection
        finally:
            process.terminate()
            process.wait()


def connect(port: int, process: subprocess.Popen[bytes]) -> http.client.HTTPConnection:
    """Return a connection once the server responds."""
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
    raise SystemExit("the dashboard did not start within a minute; see its message above")


def measure(connection: http.client.HTTPConnection, page: str, repeats: int) -> dict[str, Any]:
    """Return percentiles of the response time in milliseconds, and the compressed size."""
    times, size = [], 0
    for _ in range(1 + WARMUPS + repeats):
        began = time.perf_counter()
        connection.request("GET", page, headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        body = answer.read()
        times.append(1000 * (time.perf_counter() - began))
        if answer.status != 200:
            raise SystemExit(f"{page}: status {answer.status}")
        size = len(body)
    median, slow = np.quantile(times[1 + WARMUPS :], [0.5, 0.95])
    times_ms = {"p50_ms": float(median), "p95_ms": float(slow), "first_ms": times[0]}
    return {name: round(value, 2) for name, value in times_ms.items()} | {"bytes_gz": size}


if __name__ == "__main__":
    main()
