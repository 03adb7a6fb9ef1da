"""Queries: sweeps, cells, events and leases, for status, progress and reports; and what stages cost
in earlier runs, and what their keys were made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from machine.processes import Process
from matrix.codec import from_json
from matrix.needs import Words, from_text, serves, to_text
from matrix.status import Status
from state.damage import mapping, number, parsed, reading
from state.errors import StateError
from state.records import (
    Event,
    Holder,
    Json,
    Kind,
    Outcome,
    Remaining,
    StageRun,
    SweepInfo,
)
from state.rows import Part, records, selected
from state.sql import Row
from state.text import unpacked

_PAGE = 2_000
_LONG = {"evidence", "log_tail"}

# A sequence hands ids out in order, but transactions commit in any order: a reader that has seen
# id 10 must not miss 9. So it sees nothing that is newer than the oldest transaction in flight,
# unless that one has been in flight for a minute. A snapshot has the transactions of all databases
# of the server: those of which the locks say that another one has them do not count. One that has
# ended since the snapshot has no locks any more, and counts once more.
_ELSEWHERE = """
    SELECT held.transactionid FROM pg_locks AS held JOIN pg_stat_activity AS backend USING (pid)
    WHERE held.locktype = 'transactionid' AND held.mode = 'ExclusiveLock'
    AND backend.datname <> current_database()
"""
_SETTLED = f"""(
    age(event.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)
    OR age(event.xmin) > (
        SELECT coalesce(max(age(flying::xid)), -1)
        FROM pg_snapshot_xip(pg_current_snapshot()) AS flying
        WHERE flying::xid NOT IN ({_ELSEWHERE})
    )
    OR event.at < extract(epoch from clock_timestamp()) - 60
)"""  # noqa: S608 - a constant
_STAGE_COUNTS = """
    SELECT reused, count(*) AS stages FROM stage_run
    WHERE sweep_id = :sweep_id AND at >= :since GROUP BY reused
"""
_IN_FEED = """
    SELECT outcome.cell FROM sweep JOIN outcome ON outcome.sweep_id = sweep.id
    WHERE sweep.feed = :feed AND outcome.status IN ('published', 'unchanged') LIMIT 1
"""
_RECENT = "SELECT id FROM sweep ORDER BY id DESC LIMIT 3"
"""The sweeps that overheads are taken from."""
_MAPPINGS = frozenset({"tools", "inputs", "params"})

_UNIT_COSTS = """
    WITH newest AS (
        SELECT max(id) AS id FROM stage_run GROUP BY cell, stage, component
    ), last AS (
        SELECT key, max(id) AS id FROM stage_run WHERE NOT reused GROUP BY key
    )
    SELECT ran.id, ran.at, coalesce(ran.sweep_id, 0) AS sweep_id, used.model, used.cell,
           used.target, used.component, used.stage, used.key,
           ran.reused, ran.seconds, ran.bytes, ran.peak_memory
    FROM newest JOIN stage_run AS used ON used.id = newest.id
    JOIN last ON last.key = used.key JOIN stage_run AS ran ON ran.id = last.id
    ORDER BY used.id
"""
_MOMENTS = f"""
    SELECT sweep_id, cell, status, max(at) AS at FROM event
    WHERE sweep_id IN ({_RECENT}) AND status IN {{each steps}}
    GROUP BY sweep_id, cell, status ORDER BY sweep_id
"""  # noqa: S608 - a constant
_SPENT = f"""
    SELECT sweep_id, cell, sum(seconds) AS seconds FROM stage_run
    WHERE sweep_id IN ({_RECENT}) GROUP BY sweep_id, cell
