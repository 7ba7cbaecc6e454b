"""Create the record."""

from alembic import op
import sqlalchemy as sa


revision = "0001_create_record"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "annotations",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("line", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "line", name=op.f("pk_annotations")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("save_time_s", sa.Double(), nullable=True),
        sa.Column("blocked_time_s", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "line", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "evaluations",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("em", sa.Double(), nullable=True),
        sa.Column("f1", sa.Double(), nullable=True),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("num_examples", sa.Integer(), nullable=True),
        sa.Column("num_features", sa.Integer(), nullable=True),
        sa.Column("eval_time_s", sa.Double(), nullable=True),
        sa.Column("predictions", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "line", name=op.f("pk_evaluations")),
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "node_rank", "line", name=op.f("pk_events")),
    )
    op.create_table(
        "journal_files",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("num_lines", sa.Integer(), nullable=False),
        sa.Column("last_n", sa.Integer(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_journal_files")),
    )
    op.create_table(
        "profiles",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("trace", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "node_rank", "line", name=op.f("pk_profiles")),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("provenance", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("recipe", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("dataset", sa.Text(), nullable=True),
        sa.Column("parallel", sa.String(length=16), nullable=True),
        sa.Column("precision", sa.String(length=16), nullable=True),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("config_digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("last_seen_at", sa.Double(), nullable=True),
        sa.Column("num_attempts", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=True),
        sa.Column("num_nodes", sa.Integer(), nullable=True),
        sa.Column("device_type", sa.String(length=16), nullable=True),
        sa.Column("device_name", sa.Text(), nullable=True),
        sa.Column("global_batch_size", sa.Integer(), nullable=True),
        sa.Column("num_epochs", sa.Double(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("num_steps", sa.Integer(), nullable=True),
        sa.Column("num_train_features", sa.Integer(), nullable=True),
        sa.Column("num_parameters", sa.BigInteger(), nullable=True),
        sa.Column("wall_clock_s", sa.Double(), nullable=True),
        sa.Column("train_time_s", sa.Double(), nullable=True),
        sa.Column("eval_time_s", sa.Double(), nullable=True),
        sa.Column("final_loss", sa.Double(), nullable=True),
        sa.Column("em", sa.Double(), nullable=True),
        sa.Column("f1", sa.Double(), nullable=True),
        sa.Column("samples_per_s", sa.Double(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_config_digest"), ["config_digest"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_created_at"), ["created_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_runs_provenance_created_at"), ["provenance", "created_at"], unique=False
        )
        batch_op.create_index(
            "ix_runs_filters",
            ["status", "provenance", "recipe", "model", "parallel", "device_name", "last_seen_at"],
            unique=False,
            postgresql_where=sa.false(),
        )

    op.create_table(
        "steps",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.Column("samples_seen", sa.BigInteger(), nullable=True),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("grad_norm", sa.Double(), nullable=True),
        sa.Column("learning_rate", sa.Double(), nullable=True),
        sa.Column("step_time_s", sa.Double(), nullable=True),
        sa.Column("data_time_s", sa.Double(), nullable=True),
        sa.Column("num_features", sa.Integer(), nullable=True),
        sa.Column("num_tokens", sa.Integer(), nullable=True),
        sa.Column("num_padded_tokens", sa.Integer(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("is_warmup", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "step", name=op.f("pk_steps")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "system_samples",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("t", sa.Double(), nullable=False),
        sa.Column("cpu_percent", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "node_rank", "line", name=op.f("pk_system_samples")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("provenance", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("last_seen_at", sa.Double(), nullable=False),
        sa.Column("queue_wait_s", sa.Double(), nullable=True),
        sa.Column("world_size", sa.Integer(), nullable=True),
        sa.Column("num_nodes", sa.Integer(), nullable=True),
        sa.Column("restart_count", sa.Integer(), nullable=True),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("software", sa.JSON(), nullable=False),
        sa.Column("git", sa.JSON(), nullable=False),
        sa.Column("scheduler", sa.JSON(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("command", sa.JSON(), nullable=False),
        sa.Column("start_step", sa.Integer(), nullable=True),
        sa.Column("end_step", sa.Integer(), nullable=True),
        sa.Column("resumed_from", sa.Text(), nullable=True),
        sa.Column("setup_time_s", sa.Double(), nullable=True),
        sa.Column("wall_clock_s", sa.Double(), nullable=True),
        sa.Column("train_time_s", sa.Double(), nullable=True),
        sa.Column("eval_time_s", sa.Double(), nullable=True),
        sa.Column("final_loss", sa.Double(), nullable=True),
        sa.Column("steady_features", sa.BigInteger(), nullable=False),
        sa.Column("steady_tokens", sa.BigInteger(), nullable=False),
        sa.Column("steady_time_s", sa.Double(), nullable=False),
        sa.Column("samples_per_s", sa.Double(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("em", sa.Double(), nullable=True),
        sa.Column("f1", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.run_id"], name=op.f("fk_attempts_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempts")),
    )


def downgrade() -> None:
    op.drop_table("attempts")
    op.drop_table("system_samples")
    op.drop_table("steps")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index("ix_runs_filters")
        batch_op.drop_index(batch_op.f("ix_runs_provenance_created_at"))
        batch_op.drop_index(batch_op.f("ix_runs_created_at"))
        batch_op.drop_index(batch_op.f("ix_runs_config_digest"))

    op.drop_table("runs")
    op.drop_table("profiles")
    op.drop_table("journal_files")
    op.drop_table("events")
    op.drop_table("evaluations")
    op.drop_table("checkpoints")
    op.drop_table("annotations")
