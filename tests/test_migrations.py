from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text

from db.engine import MIGRATIONS, create_engine_for, migrate, writing
from db.models import Base


def definitions(engine: Engine) -> dict[str, str]:
    """Return SQLite's own text of every table and index, columns in order, without the spelling of names."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'alembic_version'"
    with engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    return {name: " ".join(sql.replace('"', "").replace(" ,", ",").split()) for name, sql in rows}


def test_migrations_equal_the_models(tmp_path: Path) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'x.db'}")
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_migrations_make_what_the_models_would_to_the_letter(tmp_path: Path) -> None:
    migrated = create_engine_for(f"sqlite:///{tmp_path / 'migrated.db'}")
    migrate(migrated)
    created = create_engine(f"sqlite:///{tmp_path / 'created.db'}")
    Base.metadata.create_all(created)
    assert definitions(migrated) == definitions(created)
    migrated.dispose()
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


def test_downgrade_leaves_nothing(tmp_path: Path) -> None:
    engine = create_engine_for(f"sqlite:///{tmp_path / 'x.db'}")
    migrate(engine)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}
    engine.dispose()
