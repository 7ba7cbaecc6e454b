"""A visit to the dashboard in a browser, and what every page is checked for."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Locator, Page

from tests.support.paths import REPOSITORY

IMAGES = REPOSITORY / "docs" / "images"


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

    def follow(self, way: Locator) -> None:
        """Click on what leads to another page, and wait until that is there."""
        with self.page.expect_navigation():
            way.click()


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
