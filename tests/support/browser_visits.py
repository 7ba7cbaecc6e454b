"""A browser tab on the dashboard, and the checks for every page."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Locator, Page

from tests.support.paths import REPOSITORY
from tests.support.processes import until

IMAGES = REPOSITORY / "docs" / "images"


@dataclass(frozen=True)
class Server:
    """A running dashboard."""

    address: str
    token: str
    runs_dir: Path


@dataclass
class Visit:
    """A browser tab, with the errors that it reported and the addresses that it requested."""

    page: Page
    errors: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def on_console(self, message: ConsoleMessage) -> None:
        """Keep errors and warnings of the console."""
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def open(self, address: str) -> None:
        """Load an address and wait until the visible charts are drawn."""
        self.page.goto(address)
        self.page.wait_for_load_state("networkidle")

    def follow(self, link: Locator) -> None:
        """Click on a link or button and wait until the next page is loaded."""
        with self.page.expect_navigation():
            link.click()


def wait_for_answer(visit: Visit, address: str, is_wanted: str) -> None:
    """Fetch an address in the page until a JavaScript predicate of the response's text holds.

    `Page.wait_for_function` takes the promise of an async predicate for true.
    """
    script = f"(address) => fetch(address).then((answer) => answer.text()).then({is_wanted})"
    until(lambda: visit.page.evaluate(script, address), address)


def draw_all_charts(visit: Visit) -> None:
    """Scroll through the page until every chart is drawn."""
    charts = visit.page.locator("[data-figure]")
    for index in range(charts.count()):
        charts.nth(index).scroll_into_view_if_needed()
        charts.nth(index).locator("svg.main-svg").first.wait_for()


def screenshot(visit: Visit, name: str, height: int) -> None:
    """Write a screenshot to docs/images if ELASTICQA_WRITE_SCREENSHOTS is 1."""
    if os.environ.get("ELASTICQA_WRITE_SCREENSHOTS") != "1":
        return
    IMAGES.mkdir(parents=True, exist_ok=True)
    visit.page.evaluate("window.scrollTo(0, 0)")
    visit.page.mouse.move(0, 0)
    visit.page.set_viewport_size({"width": 1400, "height": height})
    # Charts adapt to the new size with a delay.
    visit.page.wait_for_timeout(500)
    visit.page.screenshot(path=IMAGES / name)


def check(visit: Visit, server: Server) -> None:
    """Assert that there were no errors and no requests to other hosts."""
    assert visit.errors == []
    assert [url for url in visit.addresses if not url.startswith((server.address, "data:", "blob:"))] == []
