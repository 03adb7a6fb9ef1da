"""Pruning: sweeps that are over leave the state; what later sweeps need of them stays."""

from __future__ import annotations

import sqlalchemy as sa

from matrix.trials import TuningStatus
from state import changes
from state.leases import drop_lost, holders_here
from state.schema import bench, event, lease, outcome, stage_run, sweep, tuning, work

_NEWEST = """
    SELECT DISTINCT sweep_id FROM (
        SELECT outcome.sweep_id, row_number() OVER (
            PARTITION BY sweep.feed, outcome.cell ORDER BY sweep.created_at DESC, sweep.id DESC
        ) AS age
        FROM outcome JOIN sweep ON sweep.id = outcome.sweep_id
        WHERE outcome.status IN ('published', 'unchanged')
    ) AS published WHERE age = 1
"""


class Pruning(changes.WritingPart):
    """The part of `State` that removes sweeps."""

    def newest_published(self) -> frozenset[int]:
        """The sweeps with the newest record of a published cell on their feed.

        Plans read from these how a model was named, and whether a feed that is empty now once held
        versions.
        """
        return frozenset(int(row["sweep_id"]) for row in self._rows.fetch(_NEWEST))

    def remove_sweep(self, sweep_id: int) -> bool:
        """Remove a sweep with its cells, events and stages. Measurements and tunings stay, and so
        does what stages cost whose results other sweeps reuse.

        False: it goes on, or a tuning of its name may go on; nothing was removed.
        """
        here = holders_here(self.database)

        def work_(connection: sa.Connection) -> bool:
            this = sa.select(sweep.c.stamp, sweep.c.exit_code).where(sweep.c.id == sweep_id)
            found = connection.execute(this.with_for_update()).first()  # `begin` waits
            if found is None or found.exit_code is None:
                return False
            drop_lost(connection, here, count=False)
            held = sa.select(lease.c.token).where(lease.c.sweep_id == sweep_id)
            tuned = sa.select(tuning.c.id).where(
                tuning.c.name == found.stamp, tuning.c.status != TuningStatus.DONE.value
            )
            if connection.execute(held).first() or connection.execute(tuned).first():
                return False
            _keep_costs(connection, sweep_id)
            for table in (bench, work, outcome, event, stage_run):
                connection.execute(sa.delete(table).where(table.c.sweep_id == sweep_id))
            connection.execute(sa.delete(sweep).where(sweep.c.id == sweep_id))
            return True

        return self._attempt(work_)


def _keep_costs(connection: sa.Connection, sweep_id: int) -> None:
    """Take the last real run of each stage out of the sweep if another sweep reuses its result."""
    ran = sa.alias(stage_run)
    reused = sa.select(ran.c.key).where(ran.c.sweep_id != sweep_id)
    last = sa.select(sa.func.max(ran.c.id)).where(~ran.c.reused).group_by(ran.c.key)
    mine = stage_run.c.sweep_id == sweep_id
    connection.execute(
        sa.update(stage_run)
        .where(mine, stage_run.c.id.in_(last), stage_run.c.key.in_(reused))
        .values(sweep_id=None)
    )
    connection.execute(
        sa.delete(stage_run).where(
            stage_run.c.sweep_id.is_(None),
            sa.or_(stage_run.c.key.not_in(reused), stage_run.c.id.not_in(last)),
        )
    )
