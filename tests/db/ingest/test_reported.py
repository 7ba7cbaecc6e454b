from pathlib import Path

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.ingest.update import ingest
from db.models import Run
from db.storage.run_files import REPORTED_DIR


def test_ingest_without_a_runs_directory_adds_the_reported_runs(engine: Engine, tmp_path: Path) -> None:
    report = ingest(engine, tmp_path / "absent")
    assert report.problems == []
    with Session(engine) as session:
        runs = {run.run_id: run for run in session.scalars(select(Run))}
    assert set(runs) == {entry.name for entry in REPORTED_DIR.iterdir()}
    assert {run.provenance for run in runs.values()} == {"reported"}
    assert {run.device_name for run in runs.values()} == {"NVIDIA A100-PCIE-40GB"}
    minutes = {
        run_id.removeprefix("reported-distributed-10k-"): round(run.wall_clock_s / 60, 2)
        for run_id, run in runs.items()
        if run.recipe == "distributed-10k" and run.wall_clock_s is not None
    }
    assert minutes == {
        "baseline-1n1g": 12.98,
        "ddp-1n1g": 13.77,
        "ddp-1n2g": 7.78,
        "ddp-2n4g": 4.77,
        "fsdp-1n2g": 9.99,
        "fsdp-2n4g": 4.44,
    }
    assert all(
        run.global_batch_size == 4 * (run.world_size or 0) for run in runs.values() if run.recipe == "distributed-10k"
    )
    squad, baseline = runs["reported-squad"], runs["reported-baseline-10k"]
    assert (squad.em, squad.f1, squad.samples_per_s, squad.train_time_s) == (81.2772, 88.3783, 275.2, 643.3434)
    assert (baseline.train_time_s, baseline.samples_per_s) == (779.3411, 51.325)
    assert baseline.note == "dummy labels, no QA loss"
    assert baseline.final_loss is None
