"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)

# Spelled out: a migration must not change when the enums do.
STATUSES = (
    "'planned', 'building', 'built', 'verifying', 'verified', 'publishing', 'published', "
    "'unchanged', 'build_failed', 'build_timeout', 'verify_failed', 'publish_failed', "
    "'conflict', 'unsupported', 'skipped', 'cancelled'"
)
FAILED = (
    "'build_failed', 'build_timeout', 'verify_failed', 'publish_failed', 'conflict', 'unsupported'"
)
RUNNING = "'building', 'built', 'verifying', 'verified', 'publishing'"
UNENDED = "'planned', 'building', 'built', 'verifying', 'publishing'"
KINDS = (
    "'status', 'seeded', 'unseeded', 'resumed', 'retry', 'handed_back', 'leased', 'released', "
    "'lost', 'poison', 'begun', 'started', 'notice', 'interrupted', 'index', 'ended'"
)
CLASSES = (
    "'EXPORT', 'OPTIMIZE', 'QUANTIZE', 'COMPILE', 'VERIFY', 'PUBLISH', 'TIMEOUT', 'MEMORY', "
    "'DISK', 'NETWORK', 'AUTH', 'CRASH', 'UNSUPPORTED', 'UNKNOWN'"
)


def upgrade() -> None:
    _sweep()
    _outcome()
    _event()
    _work()
    _lease()
    _stage_key()
    _stage_run()


def downgrade() -> None:
    for table in ("stage_run", "stage_key", "lease", "work", "event", "outcome", "sweep"):
        op.drop_table(table)


def _sweep() -> None:
    op.create_table(
        "sweep",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("stamp", sa.String(), nullable=False),
        sa.Column("feed", sa.String(), nullable=False),
        sa.Column("publish", sa.Boolean(), nullable=False),
        sa.Column("settings", JSON, nullable=False),
        sa.Column("selection", JSON, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.CheckConstraint("(exit_code IS NULL) = (ended_at IS NULL)", name=op.f("ck_sweep_ended")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep")),
        sa.UniqueConstraint("stamp", "feed", name=op.f("uq_sweep")),
    )


def _outcome() -> None:
    op.create_table(
        "outcome",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("cell", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("precision", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("tree", sa.String(), nullable=True),
        sa.Column("failure", sa.String(), nullable=True),
        sa.Column("stage", sa.String(), nullable=True),
        sa.Column("exit_code", BIG, nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("hint", sa.Text(), nullable=True),
        sa.Column("log_tail", sa.Text(), nullable=True),
        sa.Column("retryable", sa.Boolean(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("token", BIG, nullable=True),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("published_at", sa.Float(), nullable=True),
        sa.Column("bytes", BIG, nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("evidence", JSON, nullable=True),
        sa.Column("detail", JSON, nullable=True),
        sa.CheckConstraint(
            f"(status IN ({FAILED})) = (failure IS NOT NULL AND retryable IS NOT NULL)",
            name=op.f("ck_outcome_failed"),
        ),
        sa.CheckConstraint(
            f"NOT (status IN ({RUNNING})) OR (token IS NOT NULL AND started_at IS NOT NULL)",
            name=op.f("ck_outcome_running"),
        ),
        sa.CheckConstraint(f"failure IN ({CLASSES})", name=op.f("ck_outcome_failure")),
        sa.CheckConstraint(
            "status <> 'published' OR published_at IS NOT NULL", name=op.f("ck_outcome_published")
        ),
        sa.CheckConstraint(
            "status <> 'skipped' OR message IS NOT NULL", name=op.f("ck_outcome_skipped")
        ),
        sa.CheckConstraint(
            f"status = 'verified' OR (status IN ({UNENDED})) = (ended_at IS NULL)",
            name=op.f("ck_outcome_ended"),
        ),
        sa.CheckConstraint(f"status IN ({STATUSES})", name=op.f("ck_outcome_status")),
        sa.CheckConstraint(
            "status NOT IN ('published', 'unchanged') OR tree IS NOT NULL",
            name=op.f("ck_outcome_content"),
        ),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_outcome_attempts")),
        sa.CheckConstraint("length(tree) = 64", name=op.f("ck_outcome_tree")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name=op.f("fk_outcome_sweep")),
        sa.PrimaryKeyConstraint("sweep_id", "cell", name=op.f("pk_outcome")),
    )
    op.create_index("ix_outcome_model", "outcome", ["sweep_id", "model"], unique=False)
    op.create_index("ix_outcome_status", "outcome", ["sweep_id", "status"], unique=False)


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("id", BIG, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("cell", sa.String(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=True),
        sa.Column("token", BIG, nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("data", JSON, nullable=True),
        sa.CheckConstraint(f"kind IN ({KINDS})", name=op.f("ck_event_kind")),
        sa.CheckConstraint(f"status IN ({STATUSES})", name=op.f("ck_event_status")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name=op.f("fk_event_sweep")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_sweep", "event", ["sweep_id", "id"], unique=False)


def _work() -> None:
    op.create_table(
        "work",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("estimate", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("evidence", JSON, nullable=True),
        sa.CheckConstraint(
            "state <> 'poison' OR evidence IS NOT NULL", name=op.f("ck_work_poison")
        ),
        sa.CheckConstraint(
            "state IN ('todo', 'leased', 'done', 'poison')", name=op.f("ck_work_state")
        ),
        sa.CheckConstraint("attempts >= 0 AND lost >= 0", name=op.f("ck_work_counts")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name=op.f("fk_work_sweep")),
        sa.PrimaryKeyConstraint("sweep_id", "model", name=op.f("pk_work")),
    )
    op.create_index(
        "ix_work_open",
        "work",
        ["sweep_id", "position"],
        unique=False,
        sqlite_where=sa.text("state IN ('todo', 'leased')"),
        postgresql_where=sa.text("state IN ('todo', 'leased')"),
    )


def _lease() -> None:
    op.create_table(
        "lease",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("token", BIG, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pid_started", sa.String(), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.Column("renewed_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("ttl", sa.Float(), nullable=False),
        sa.CheckConstraint("expires_at >= renewed_at AND ttl >= 0", name=op.f("ck_lease_times")),
        sa.ForeignKeyConstraint(
            ["sweep_id", "model"], ["work.sweep_id", "work.model"], name=op.f("fk_lease_work")
        ),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_lease")),
    )


def _stage_key() -> None:
    op.create_table(
        "stage_key",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("parts", JSON, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_stage_key")),
    )


def _stage_run() -> None:
    op.create_table(
        "stage_run",
        sa.Column("id", BIG, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("cell", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("component", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("bytes", BIG, nullable=False),
        sa.Column("peak_memory", BIG, nullable=False),
        sa.CheckConstraint(
            "seconds >= 0 AND bytes >= 0 AND peak_memory >= 0", name=op.f("ck_stage_run_costs")
        ),
        sa.ForeignKeyConstraint(["key"], ["stage_key.key"], name=op.f("fk_stage_run_stage_key")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name=op.f("fk_stage_run_sweep")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stage_run")),
    )
    op.create_index("ix_stage_run_model", "stage_run", ["model", "stage", "id"], unique=False)
    op.create_index("ix_stage_run_sweep", "stage_run", ["sweep_id", "cell"], unique=False)
