"""Groups of repeats, and the reported results of the package."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db import queries
from db.ingest.update import ingest
from tests.support.dashboard_data import AttemptSpec, ulid, write_run
from tests.support.query_runs import NOW, PLAIN, RUNNING


def test_groups_join_repeats_and_separate_provenances(engine: Engine, tmp_path: Path) -> None:
    for number, seed in ((1, 1), (2, 2), (3, 3)):
        attempts = (AttemptSpec(1, 20, NOW - 1_000 * number),)
        write_run(tmp_path / "runs", replace(PLAIN, run_id=ulid(number), attempts=attempts, num_steps=20, seed=seed))
    imported = replace(PLAIN, run_id=ulid(9), attempts=(AttemptSpec(1, 20, NOW),), num_steps=20, provenance="imported")
    write_run(tmp_path / "runs", imported)
    ingest(engine, tmp_path / "runs")
    with Session(engine) as session:
        groups = queries.speedup_groups(session, recipe="squad")
        assert [
            (group.setting.provenance, len(group.repeats)) for group in groups if group.setting.provenance != "reported"
        ] == [("imported", 1), ("measured", 3)]
        measured = next(group for group in groups if group.setting.provenance == "measured")
        assert [repeat.run_id for repeat in measured.repeats] == [ulid(1), ulid(2), ulid(3)]
        assert queries.speedup_groups(session, recipe="squad", provenance="imported") == groups[:1]


def test_unfinished_runs_are_not_grouped(session: Session) -> None:
    def runs_in(groups: list[queries.Group]) -> set[str]:
        return {repeat.run_id for group in groups for repeat in group.repeats}

    assert RUNNING.run_id not in runs_in(queries.speedup_groups(session))
    assert RUNNING.run_id not in runs_in(queries.throughput_groups(session))
    assert PLAIN.run_id in runs_in(queries.throughput_groups(session))


def test_reported_results_are_labelled_by_their_names(session: Session) -> None:
    said = {group.repeats[0].run_id: group.as_reported for group in queries.speedup_groups(session)}
    assert said["reported-distributed-10k-ddp-1n2g"] == "median of 5, as reported"
    assert said["reported-squad"] == "as reported"
    assert said[PLAIN.run_id] is None


def test_reported_results_give_the_published_speedups(session: Session) -> None:
    groups = queries.speedup_groups(session, "distributed-10k")
    found = {
        (comparison.group.setting.parallel, comparison.group.setting.world_size): comparison.ratio
        for comparison in queries.compare_all(groups)
        if comparison.ratio is not None
    }
    expected = {("ddp", 1): 0.94, ("ddp", 2): 1.67, ("ddp", 4): 2.72, ("fsdp", 2): 1.30, ("fsdp", 4): 2.92}
    assert {key: round(ratio.value, 2) for key, ratio in found.items()} == expected
    assert {ratio.kind for ratio in found.values()} == {"speedup"}
    assert {ratio.interval for ratio in found.values()} == {None}
    assert found["ddp", 4].scaling == "weak"
    assert found["ddp", 4].parallel_efficiency == pytest.approx(12.98 / 4.77 / 4)


def test_global_batch_is_named_beside_the_reported_speedups(session: Session) -> None:
    groups = queries.speedup_groups(session, "distributed-10k")
    four = next(
        comparison
        for comparison in queries.compare_all(groups)
        if comparison.group.setting.parallel == "fsdp" and comparison.group.setting.world_size == 4
    )
    assert [(item.what, item.reference, item.here) for item in four.differences] == [("global batch", "4", "16")]
