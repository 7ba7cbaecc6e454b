import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, select, text

from db.engine import MIGRATIONS, create_engine_for, migrate, write_locked
from db.ingest.update import ingest
from db.models import Attempt, Base
from tests.support.journals import write_run
from tests.support.rows import every_row, schema_differences


def definitions(engine: Engine) -> dict[str, str]:
    """Return SQLite's own text of every table and index, columns in order, without the spelling of names."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'alembic_version'"
    with engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    return {name: " ".join(sql.replace('"', "").replace(" ,", ",").split()) for name, sql in rows}


def test_migrations_equal_the_models(engine: Engine) -> None:
    assert schema_differences(engine) == []


def test_migrations_create_exactly_the_schema_of_the_models(engine: Engine, tmp_path: Path) -> None:
    created = create_engine(f"sqlite:///{tmp_path / 'created.db'}")
    Base.metadata.create_all(created)
    assert definitions(engine) == definitions(created)
    created.dispose()


def test_history_is_one_line_named_by_number_and_verb() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    revisions: list[Any] = list(scripts.walk_revisions())
    assert len(scripts.get_heads()) == 1
    assert revisions[-1].revision == "0001_create_record"
    for number, script in enumerate(reversed(revisions), 1):
        assert script.revision.startswith(f"{number:04d}_")
        assert Path(script.path).stem == script.revision


def test_downgrade_leaves_nothing(engine: Engine) -> None:
    alembic(engine, command.downgrade, "base")
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}


def alembic(engine: Engine, move: Callable[[Config, str], None], revision: str) -> None:
    """Upgrade or downgrade a database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with write_locked(engine).begin() as connection:
        config.attributes["connection"] = connection
        move(config, revision)


def test_summaries_of_older_attempts_are_those_that_ingest_makes(engine: Engine, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a", num_steps=60)
    write_run(tmp_path / "runs", "b", num_steps=2)
    ingest(engine, tmp_path / "runs")
    made = every_row(engine)
    alembic(engine, command.downgrade, "0001_create_record")
    alembic(engine, command.upgrade, "0002_add_step_summaries")
    again = every_row(engine)
    assert again.keys() == made.keys()
    for table, rows in made.items():
        assert len(again[table]) == len(rows)
        for before, after in zip(chain(*rows), chain(*again[table]), strict=True):
            assert after == (pytest.approx(before) if isinstance(before, float) else before), table
    with engine.connect() as connection:
        attempts: Sequence[Any] = connection.execute(select(Attempt.__table__)).all()
    assert {row.num_timed_steps for row in attempts if row.provenance == "measured"} == {58, None}


def test_new_database_waits_for_the_process_that_makes_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.execute, ["COMMIT"]).start()
        engine = create_engine_for(f"sqlite:///{tmp_path / 'x.db'}")
        migrate(engine)
        assert not other.in_transaction
    engine.dispose()
