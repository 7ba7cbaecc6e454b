"""Alembic's entry: runs the migrations on the connection that `db.engine.migrate` hands in."""

from alembic import context

from db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite cannot alter most of a table in place.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
