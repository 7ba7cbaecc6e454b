"""The table of a study, against figures computed by hand, and its page."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db.ingest.update import ingest
from db.queries import speedup_groups
from db.reports import study_table, to_latex, to_markdown
from db.reports.cells import UNKNOWN
from elasticqa.run.annotations import annotate
from elasticqa.run.home import new_run_id
from elasticqa.scaling.progress import results
from elasticqa.scaling.study import FAILED, FINISHED, create
from tests.support import journals
from tests.support.dashboard_homes import client_on
from tests.support.scaling import MATRIX

STUDY = "01KB0000000000000000000000"


def write(
    home: Path, parallel: str, size: tuple[int, int], walls: list[float], study: str = STUDY, **work: int
) -> list[str]:
    """Write a finished run for each wall clock and tag it; return the ids.

    Args:
        home: of the record.
        parallel: strategy.
        size: nodes, and processes over all of them.
        walls: in seconds.
        study: id of the tag.
        work: `batch` and `features` where they are not 16 and 100.
    """
    config = journals.attempt_line("x")["config"] | {"parallel": parallel, "global_batch_size": work.get("batch", 16)}
    features = work.get("features", 100)
    dataset = journals.setup_line()["dataset"] | {"num_train_features": features}
    run_ids = [new_run_id() for _ in walls]
    for run_id, wall in zip(run_ids, walls, strict=True):
        steps = [
            journals.step_line(step, is_warmup=False, step_time_s=wall / 10, num_features=features // 10)
            for step in range(1, 11)
        ]
        lines = [
            journals.attempt_line(run_id, config=config, world_size=size[1], num_nodes=size[0]),
            journals.setup_line(dataset=dataset),
            *steps,
            journals.end_line(10, wall_clock_s=wall),
        ]
        journals.journal_path(home / "runs", run_id).write_bytes(journals.numbered(lines))
        annotate(home / "runs" / run_id, [("tag", f"study:{study}")])
    return run_ids


@pytest.fixture
def session(engine: Engine, tmp_path: Path) -> Iterator[Session]:
    write(tmp_path, "none", (1, 1), [100.0, 102.0, 90.0])
    write(tmp_path, "ddp", (1, 2), [50.0, 60.0, 51.0])
    write(tmp_path, "ddp", (2, 4), [25.0, 30.0, 20.0])
    write(tmp_path, "ddp", (1, 2), [120.0, 125.0, 119.0], batch=32, features=200)
    # Of another study, whose id begins with this one's, and of none.
    write(tmp_path, "ddp", (1, 2), [1.0], study=f"{STUDY}0")
    annotate(tmp_path / "runs" / write(tmp_path, "ddp", (1, 2), [1.0])[0], [("untag", f"study:{STUDY}")])
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        yield session


def rows_of(session: Session) -> dict[tuple[str, str], dict[str, str]]:
    """Return the rows by configuration and size, cells by their column."""
    table = study_table(speedup_groups(session, study=STUDY))
    titles = [column.title for column in table.columns]
    rows = [dict(zip(titles, row, strict=True)) for row in table.rows]
    return {(row["Configuration"].split(", ", 1)[1], row["Nodes x processes"]): row for row in rows}


def test_row_has_median_speedup_efficiency_and_process_hours(session: Session) -> None:
    rows = rows_of(session)
    row = rows["ddp, fp32, batch 16", "2 x 2"]
    assert (row["Runs (n)"], row["Wall clock, median (s)"]) == ("3", "25.0")
    assert (row["Ratio"], row["Kind of ratio"]) == ("4.00", "speedup, strong scaling")
    assert row["Efficiency"] == "1.00"
    assert float(row["Process-hours a run"]) == pytest.approx(25 * 4 / 3600, rel=0.01)
    # Of 3 and 3 values the most extreme order has one of 20 probabilities on either side.
    assert row["p"] == "0.1"
    low, high = map(float, row["95% interval"].split(" to "))
    assert 3.0 <= low <= 4.0 <= high <= 5.1


def test_reference_is_the_one_process_and_comes_first(session: Session) -> None:
    rows = rows_of(session)
    assert next(iter(rows)) == ("none, fp32, batch 16", "1 x 1")
    assert rows["none, fp32, batch 16", "1 x 1"]["Kind of ratio"] == "reference"


def test_weak_row_is_a_ratio_of_rates(session: Session) -> None:
    row = rows_of(session)["ddp, fp32, batch 32", "1 x 2"]
    assert row["Kind of ratio"] == "throughput ratio, weak scaling"
    assert float(row["Ratio"]) == pytest.approx((200 / 120) / (100 / 100), abs=0.006)
    assert float(row["Efficiency"]) == pytest.approx(200 / 120 / 2, abs=0.006)


def test_study_has_its_own_runs_and_no_others(session: Session) -> None:
    assert [len(group.repeats) for group in speedup_groups(session, study=STUDY)] == [3, 3, 3, 3]
    assert speedup_groups(session, study=STUDY[:-1]) == []
    assert speedup_groups(session, study='%"') == []


def test_few_repeats_are_remarked(session: Session) -> None:
    notes = " ".join(study_table(speedup_groups(session, study=STUDY)).notes)
    assert "With n < 6 a distribution-free 95% interval of the median does not exist." in notes
    assert "Reference: demo, none, fp32, batch 16 at 1 x 1, median 100.0 s of n = 3" in notes


def test_study_without_its_reference_says_so(session: Session) -> None:
    groups = [group for group in speedup_groups(session, study=STUDY) if group.setting.parallel != "none"]
    table = study_table(groups)
    assert "there is no reference" in table.notes[0]
    assert {row[4] for row in table.rows} == {UNKNOWN}
    assert study_table([]).rows == ()


def test_document_says_which_runs_are_missing_and_why(session: Session, tmp_path: Path) -> None:
    study = create(tmp_path / "studies", replace(MATRIX, strategies=("ddp",), nodes=(1,), nproc_per_node=(2,)), [])
    slots = [slot for slot in study.slots() if slot.cell.strategy == "ddp"]
    study.note_ended(study.add_run(slots[0]), FINISHED)
    study.note_ended(study.add_run(slots[1]), FAILED, "out of memory_")
    notes = results(session, study).notes
    assert "ddp-1x2: 1 of 3 runs finished; 1 failed, the last: out of memory_." in notes
    table = study_table(speedup_groups(session, study=STUDY), notes)
    assert r"out of memory\_" in to_markdown("Study", 0.0, [table])
    latex = to_latex("Study", 0.0, [table])
    assert r"\toprule" in latex
    assert r"out of memory\_" in latex


def test_page_of_a_study_has_its_groups_alone(session: Session, tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        page = client.get(f"/speedup?study={STUDY}").text
        assert page.count('<td class="cell-name">') == 4
        assert page.count('<tr class="reference">') == 1
        assert "4.00\u00d7" in page
        assert f"study={STUDY}" in page
        figure = client.get(f"/figures/speedup.json?study={STUDY}&section=demo").json()
        # A dot a run, and a mark at each median.
        assert sum(len(trace["x"]) for trace in figure["data"]) == 12 + 4
        empty = client.get("/speedup?study=%3Cb%3E").text
        assert "No finished run has the tag" in empty
        assert "<b>" not in empty[empty.index("<h1>") : empty.index("How to read it")]