"""  # noqa: S608 - a constant
_USED = "SELECT key FROM stage_run WHERE sweep_id = :sweep_id"


class Queries(Part):
    """The part of a state that answers."""

    def now(self) -> float:
        """The database's clock."""
        return float(self._rows.fetch("SELECT {now} AS now")[0]["now"])

    def sweep(self, sweep_id: int) -> SweepInfo:
        """A sweep as it stands."""
        for found in self._sweeps(id=sweep_id):
            return found
        raise unknown_sweep(sweep_id)

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the one begun last first."""
        return self._sweeps()

    def find_sweep(self, stamp: str | None = None, feed: str | None = None) -> SweepInfo | None:
        """The sweep begun last, of a stamp and a feed where they are given."""
        return next(iter(self._sweeps(stamp=stamp, feed=feed)), None)

    def knows_versions(self, feed: str) -> bool:
        """Whether any sweep has seen a version in this feed."""
        return bool(self._rows.fetch(_IN_FEED, feed=feed))

    def outcomes(
        self,
        sweep_id: int,
        *,
        statuses: Collection[Status] | None = None,
        model: str | None = None,
        brief: bool = False,
    ) -> Iterator[Outcome]:
        """Outcomes in the order of cell ids. Read page by page: no transaction stays open.

        `brief`: without evidence and log, which are most of the bytes of a large sweep.
        """
        names = (f"NULL AS {n}" if brief and n in _LONG else n for n in Outcome.__slots__)
        wanted = {
            "sweep_id": sweep_id,
            "status": None if statuses is None else [status.value for status in statuses],
            "model": model,
        }
        query = selected("outcome", wanted, ", ".join(names))
        return records(Outcome, "outcome", "cell", self._paged(query, wanted, "cell", ""))

    def outcome(self, sweep_id: int, cell: str) -> Outcome | None:
        """The latest record of one cell."""
        found = self._records(Outcome, "outcome", "cell", sweep_id=sweep_id, cell=cell)
        return next(iter(found), None)

    def statuses(
        self, sweep_id: int, model: str | None = None, needs: Collection[str] | None = None
    ) -> dict[str, Status]:
        """The status of every cell (of a model, with these needs) in the order of cell ids; the
        quick way through a large sweep."""
        rows = self._select(
            "outcome",
            "cell, status",
            "ORDER BY cell",
            sweep_id=sweep_id,
            model=model,
            needs=None if needs is None else to_text(needs),
        )
        return {row["cell"]: Status(row["status"]) for row in rows}

    def events(self, sweep_id: int, after: int = 0, *, kind: Kind | None = None) -> Iterator[Event]:
        """The events after an id, in their order; going on from the last one misses none.

        Read page by page: no transaction stays open.
        """
        wanted = {"sweep_id": sweep_id, "kind": kind}
        query = selected("event", wanted) + self._settled
        return records(Event, "event", "id", self._paged(query, wanted, "id", after))

    def newest_event(self, sweep_id: int, kind: Kind) -> Event | None:
        """The newest event of a kind."""
        last = f"{self._settled} ORDER BY id DESC LIMIT 1"
        found = self._records(Event, "event", "id", last, sweep_id=sweep_id, kind=kind)
        return next(iter(found), None)

    def plans(self, sweep_id: int, digest: str | None = None) -> list[Json]:
        """The plans of all runs of a sweep (or the one with this digest), that of the last run
        last."""
        rows = self._select("plan", "plan", "ORDER BY run", sweep_id=sweep_id, digest=digest)
        return [unpacked(row["plan"], f"a plan of sweep {sweep_id}") for row in rows]

    def is_abandoned(self, sweep_id: int) -> bool:
        """Whether all processes that began a run of the sweep are known to have died without
        ending it. Of another machine's processes that is never known."""
        ended = self.newest_event(sweep_id, Kind.ENDED)
        begun = self.events(sweep_id, ended.id if ended else 0, kind=Kind.BEGUN)
        processes = [(one.data or {}).get("process") for one in begun]
        with reading("the processes that began a sweep"):
            dead = [from_json(one, Process).is_dead() for one in processes]
        return bool(dead) and all(dead)

    def last_event(self, sweep_id: int) -> int:
        """The id of the newest event; reading on from it, after looking at everything else,
        misses nothing."""
        rows = self._select("event", "max(id) AS id", self._settled, sweep_id=sweep_id)
        return int(rows[0]["id"] or 0)

    def stage_runs(self, sweep_id: int) -> list[StageRun]:
        """The stages that ran or were reused, in the order in which they were recorded."""
        return self._records(StageRun, "stage_run", "id", "ORDER BY id", sweep_id=sweep_id)

    def stage_counts(self, sweep_id: int, since: float) -> tuple[int, int]:
        """How many stages ran and how many were reused from that moment on."""
        rows = self._rows.fetch(_STAGE_COUNTS, sweep_id=sweep_id, since=since)
        found = {bool(row["reused"]): int(row["stages"]) for row in rows}
        return found.get(False, 0), found.get(True, 0)

    def demand(self, sweep_id: int, among: Collection[str] | None = None) -> dict[Words, Remaining]:
        """The work of a sweep by what it needs of a machine."""
        rows = self._select(
            "work",
            "needs, state, count(*) AS number",
            "GROUP BY needs, state",
            sweep_id=sweep_id,
            model=None if among is None else list(among),
        )
        counts: dict[Words, dict[str, int]] = {}
        for row in rows:
            counts.setdefault(from_text(row["needs"]), {})[row["state"]] = row["number"]
        return {needs: Remaining(**states) for needs, states in counts.items()}

    def remaining(
        self, sweep_id: int, among: Collection[str] | None = None, offers: Words | None = None
    ) -> Remaining:
        """The sum of the demand; with `offers`, only of what a machine with these words can do."""
        total: Counter[str] = Counter()
        for needs, states in self.demand(sweep_id, among).items():
            if offers is None or serves(offers, needs):
                total.update(asdict(states))
        return Remaining(**total)

    def models(self, sweep_id: int) -> frozenset[str]:
        """The models of a sweep."""
        return frozenset(row["model"] for row in self._select("work", "model", sweep_id=sweep_id))

    def leases(self, sweep_id: int | None = None) -> list[Holder]:
        """Who holds what, in one sweep or in all."""
        columns = "lease.*, expires_at <= {now} AS expired"
        order = "ORDER BY taken_at"
        return self._records(Holder, "lease", "model", order, columns, sweep_id=sweep_id)

    def machines(self) -> set[Words]:
        """What the machines offer that hold a lease of any sweep and renew it."""
        found = set()
        for holder in self.leases():
            if holder.expired:
                continue
            words: Words = frozenset(holder.needs)
            event = next(self.events(holder.sweep_id, holder.token - 1, kind=Kind.LEASED), None)
            with reading(f"event {holder.token}: offers"):
                if event is not None and event.id == holder.token:
                    words |= frozenset(map(str, (event.data or {}).get("offers", ())))
            found.add(words)
        return found

    def _sweeps(self, **wanted: Any) -> list[SweepInfo]:
        order = "ORDER BY begun_at DESC, id DESC"
        return self._records(SweepInfo, "sweep", "stamp", order, **wanted)

    def _paged(self, query: str, values: Mapping[str, Any], key: str, after: Any) -> Iterator[Row]:
        page = f"{query} AND {key} > :after ORDER BY {key} LIMIT {_PAGE}"
        while True:
            rows = self._rows.fetch(page, **values, after=after)
            yield from rows
            if len(rows) < _PAGE:
                return
            after = rows[-1][key]

    @property
    def _settled(self) -> str:
        return "" if self._rows.sqlite else f" AND {_SETTLED}"

    def unit_costs(self) -> list[StageRun]:
        """For each stage of each cell its last key, with the run in which that key last really ran.

        Cells that share a key share the work, so sums must count each key once.
        """
        return list(records(StageRun, "stage_run", "cell", self._rows.fetch(_UNIT_COSTS)))

    def overheads(self) -> dict[str, float]:
        """Seconds that each cell kept its slot busy outside its stages, mostly in verification.

        From the latest sweeps in which it was verified.
        """
        steps = [Status.BUILDING.value, Status.VERIFIED.value]
        at = {
            (row["sweep_id"], row["cell"], row["status"]): number(row["at"], "event.at")
            for row in self._rows.fetch(_MOMENTS, steps=steps)
        }
        spent = {(row["sweep_id"], row["cell"]): row["seconds"] for row in self._rows.fetch(_SPENT)}
        found: dict[str, float] = {}
        for (sweep, cell, status), moment in at.items():
            began = at.get((sweep, cell, steps[0]))
            if status == steps[1] and began is not None:
                found[cell] = max(0.0, moment - began - spent.get((sweep, cell), 0.0))
        return found

    def key_parts(self, sweep_id: int) -> dict[str, Json]:
        """What each key used in a sweep was made from."""
        query = f"SELECT key, parts FROM stage_key WHERE key IN ({_USED})"  # noqa: S608 - a constant
        rows = self._rows.fetch(query, sweep_id=sweep_id)
        return {row["key"]: _parts(row) for row in rows}

    def real_seconds(self, sweep_id: int) -> dict[str, float]:
        """The seconds that each key used in a sweep took when it last really ran, in any sweep."""
        ran = f"SELECT key, seconds FROM stage_run WHERE key IN ({_USED}) AND NOT reused"  # noqa: S608 - a constant
        rows = self._rows.fetch(f"{ran} ORDER BY id", sweep_id=sweep_id)
        return {row["key"]: number(row["seconds"], "stage_run.seconds") for row in rows}


def unknown_sweep(sweep_id: int) -> StateError:
    """The error of a sweep id that does not exist."""
    return StateError(f"there is no sweep {sweep_id} in this state")


def _parts(row: Row) -> Json:
    """What a key was made from, as far as `explain` and `diff` can compare it."""
    where = f"parts of the stage key {row['key'][:12]}"
    found = mapping(parsed(row["parts"]), where) or {}
    return {
        name: part
        for name, part in found.items()
        if name not in _MAPPINGS or mapping(part, f"{name} of the stage key {row['key'][:12]}")
    }
