import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from db.queries import RunNotFoundError, get_run
from db.reports import Report, gather, to_html, to_latex, to_markdown
from db.reports.cells import UNKNOWN
from db.reports.charts import line_chart, strip_chart
from db.reports.tables import runs_table, speedup_table
from tests.support.dashboard_data import ulid
from tests.support.report_runs import NOW, write_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def session(home: Path) -> Iterator[Session]:
    engine = create_engine_for(f"sqlite:///{home / 'elasticqa.db'}")
    migrate(engine)
    ingest(engine, home / "runs")
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture(scope="module")
def report(session: Session) -> Report:
    return gather(session, NOW)


def _measured(report: Report) -> dict[str, dict[str, str]]:
    """Return the rows of the measured groups by their devices, cells by their column."""
    table = speedup_table(report.comparisons)
    titles = [column.title for column in table.columns]
    rows = [dict(zip(titles, row, strict=True)) for row in table.rows]
    return {row["Devices"]: row for row in rows if row["Provenance"] == "measured"}


def test_speedup_row_has_both_medians_and_names_its_reference(session: Session, report: Report) -> None:
    walls = {
        size: sorted(get_run(session, ulid(first + number), NOW).wall_clock_s or 0.0 for number in range(3))[1]
        for size, first in ((1, 0), (2, 10))
    }
    rows = _measured(report)
    one, two = rows["1 x NVIDIA H100 80GB HBM3"], rows["2 x NVIDIA H100 80GB HBM3"]
    assert one["Wall clock, median (s)"] == f"{walls[1]:.1f}"
    assert two["Wall clock, median (s)"] == f"{walls[2]:.1f}"
    assert one["Kind of ratio"] == "reference"
    assert two["Reference"] == one["Group"]
    assert two["Kind of ratio"] == "speedup, strong scaling"
    assert two["Ratio"] == f"{walls[1] / walls[2]:.2f}"
    assert two["Efficiency"] == f"{walls[1] / walls[2] / 2:.2f}"
    assert two["Runs (n)"] == "3"
    assert re.fullmatch(r"\d\.\d\d to \d\.\d\d", two["95% interval"])


def test_too_few_runs_for_a_median_interval_is_noted(report: Report) -> None:
    assert any("n < 6" in note for note in speedup_table(report.comparisons).notes)
    assert {row["95% of the median (s)"] for row in _measured(report).values()} == {UNKNOWN}


def test_differences_are_listed_below_the_table(report: Report) -> None:
    notes = [note for note in speedup_table(report.comparisons).notes if "also differs in" in note]
    assert any("global batch: 4 -> 16" in note for note in notes)


def test_report_of_one_run_has_its_group_and_reference_only(session: Session) -> None:
    report = gather(session, NOW, [ulid(10)])
    assert [run.run_id for run in report.runs] == [ulid(10)]
    assert {item.group.setting.world_size for item in report.comparisons} == {1, 2}
    assert {item.group.setting.provenance for item in report.comparisons} == {"measured"}


def test_single_run_is_shown_with_its_name(session: Session) -> None:
    reported = gather(session, NOW, ["reported-distributed-10k-ddp-1n2g"])
    table = speedup_table(reported.comparisons)
    row = next(row for row in table.rows if row[2].startswith("2 x"))
    assert row[1].startswith("distributed-10k, ddp, batch 8 (distributed-10k, DDP")
    assert row[3] == "median of 5, as reported"


def test_groups_of_one_configuration_show_distinguishing_settings(report: Report) -> None:
    comparison = next(item for item in report.comparisons if item.group.setting.provenance == "measured")
    config = {**comparison.group.config, "max_steps": 10}
    other = replace(comparison, group=replace(comparison.group, key="other", config=config))
    first, second = speedup_table([comparison, other]).rows
    assert first[1].endswith(", max_steps not set")
    assert second[1] == first[1].replace("not set", "10")


def test_unequal_work_explains_a_missing_ratio(report: Report) -> None:
    comparison = next(item for item in report.comparisons if item.ratio is not None)
    reference = comparison.reference
    assert reference is not None
    limited = replace(reference, config={**reference.config, "max_steps": 4})
    here = replace(comparison.group, config={**comparison.group.config, "max_steps": 10})
    (row,) = speedup_table([replace(comparison, group=here, reference=limited, ratio=None)]).rows
    assert "none: 4 against 10 steps, not equal work" in row


