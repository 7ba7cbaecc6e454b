"""A dashboard served by uvicorn, and Chromium to visit it."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.support.browser_visits import Server, Visit, wait_for_answer
from tests.support.dashboard_lab import write_lab
from tests.support.paths import REPOSITORY
from tests.support.servers import free_port

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--headless=new",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error("policy violation", event.effectiveDirective, event.blockedURI, event.sourceFile));
"""


def wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/api/speedup", timeout=5):
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
    pytest.fail(f"the dashboard did not start: exit status {process.poll()}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    write_lab(home / "runs", time.time())
    environment = {**os.environ, "ELASTICQA_HOME": str(home), "ELASTICQA_DASHBOARD_INGEST_INTERVAL_S": "0.2"}
    environment.pop("ELASTICQA_DB_URL", None)
    address = f"http://127.0.0.1:{(port := free_port())}"
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "dashboard.app:app", "--port", str(port)],
            cwd=REPOSITORY,
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until_ready(address, process)
            token = (home / "dashboard-token").read_text().strip()
            assert f"{address}/?token={token}" in (home / "log").read_text()
            yield Server(address, token, home / "runs")
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    yield context
    context.close()


@pytest.fixture
def visit(context: BrowserContext) -> Visit:
    page = context.new_page()
    visit = Visit(page)
    page.add_init_script(REPORT_VIOLATIONS)
    page.on("console", visit.on_console)
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("request", lambda request: visit.addresses.append(request.url))
    return visit


@pytest.fixture
def guest(visit: Visit, server: Server) -> Visit:
    """Return a tab that has logged in with the link, once all runs are ingested."""
    visit.open(f"{server.address}/?token={server.token}")
    wait_for_answer(visit, "/healthz", "(text) => JSON.parse(text).num_runs >= 40")
    return visit
