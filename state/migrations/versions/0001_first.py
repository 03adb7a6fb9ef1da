"""The first schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BOOLEAN = sa.Boolean()
FLOAT = sa.Float()
INTEGER = sa.Integer()
JSON = sa.JSON(none_as_null=True)
STRING = sa.String()
TEXT = sa.Text()

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
OPEN_WORK = sa.text("state IN ('todo', 'leased')")


def upgrade() -> None:
    _sweeps()
    _work()
    _stages()


def _sweeps() -> None:
    op.create_table(
        "sweep",
        *_required(INTEGER, "id"),
        *_required(STRING, "stamp", "feed"),
        *_required(BOOLEAN, "publish"),
        *_required(JSON, "settings", "selection"),
        *_required(FLOAT, "created_at", "begun_at"),
        *_optional(FLOAT, "ended_at"),
        *_optional(INTEGER, "exit_code"),
        _check("sweep_ended", "(exit_code IS NULL) = (ended_at IS NULL)"),
        _primary_key("sweep", "id"),
        sa.UniqueConstraint("stamp", "feed", name=op.f("uq_sweep")),
    )
    op.create_table(
        "outcome",
        *_required(INTEGER, "sweep_id", "attempts"),
        *_required(STRING, "cell", "model", "target", "precision", "package", "version"),
        *_required(STRING, "needs", "status"),
        *_optional(STRING, "tree", "failure", "stage"),
        *_optional(TEXT, "message", "hint", "log_tail"),
        *_optional(BOOLEAN, "retryable"),
        *_optional(BIG, "exit_code", "token", "bytes"),
        *_optional(FLOAT, "started_at", "ended_at", "published_at", "seconds"),
        *_optional(JSON, "evidence", "detail"),
        _check("outcome_status", f"status IN ({STATUSES})"),
        _check("outcome_failure", f"failure IN ({CLASSES})"),
        _check(
            "outcome_failed",
            f"(status IN ({FAILED})) = (failure IS NOT NULL AND retryable IS NOT NULL)",
        ),
        _check(
            "outcome_running",
            f"NOT (status IN ({RUNNING})) OR (token IS NOT NULL AND started_at IS NOT NULL)",
        ),
        _check(
            "outcome_ended", f"status = 'verified' OR (status IN ({UNENDED})) = (ended_at IS NULL)"
        ),
        _check("outcome_published", "status <> 'published' OR published_at IS NOT NULL"),
        _check("outcome_content", "status NOT IN ('published', 'unchanged') OR tree IS NOT NULL"),
        _check("outcome_skipped", "status <> 'skipped' OR message IS NOT NULL"),
        _check("outcome_tree", "length(tree) = 64"),
        _check("outcome_attempts", "attempts >= 0"),
        _of_sweep("outcome"),
        _primary_key("outcome", "sweep_id", "cell"),
    )
    op.create_index("ix_outcome_model", "outcome", ["sweep_id", "model"])
    op.create_index("ix_outcome_status", "outcome", ["sweep_id", "status"])
    op.create_table(
        "event",
        *_required(BIG, "id"),
        *_required(FLOAT, "at"),
        *_required(INTEGER, "sweep_id"),
        *_required(STRING, "kind"),
        *_optional(STRING, "cell", "model", "status", "owner"),
        *_optional(BIG, "token"),
        *_optional(JSON, "data"),
        _check("event_kind", f"kind IN ({KINDS})"),
        _check("event_status", f"status IN ({STATUSES})"),
        _of_sweep("event"),
        _primary_key("event", "id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_sweep", "event", ["sweep_id", "id"])


def _work() -> None:
    op.create_table(
        "work",
        *_required(INTEGER, "sweep_id", "position", "attempts", "lost"),
        *_required(STRING, "model", "needs", "state"),
        *_required(FLOAT, "estimate"),
        *_optional(JSON, "evidence"),
        _check("work_poison", "state <> 'poison' OR evidence IS NOT NULL"),
        _check("work_state", "state IN ('todo', 'leased', 'done', 'poison')"),
        _check("work_counts", "attempts >= 0 AND lost >= 0"),
        _of_sweep("work"),
        _primary_key("work", "sweep_id", "model", "needs"),
    )
    op.create_index(
        "ix_work_open",
        "work",
        ["sweep_id", "position"],
        sqlite_where=OPEN_WORK,
        postgresql_where=OPEN_WORK,
    )
    op.create_table(
        "lease",
        *_required(INTEGER, "sweep_id", "pid"),
        *_required(STRING, "model", "needs", "owner", "host", "pid_started"),
        *_required(BIG, "token"),
        *_required(FLOAT, "taken_at", "renewed_at", "expires_at", "ttl"),
        *_optional(STRING, "cell"),
        *_optional(TEXT, "activity"),
        _check("lease_times", "expires_at >= renewed_at AND ttl >= 0"),
        sa.ForeignKeyConstraint(
            ["sweep_id", "model", "needs"],
            ["work.sweep_id", "work.model", "work.needs"],
            name=op.f("fk_lease_work"),
        ),
        _primary_key("lease", "sweep_id", "model", "needs"),
    )


def _stages() -> None:
    op.create_table(
        "stage_key",
        *_required(STRING, "key"),
        *_required(JSON, "parts"),
        _primary_key("stage_key", "key"),
    )
    op.create_table(
        "stage_run",
        *_required(BIG, "id", "bytes", "peak_memory"),
        *_required(FLOAT, "at", "seconds"),
        *_required(INTEGER, "sweep_id"),
        *_required(STRING, "model", "cell", "target", "component", "stage", "key"),
        *_required(BOOLEAN, "reused"),
        _check("stage_run_costs", "seconds >= 0 AND bytes >= 0 AND peak_memory >= 0"),
        sa.ForeignKeyConstraint(["key"], ["stage_key.key"], name=op.f("fk_stage_run_stage_key")),
        _of_sweep("stage_run"),
        _primary_key("stage_run", "id"),
    )
    op.create_index("ix_stage_run_model", "stage_run", ["model", "stage", "id"])
    op.create_index("ix_stage_run_sweep", "stage_run", ["sweep_id", "cell"])


def _required(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=op.f(f"ck_{name}"))


def _primary_key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def _of_sweep(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name=op.f(f"fk_{table}_sweep"))
