"""The pages in Chromium, served by uvicorn: drawn, quiet, and closed to the outside."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.conftest import REPOSITORY
from tests.dashboard_data import Life, RunSpec, ulid, write_run
from tests.dashboard_lab import write_lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = "/usr/bin/chromium"
IMAGES = REPOSITORY / "docs" / "images"
KILLED = ulid(100)
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


@dataclass(frozen=True)
class Server:
    """A running dashboard."""

    address: str
    token: str
    runs_dir: Path


@dataclass
class Visit:
    """A page with everything that it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def hear(self, said: ConsoleMessage) -> None:
        """Remember a complaint of the console."""
        if said.type in {"error", "warning"}:
            self.complaints.append(said.text)

    def open(self, address: str) -> None:
        """Load an address and wait until every chart in sight is drawn."""
        self.page.goto(address)
        self.page.wait_for_load_state("networkidle")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
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
            wait_for(address, process)
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
    page.on("console", visit.hear)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("request", lambda request: visit.addresses.append(request.url))
    return visit


@pytest.fixture
def guest(visit: Visit, server: Server) -> Visit:
    """Return a visit that has used the link and whose runs are all ingested."""
    visit.open(f"{server.address}/?token={server.token}")
    visit.page.wait_for_function(
        "() => fetch('/healthz').then((answer) => answer.json()).then((health) => health.num_runs >= 40)"
    )
    return visit


def show_all(visit: Visit) -> None:
    """Scroll through the page until every chart is drawn."""
    charts = visit.page.locator("[data-figure]")
    for index in range(charts.count()):
        charts.nth(index).scroll_into_view_if_needed()
        charts.nth(index).locator("svg.main-svg").first.wait_for()


def picture(visit: Visit, name: str, height: int) -> None:
    """Keep a picture of the page for the documentation, when asked to."""
    if os.environ.get("ELASTICQA_WRITE_SCREENSHOTS") != "1":
        return
    IMAGES.mkdir(parents=True, exist_ok=True)
    visit.page.evaluate("window.scrollTo(0, 0)")
    visit.page.mouse.move(0, 0)
    visit.page.set_viewport_size({"width": 1400, "height": height})
    # The charts follow the new size with a delay of their own.
    visit.page.wait_for_timeout(500)
    visit.page.screenshot(path=IMAGES / name)


def check(visit: Visit, server: Server) -> None:
    """Fail on anything that the page complained about or asked of others."""
    assert visit.complaints == []
    assert [url for url in visit.addresses if not url.startswith((server.address, "data:", "blob:"))] == []


def test_visitor_without_link_sees_the_way_in(visit: Visit, server: Server) -> None:
    visit.open(f"{server.address}/runs")
    assert visit.page.get_by_role("heading", name="Log in with the dashboard's link").is_visible()


def test_link_logs_in_and_leaves_no_token_behind(guest: Visit, server: Server) -> None:
    assert guest.page.url == f"{server.address}/runs"
    guest.open(f"{server.address}/speedup")
    assert guest.page.get_by_role("heading", name="Speedup").is_visible()
    assert guest.page.evaluate("document.cookie") == ""
    check(guest, server)


def test_table_of_runs_filters_and_sorts(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs")
    picture(guest, "runs.png", 900)
    guest.page.get_by_label("Status").select_option("finished")
    guest.page.get_by_role("button", name="Filter").click()
    guest.page.get_by_role("link", name="F1").click()
    scores = [float(text) for text in guest.page.locator("td[data-label=F1]").all_inner_texts() if text[0].isdigit()]
    assert len(scores) > 20
    assert scores == sorted(scores, reverse=True)
    assert set(guest.page.locator("tbody .status").all_inner_texts()) == {"finished"}
    check(guest, server)


def test_page_of_a_run_draws_every_chart(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs/{KILLED}")
    show_all(guest)
    assert guest.page.locator("[data-figure]").count() == 8
    lines = guest.page.locator("[data-figure$='/loss.json'] .scatterlayer .trace")
    assert lines.count() == 4
    assert guest.page.locator("[data-figure$='/time.json'] .barlayer .trace").count() >= 6
    picture(guest, "run.png", 1500)
    check(guest, server)


def test_speedup_and_throughput_draw_their_dots(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/speedup")
    show_all(guest)
    squad = guest.page.locator("[data-figure*='section=squad']")
    assert squad.locator(".scatterlayer .trace").count() > 7
    picture(guest, "speedup.png", 1300)
    guest.open(f"{server.address}/throughput")
    show_all(guest)
    check(guest, server)


def test_charts_follow_the_colours_of_the_system(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs/{KILLED}")
    show_all(guest)
    color = "() => getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = guest.page.evaluate(color)
    guest.page.emulate_media(color_scheme="dark")
    guest.page.wait_for_function(f"(light) => ({color})() !== light", arg=light)
    check(guest, server)


@pytest.mark.parametrize("width", [400, 1600])
def test_pages_fit_the_window(guest: Visit, server: Server, width: int) -> None:
    guest.page.set_viewport_size({"width": width, "height": 900})
    for path in ("/runs", f"/runs/{KILLED}", "/speedup", "/throughput"):
        guest.open(server.address + path)
        assert guest.page.evaluate("document.documentElement.scrollWidth") == width
    check(guest, server)


def test_running_run_is_refreshed_in_place(guest: Visit, server: Server) -> None:
    write_run(server.runs_dir, RunSpec(ulid(200), (Life(1, 3, time.time() - 10, None),), name="going on"))
    guest.page.wait_for_function(
        "() => fetch('/runs?text=going').then((a) => a.text()).then((t) => t.includes('data-live'))"
    )
    guest.open(f"{server.address}/runs")
    guest.page.evaluate("document.querySelector('#live-table h1').textContent = 'old'")
    guest.page.locator("#live-table h1", has_text="Runs").wait_for(timeout=20_000)
    check(guest, server)


def test_keyboard_reaches_the_content_first(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs")
    guest.page.keyboard.press("Tab")
    assert guest.page.evaluate("document.activeElement.textContent") == "Skip to content"
    guest.page.keyboard.press("Enter")
    assert guest.page.url.endswith("#main")
    check(guest, server)
