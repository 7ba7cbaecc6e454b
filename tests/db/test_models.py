import pytest
from sqlalchemy import Table

from db.models import Base

OF_RUN = [table for table in Base.metadata.sorted_tables if "run_id" in table.c]


def test_tables_of_the_record_are_all_there() -> None:
    assert set(Base.metadata.tables) == {
        "runs",
        "attempts",
        "steps",
        "evaluations",
        "checkpoints",
        "events",
        "system_samples",
        "profiles",
        "annotations",
        "journal_files",
    }


@pytest.mark.parametrize("table", [table for table in OF_RUN if table.name != "journal_files"], ids=str)
def test_primary_key_begins_with_the_run(table: Table) -> None:
    names = [column.name for column in table.primary_key]
    assert names[0] == "run_id"
    if "attempt" in names:
        assert names[1] == "attempt"


@pytest.mark.parametrize("table", OF_RUN, ids=str)
def test_columns_of_memory_and_bytes_hold_more_than_32_bits(table: Table) -> None:
    for column in table.c:
        if column.name.endswith("bytes") or column.name == "num_parameters":
            assert str(column.type) == "BIGINT", column.name


def test_nothing_comparative_is_a_column() -> None:
    names = {column.name for table in Base.metadata.sorted_tables for column in table.c}
    assert not [name for name in names if "speedup" in name or "efficiency" in name or "ratio" in name]
