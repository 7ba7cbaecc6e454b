"""Records of micro-batches that ran out of memory."""

from pathlib import Path

import pytest

from elasticqa.run.oom_records import FOLDER, OutOfMemoryRecord, smallest_oom_record, write_oom_record


def oom_record(num_features: int, *, attempt: int = 1, world_size: int = 2) -> OutOfMemoryRecord:
    return OutOfMemoryRecord(
        attempt, world_size, num_features, f"a micro-batch of {num_features} features does not fit"
    )


@pytest.mark.parametrize(("num_features", "size"), [(24, 12), (7, 4), (2, 1), (1, 0)])
def test_next_micro_batch_is_half_as_large(num_features: int, size: int) -> None:
    assert oom_record(num_features).next_micro_batch_size == size


def test_smallest_record_applies_to_its_world_size_or_fewer_ranks(tmp_path: Path) -> None:
    assert smallest_oom_record(tmp_path, 1) is None
    write_oom_record(tmp_path, 1, oom_record(8))
    write_oom_record(tmp_path, 3, oom_record(4, attempt=2))
    write_oom_record(tmp_path, 0, oom_record(2, world_size=1))
    assert smallest_oom_record(tmp_path, 2) == oom_record(4, attempt=2)
    assert smallest_oom_record(tmp_path, 1) == oom_record(2, world_size=1)
    assert smallest_oom_record(tmp_path, 3) is None


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"attempt":1,"world_size":2,"num_features":0,"what":""}', "[" * 99999]
)
def test_damaged_record_is_ignored(content: str, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "attempt-0001-rank-00000.json").write_text(content, encoding="utf-8")
    assert smallest_oom_record(tmp_path, 1) is None


def test_failed_write_of_a_record_is_ignored(tmp_path: Path) -> None:
    write_oom_record(tmp_path / "nowhere", 0, oom_record(8))
