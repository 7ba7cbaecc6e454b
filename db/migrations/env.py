"""Alembic's entry point: runs the migrations on the connection from `db.engine.migrate`."""

from alembic import context

from db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite cannot change most parts of a table in place.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
