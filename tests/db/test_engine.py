import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError, OperationalError

from db.engine import DatabaseError, create_engine_for, lock, migrate, write_locked
from db.models import Base
from tests.support.rows import migrate_at_once


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on a SQLite file without a schema."""
    engine = create_engine_for(f"sqlite:///{tmp_path / 'x.db'}")
    yield engine
    engine.dispose()


def pragma(engine: Engine, name: str) -> object:
    with engine.connect() as connection:
        return connection.execute(text(f"PRAGMA {name}")).scalar_one()


def test_sqlite_file_is_created_in_a_private_directory(tmp_path: Path) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'a' / 'b' / 'x.db'}")
    assert pragma(engine, "journal_mode") == "wal"
    assert pragma(engine, "synchronous") == 1
    assert pragma(engine, "foreign_keys") == 1
    assert pragma(engine, "busy_timeout") == 30_000
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0
    engine.dispose()


def test_foreign_keys_are_enforced(bare: Engine) -> None:
    with bare.begin() as connection:
        connection.execute(text("CREATE TABLE a (id INTEGER PRIMARY KEY)"))
        connection.execute(text("CREATE TABLE b (a INTEGER REFERENCES a (id))"))
    with bare.begin() as connection, pytest.raises(IntegrityError):
        connection.execute(text("INSERT INTO b VALUES (1)"))


def test_writing_transaction_blocks_writers_but_not_readers(bare: Engine) -> None:
    with bare.begin() as connection:
        connection.execute(text("CREATE TABLE a (id INTEGER)"))
    with write_locked(bare).begin() as first:
        lock(first, "any")
        with bare.connect() as reader:
            assert reader.execute(text("SELECT count(*) FROM a")).scalar_one() == 0
        with bare.connect() as second:
            second.rollback()
            second.execute(text("PRAGMA busy_timeout = 1"))
            second.rollback()
            with pytest.raises(OperationalError, match="locked"):
                second.execution_options(record_writer=True).begin()
            second.invalidate()


def test_writers_wait_for_one_another(bare: Engine) -> None:
    with bare.begin() as connection:
        connection.execute(text("CREATE TABLE a (id INTEGER)"))
    start = threading.Barrier(4)

    def add() -> None:
        start.wait()
        for _ in range(25):
            with write_locked(bare).begin() as connection:
                count = connection.execute(text("SELECT count(*) FROM a")).scalar_one()
                connection.execute(text("INSERT INTO a VALUES (:id)"), {"id": count})

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(add) for _ in range(4)]:
            future.result()
    with bare.connect() as connection:
        assert list(connection.scalars(text("SELECT id FROM a ORDER BY id"))) == list(range(100))


def test_second_migration_changes_nothing(bare: Engine) -> None:
    migrate(bare)
    migrate(bare)
    assert set(inspect(bare).get_table_names()) == {*Base.metadata.tables, "alembic_version"}


def test_concurrent_migrations_create_one_schema(bare: Engine) -> None:
    migrate_at_once(str(bare.url))
    assert set(Base.metadata.tables) < set(inspect(bare).get_table_names())


def test_migrate_refuses_a_newer_database_in_one_line(bare: Engine) -> None:
    migrate(bare)
    with bare.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999_from_tomorrow'"))
    with pytest.raises(DatabaseError, match=r"revision 9999_from_tomorrow, unknown .*: upgrade elasticqa") as caught:
        migrate(bare)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense:secret", "the database URL cannot be used"),
        ("mongodb://x", "the database URL cannot be used"),
        ("sqlite+nothing:///x", "the database URL cannot be used"),
    ],
)
def test_url_that_cannot_be_used_is_one_line_without_a_password(url: str, message: str) -> None:
    with pytest.raises(DatabaseError, match=message) as caught:
        create_engine_for(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_url_without_a_driver_means_psycopg() -> None:
    assert create_engine_for("postgresql://ann@db/qa").url.drivername == "postgresql+psycopg"


def test_directory_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseError, match=r"x\.db cannot be created .*set ELASTICQA_HOME"):
        create_engine_for(f"sqlite:///{tmp_path / 'file' / 'x' / 'x.db'}")


def test_file_that_is_no_database_is_one_line_error(bare: Engine, tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    with pytest.raises(DatabaseError, match="unable to open database file") as caught:
        migrate(bare)
    assert "\n" not in str(caught.value)


def test_unknown_file_is_one_line_error(bare: Engine, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"hello" * 1000)
    with pytest.raises(DatabaseError, match="file is not a database"):
        migrate(bare)


def test_unreachable_server_is_one_line_without_the_password() -> None:
    engine = create_engine_for("postgresql://ann:secret@127.0.0.1:1/qa?connect_timeout=2")
    with pytest.raises(DatabaseError, match="cannot be used") as caught:
        migrate(engine)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    engine.dispose()
