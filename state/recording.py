"""Recording: every change of a cell, refused once its model has been leased to somebody else.

The feed is the authority on what is published: what it lists is recorded first (`seed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from matrix.digest import value_digest
from matrix.needs import to_text
from matrix.status import FailureClass, Status
from state import changes
from state.changes import settle_work, shift
from state.database import Transaction
from state.errors import BadTransition, StateError
from state.records import Facts, Json, Kind, Lease, Seeded, Seen, StageRun
from state.rows import WritingPart
from state.sql import Row
from state.text import LOG_LENGTH, clean, columns_of, packed
from state.transitions import DEFAULT_CLASS, FINAL, RUNNING, SOURCES

_IN_EVENT = ("tree", "failure", "stage", "exit_code", "message", "bytes", "seconds")
_OF_RUN = tuple(name for name in StageRun.__slots__ if name not in {"id", "at", "parts"})


class Recording(WritingPart):
    """The part of `State` that slots write to, and that learns from the feed."""

    def record(
        self,
        held: Lease | None,
        sweep_id: int,
        cell: str,
        status: Status,
        facts: Facts = Facts(),  # noqa: B008 - frozen
        stages: Sequence[StageRun] = (),
    ) -> None:
        """Give a cell a new status with what is known of it, its event and its stage runs."""
        if held is None and status in RUNNING:
            raise StateError(f"{cell} cannot be {status} without a lease")
        known = _known(status, facts)
        values = {
            **dict.fromkeys(Facts.__slots__),
            **known,
            "sweep_id": sweep_id,
            "cell": cell,
            "status": status,
            "model": held.model if held else None,
            "needs": to_text(held.needs) if held else None,
            "token": held.token if held else None,
            "running": status in RUNNING,
            "while_running": RUNNING,
            "sources": sorted(SOURCES[status]),
        }
        change = "record_planned" if status is Status.PLANNED else "record"
        tries = 0

        def work(sql: Transaction) -> None:
            nonlocal tries
            tries += 1
            model = sql.run(change, **values).scalar()
            if model is None:
                _refuse(sql, held, sweep_id, cell, status, again=tries > 1)
                return
            told = changes.of_holder(held) if held else {"model": model}
            data = {name: known[name] for name in _IN_EVENT if name in known} or None
            told |= {"cell": cell, "status": status, "data": data}
            changes.add_event(sql, sweep_id, Kind.STATUS, **told)
            if stages:
                _add_stages(sql, sweep_id, model, stages)
            if status in FINAL:
                sql.run("open_benches", sweep_id=sweep_id, model=model)

        self._attempt(work, held)

    def note(self, sweep_id: int, kind: Kind, data: Json | None = None) -> int:
        """Append an event about the sweep as a whole; returns its id."""
        return self._attempt(lambda sql: changes.add_event(sql, sweep_id, kind, data=data))

    def note_plan(self, sweep_id: int, kind: Kind, data: Json, plan: Json) -> int:
        """Append an event about a run of the sweep and keep its plan; returns the event's id.

        The event has the plan's digest as its `plan`.
        """
        given = {"digest": value_digest(plan), "plan": packed(plan)}

        def work(sql: Transaction) -> int:
            run = changes.add_event(sql, sweep_id, kind, data={**data, "plan": given["digest"]})
            sql.run("keep_plan", sweep_id=sweep_id, run=run, **given)
            return run

        return self._attempt(work)

    def seed(self, sweep_id: int, versions: Iterable[Seen]) -> Seeded:
        """Mark the cells whose versions the feed has as published, with the feed's digests.

        Cells that a slot holds are not changed.
        """
        listed = {one.cell: one for one in versions}  # before the transaction: it may come slowly

        def learn(sql: Transaction) -> Seeded:
            rows = [
                row
                for row in sql.rows("seedable_cells", sweep_id=sweep_id)
                if row["cell"] in listed and listed[row["cell"]].version == row["version"]
            ]
            known = [row for row in rows if row["status"] == Status.PUBLISHED]
            new = [_seen(row, listed) for row in rows if row["status"] != Status.PUBLISHED]
            wrong = [
                {**_seen(row, listed), "data": {"recorded": row["tree"]}}
                for row in known
                if row["tree"] != listed[row["cell"]].tree
            ]
            for change, cells in (("seed", new), ("correct_tree", wrong)):
                shift(sql, sweep_id, change, cells, Status.PUBLISHED, kind=Kind.SEEDED)
            settle_work(sql, sweep_id)
            return Seeded(len(new), tuple(row["cell"] for row in wrong))

        return self._attempt(learn)

    def unseed(self, sweep_id: int, missing: Iterable[str], listed_at: float) -> list[str]:
        """Plan published cells again that a complete listing of the feed did not have.

        `listed_at`: `now()` from before the listing began. What was published since then could
        not be in it and is not changed, nor are cells that a slot holds.
        """
        wanted = list(missing)
        data = {"why": "the feed does not have this version"}

        def forget(sql: Transaction) -> list[str]:
            lost = sql.rows("unlisted_cells", sweep_id=sweep_id, cells=wanted, listed_at=listed_at)
            planned = shift(sql, sweep_id, "plan_again", lost, kind=Kind.UNSEEDED, data=data)
            settle_work(sql, sweep_id)
            return planned

        return self._attempt(forget)


def _add_stages(sql: Transaction, sweep_id: int, model: str, stages: Sequence[StageRun]) -> None:
    parts = {run.key: run.parts for run in stages}
    # In one order, so that two writers of the same keys cannot block each other.
    sql.each("add_key", ({"key": key, "parts": parts[key]} for key in sorted(parts)))
    fixed = {"sweep_id": sweep_id, "model": model}
    sql.each(
        "add_run",
        # The clock may have been set back.
        (
            {**columns_of(run, *_OF_RUN), **fixed, "seconds": max(run.seconds, 0.0)}
            for run in stages
        ),
    )


def _known(status: Status, facts: Facts) -> dict[str, Any]:
    """The columns that the facts fill; what is not known leaves what was recorded before."""
    columns = columns_of(facts, *Facts.__slots__)
    columns |= {"failure": None, "retryable": None}
    columns["log_tail"] = clean(facts.log_tail, LOG_LENGTH, tail=True)
    if facts.message is None and status is Status.SKIPPED:
        columns["message"] = "skipped on purpose"
    if status.failed:
        failure = facts.failure or DEFAULT_CLASS.get(status, FailureClass.UNKNOWN)
        columns["failure"] = failure.value
        columns["retryable"] = (
            failure.retries_itself if facts.retryable is None else facts.retryable
        )
    return {name: value for name, value in columns.items() if value is not None}


def _refuse(
    sql: Transaction,
    held: Lease | None,
    sweep_id: int,
    cell: str,
    status: Status,
    *,
    again: bool,
) -> None:
    """Raise because nothing was changed; `again`: unless an earlier try changed it, and the
    connection broke after its commit."""
    found = sql.run("standing", sweep_id=sweep_id, cell=cell).first()
    if found is None:
        raise StateError(f"there is no cell {cell} in sweep {sweep_id}")
    if again and found.status == status and (held is None or found.token == held.token):
        return
    if held is not None and (found.model, found.needs) != (held.model, to_text(held.needs)):
        raise StateError(f"{cell} is not a cell of this lease of {held.model}")
    raise BadTransition(f"{cell} is {found.status} and cannot become {status}")


def _seen(row: Row, listed: dict[str, Seen]) -> dict[str, Any]:
    """A cell as the feed has it."""
    one = listed[row["cell"]]
    at = one.published_at.timestamp() if one.published_at else None
    return {"cell": one.cell, "model": row["model"], "tree": one.tree, "published_at": at}
