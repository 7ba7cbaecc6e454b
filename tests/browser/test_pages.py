"""The pages in Chromium, served by uvicorn: charts are drawn, no errors, no requests to other hosts."""

import time

import pytest

from tests.support.browser_visits import Server, Visit, check, draw_all_charts, screenshot, wait_for_answer
from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_homes import KILLED, pages_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_visitor_without_login_sees_how_to_log_in(visit: Visit, server: Server) -> None:
    visit.open(f"{server.address}/runs")
    assert visit.page.get_by_role("heading", name="Log in with the dashboard's link").is_visible()


def test_link_logs_in_and_removes_the_token_from_the_address(guest: Visit, server: Server) -> None:
    assert guest.page.url == f"{server.address}/runs"
    guest.open(f"{server.address}/speedup")
    assert guest.page.get_by_role("heading", name="Speedup").is_visible()
    assert guest.page.evaluate("document.cookie") == ""
    check(guest, server)


def test_table_of_runs_filters_and_sorts(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs")
    screenshot(guest, "runs.png", 900)
    # A form with the focus is not refreshed.
    guest.page.get_by_label("Status").focus()
    guest.page.get_by_label("Status").select_option("finished")
    guest.follow(guest.page.get_by_role("button", name="Filter"))
    guest.follow(guest.page.get_by_role("link", name="F1"))
    scores = [float(text) for text in guest.page.locator("td[data-label=F1]").all_inner_texts() if text[0].isdigit()]
    assert len(scores) > 20
    assert scores == sorted(scores, reverse=True)
    assert set(guest.page.locator("tbody .status").all_inner_texts()) == {"finished"}
    check(guest, server)


def test_page_of_a_run_draws_every_chart(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs/{KILLED}")
    draw_all_charts(guest)
    assert guest.page.locator("[data-figure]").count() == 10
    lines = guest.page.locator("[data-figure$='/loss.json'] .scatterlayer .trace")
    assert lines.count() == 4
    assert guest.page.locator("[data-figure$='/time.json'] .barlayer .trace").count() >= 6
    assert guest.page.locator("[data-figure$='/timeline.json'] .scatterlayer .trace").count() == 5
    screenshot(guest, "run.png", 1500)
    check(guest, server)


def test_speedup_and_throughput_draw_their_dots(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/speedup")
    draw_all_charts(guest)
    squad = guest.page.locator("[data-figure*='section=squad']")
    assert squad.locator(".scatterlayer .point").count() > 7
    screenshot(guest, "speedup.png", 1300)
    guest.open(f"{server.address}/throughput")
    draw_all_charts(guest)
    check(guest, server)


def test_profiler_links_to_the_trace_of_a_run(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/profiler")
    draw_all_charts(guest)
    assert guest.page.locator(".barlayer .trace").count() == 7
    guest.follow(guest.page.get_by_role("link", name="preempted twice, then done"))
    draw_all_charts(guest)
    assert guest.page.locator(".barlayer .trace").count() == 5
    bars = guest.page.locator("svg.bar rect")
    widths = [bars.nth(index).evaluate("(bar) => bar.getBoundingClientRect().width") for index in range(bars.count())]
    assert len(widths) == 12
    assert 0 < min(widths) < max(widths) / 3
    with guest.page.expect_download() as download:
        guest.page.get_by_role("link", name="The trace").click()
    assert download.value.suggested_filename == f"{KILLED}-attempt-0003-rank-00000.json.gz"
    check(guest, server)


def test_predictions_are_filtered_with_the_span_marked(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs/{KILLED}")
    guest.follow(guest.page.get_by_role("link", name="Predictions →"))
    guest.page.get_by_label("Answers").select_option("wrong")
    guest.page.get_by_label("Search").fill("WHO OPENED")
    guest.follow(guest.page.get_by_role("button", name="Filter"))
    assert guest.page.locator("article").count() == 9
    assert set(guest.page.locator(".result span:first-child").all_inner_texts()) == {"wrong"}
    assert guest.page.locator("mark").first.inner_text() == "Prince of Wales. It spans 2,467 metres"
    check(guest, server)


def test_charts_use_the_colour_scheme_of_the_system(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs/{KILLED}")
    draw_all_charts(guest)
    color = "() => getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = guest.page.evaluate(color)
    guest.page.emulate_media(color_scheme="dark")
    guest.page.wait_for_function(f"(light) => ({color})() !== light", arg=light)
    check(guest, server)


@pytest.mark.parametrize("width", [400, 1600])
def test_pages_fit_the_window(guest: Visit, server: Server, width: int) -> None:
    guest.page.set_viewport_size({"width": width, "height": 900})
    for path in pages_of(KILLED):
        guest.open(server.address + path)
        assert guest.page.evaluate("document.documentElement.scrollWidth") == width
    check(guest, server)


def test_running_run_is_refreshed_in_place(guest: Visit, server: Server) -> None:
    # Its last line is in the future, so that the run does not count as lost on a slow machine.
    write_run(server.runs_dir, RunSpec(ulid(200), (AttemptSpec(1, 3, time.time() + 600, None),), name="still running"))
    wait_for_answer(guest, "/runs?text=still", "(text) => text.includes('data-live')")
    guest.open(f"{server.address}/runs")
    guest.page.evaluate("document.querySelector('#live-table h1').textContent = 'old'")
    guest.page.locator("#live-table h1", has_text="Runs").wait_for(timeout=60_000)
    check(guest, server)


def test_keyboard_reaches_the_content_first(guest: Visit, server: Server) -> None:
    guest.open(f"{server.address}/runs")
    guest.page.keyboard.press("Tab")
    assert guest.page.evaluate("document.activeElement.textContent") == "Skip to content"
    guest.page.keyboard.press("Enter")
    guest.page.wait_for_url("**#main")
    check(guest, server)
