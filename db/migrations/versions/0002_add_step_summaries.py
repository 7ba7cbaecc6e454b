"""Add step summaries, tokens a rank, reserved memory, and how many lines a run has."""

from alembic import op
import sqlalchemy as sa


revision = "0002_add_step_summaries"
down_revision = "0001_create_record"
branch_labels = None
depends_on = None

_OF_RUNS = "ix_runs_status_num_lines_last_seen_at"
_FILTERS = ["status", "provenance", "recipe", "model", "parallel", "device_name", "last_seen_at"]
_ORDERS = ["world_size", "em", "f1", "final_loss", "wall_clock_s", "samples_per_s", "tokens_per_s", "created_at"]
_OF_FILES = "ix_journal_files_run_id"

def _new() -> list[tuple[str, sa.Column]]:
    return [
        ("steps", sa.Column("max_rank_tokens", sa.Integer(), nullable=True)),
        ("steps", sa.Column("mean_rank_tokens", sa.Double(), nullable=True)),
        ("steps", sa.Column("peak_reserved_bytes", sa.BigInteger(), nullable=True)),
        ("attempts", sa.Column("peak_reserved_bytes", sa.BigInteger(), nullable=True)),
        ("attempts", sa.Column("num_timed_steps", sa.Integer(), nullable=True)),
        ("attempts", sa.Column("step_time_p50_s", sa.Double(), nullable=True)),
        ("attempts", sa.Column("step_time_p95_s", sa.Double(), nullable=True)),
        ("attempts", sa.Column("data_share", sa.Double(), nullable=True)),
        ("attempts", sa.Column("padding_factor", sa.Double(), nullable=True)),
        ("attempts", sa.Column("token_imbalance", sa.Double(), nullable=True)),
        ("attempts", sa.Column("phases", sa.JSON(), server_default="{}", nullable=False)),
        ("runs", sa.Column("peak_reserved_bytes", sa.BigInteger(), nullable=True)),
        ("runs", sa.Column("num_lines", sa.BigInteger(), server_default="0", nullable=False)),
        ("journal_files", sa.Column("run_id", sa.String(length=64), server_default="", nullable=False)),
    ]


def upgrade() -> None:
    for table, column in _new():
        op.add_column(table, column)
    op.drop_index("ix_runs_filters", "runs")
    op.create_index("ix_runs_filters", "runs", [*_FILTERS, *_ORDERS, "run_id"], postgresql_where=sa.false())
    op.create_index(_OF_RUNS, "runs", ["status", "num_lines", "last_seen_at"])
    op.create_index(_OF_FILES, "journal_files", ["run_id"])
    connection = op.get_bind()
    _summarise_steps(connection)
    _count_lines(connection)


def _count_lines(connection: sa.Connection) -> None:
    owner = sa.text("UPDATE journal_files SET run_id = :run_id WHERE path = :path")
    lines = sa.text("UPDATE runs SET num_lines = num_lines + :num_lines WHERE run_id = :run_id")
    for path, num_lines in connection.execute(sa.text("SELECT path, num_lines FROM journal_files")).all():
        run_id = path.partition("/")[0]
        connection.execute(owner, {"path": path, "run_id": run_id})
        connection.execute(lines, {"num_lines": num_lines, "run_id": run_id})


def _summarise_steps(connection: sa.Connection) -> None:
    """Fill the new columns of existing attempts, which ingest does not read again."""
    attempts = connection.execute(sa.text("SELECT run_id, attempt FROM attempts")).all()
    newest = sa.text(
        "SELECT step_time_s, data_time_s, num_tokens, num_padded_tokens FROM steps WHERE run_id = :run_id"
        " AND attempt = :attempt AND NOT is_warmup AND step_time_s > 0 ORDER BY step DESC LIMIT 1000"
    )
    change = sa.text(
        "UPDATE attempts SET num_timed_steps = :number, step_time_p50_s = :middle, step_time_p95_s = :slow,"
        " data_share = :wait, padding_factor = :padding WHERE run_id = :run_id AND attempt = :attempt"
    )
    for run_id, attempt in attempts:
        rows = connection.execute(newest, {"run_id": run_id, "attempt": attempt}).all()
        if not rows:
            continue
        times = sorted(row.step_time_s for row in rows)
        waits = [(row.data_time_s, row.step_time_s) for row in rows if row.data_time_s is not None]
        tokens = [(row.num_padded_tokens, row.num_tokens) for row in rows if row.num_padded_tokens and row.num_tokens]
        values = {
            "run_id": run_id,
            "attempt": attempt,
            "number": len(rows),
            "middle": _quantile(times, 0.5),
            "slow": _quantile(times, 0.95),
            "wait": _ratio(waits),
            "padding": _ratio(tokens),
        }
        connection.execute(change, values)


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _ratio(pairs: list[tuple[float, float]]) -> float | None:
    return sum(first for first, _ in pairs) / sum(second for _, second in pairs) if pairs else None


def downgrade() -> None:
    op.drop_index(_OF_FILES, "journal_files")
    op.drop_index(_OF_RUNS, "runs")
    op.drop_index("ix_runs_filters", "runs")
    op.create_index("ix_runs_filters", "runs", _FILTERS, postgresql_where=sa.false())
    for table, column in reversed(_new()):
        op.drop_column(table, column.name)