def test_report_of_an_unknown_run_is_refused(session: Session) -> None:
    with pytest.raises(RunNotFoundError):
        gather(session, NOW, ["nothing"])


def test_table_of_some_runs_states_their_total(report: Report) -> None:
    assert runs_table(report.runs[:2], 7).notes == ("2 of 7 runs.",)
    assert runs_table(report.runs, len(report.runs)).notes == ()


def test_markdown_keeps_one_line_a_row_and_as_many_cells(report: Report) -> None:
    for block in to_markdown("Training runs", NOW, report.tables).split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1
    text = to_markdown("Training runs", NOW, report.tables)
    assert r"\<img src=x onerror=alert\(1\)\>" in text
    assert "\x1b" not in text


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_html_has_no_script_and_no_external_resource(report: Report) -> None:
    elements = _Elements()
    elements.feed(to_html(report))
    assert not {"script", "img", "link", "iframe", "object", "base"} & set(elements.tags)
    names = {name for name, _ in elements.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href", "style")}
    # One of wall clocks for each recipe, and one of losses.
    assert elements.tags.count("svg") == len({item.group.setting.recipe for item in report.comparisons}) + 1
    policy = next(value for name, value in elements.attributes if name == "content")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_html_shows_a_hostile_name_as_text(report: Report) -> None:
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in to_html(report)


def test_html_has_a_dot_for_every_run_of_a_group(report: Report) -> None:
    num_runs = sum(len(item.group.values_of("wall_clock_s")) for item in report.comparisons)
    assert to_html(report).count('class="dot"') == num_runs


def test_latex_sets_a_hostile_name_as_text(report: Report) -> None:
    source = to_latex("Training runs", NOW, report.tables)
    assert r"\textbackslash{}input\{/etc/passwd\}" in source
    assert r"\char36{}x\_\allowbreak{}1\textasciicircum{}2\char36{}" in source
    assert r"é{[}U+4E2D{]}" in source
    for line in source.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) in (13, 14)
    assert source.count("{") - source.count(r"\{") == source.count("}") - source.count(r"\}")
    assert source.count(r"\toprule") == source.count(r"\bottomrule") == 2


def test_empty_report_works_in_every_format() -> None:
    empty = Report(NOW, (), 0, (), ())
    assert to_markdown("Training runs", NOW, empty.tables).startswith("# Training runs")
    assert to_latex("Training runs", NOW, empty.tables).endswith("\\end{document}\n")
    assert "<svg" not in to_html(empty)


@pytest.mark.parametrize(
    "chart",
    [
        strip_chart([("a<b", (1.0, 2.0, 3.0)), ("c", (0.0,))], "t & u", "s"),
        strip_chart([("zero", (0.0,))], "t", "s"),
        line_chart([("a", ((1.0, 2.0), (2.0, 1.0))), ("b", ((1.0, 0.0), (5.0, 0.5)))], "t", ("x", "y")),
        line_chart([("flat", ((1.0, 0.0), (2.0, 0.0)))], "t", ("x", "y")),
        line_chart([("below", ((1.0, -3.0), (2.0, 4e-9)))], "t", ("x", "y")),
    ],
)
def test_chart_is_well_formed_and_inside_its_box(chart: str) -> None:
    root = ET.fromstring(chart)
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    for element in root.iter("circle"):
        assert 0 <= float(element.attrib["cx"]) <= width
        assert 0 <= float(element.attrib["cy"]) <= height
    for element in root.iter("polyline"):
        for pair in element.attrib["points"].split():
            x, y = (float(value) for value in pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_median_is_marked_at_its_value() -> None:
    root = ET.fromstring(strip_chart([("a", (1.0, 2.0, 4.0))], "t", "s"))
    dots = [float(element.attrib["cx"]) for element in root.iter("circle")]
    (median,) = [element.attrib["d"] for element in root.iter("path") if element.get("class") == "median"]
    assert float(median[1:].split()[0]) == dots[1]
    assert dots[2] - dots[1] == pytest.approx(2 * (dots[1] - dots[0]), abs=0.2)
