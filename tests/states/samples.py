"""Small sweeps for the tests of the state, on whichever database they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import text

from machine.processes import Process, this_host
from matrix.status import Status
from state.records import CellRow, Lease, Owner, StageRun, SweepInfo
from state.state import State
from tests.machine.dead import NO_SUCH_PID

TARGETS = ("qnn_npu", "mlas_cpu")
TREE = "a" * 64
ALIVE = Owner.here("slot-1")
FOREIGN = Owner("slot-2", Process("elsewhere", 1, "1"))
DEAD = Owner("slot-3", Process(this_host(), NO_SUCH_PID, "1"))
HOUR = 3600.0


def model(number: int) -> str:
    return f"org/model-{number}:task"


def cell(number: int = 0, target: str = TARGETS[0]) -> str:
    return f"{model(number)}@{target}"


def rows(
    models: int = 2,
    *,
    stamp: str = "20260609",
    targets: Sequence[str] = TARGETS,
    skip: dict[str, str] | None = None,
) -> list[CellRow]:
    skip = skip or {}
    return [
        CellRow(
            cell=cell(number, target),
            model=model(number),
            target=target,
            precision="fp32",
            package=f"modelmill-org-model-{number}",
            version=f"0.0.0-{stamp}-{target.replace('_', '-')}-org-model-{number}",
            skip=skip.get(cell(number, target)),
        )
        for number in range(models)
        for target in targets
    ]


def begin(
    state: State,
    cells: Sequence[CellRow] | None = None,
    *,
    stamp: str = "20260609",
    estimates: Sequence[float] = (),
    publish: bool = True,
) -> SweepInfo:
    cells = rows(stamp=stamp) if cells is None else cells
    models = dict.fromkeys((row.model for row in cells), 0.0)
    models |= dict(zip(models, estimates, strict=False))
    return state.begin(stamp, "feed", cells, models, {"jobs": 2}, {"only": []}, publish=publish)


def take(state: State, sweep: SweepInfo, owner: Owner = ALIVE, ttl: float = 60.0) -> Lease:
    lease = state.lease(sweep.id, owner, ttl)
    assert lease is not None
    return lease


def status(state: State, sweep: SweepInfo, name: str | None = None) -> Status:
    found = state.outcome(sweep.id, name or cell())
    assert found is not None
    return found.status


def counts(state: State, sweep_id: int) -> dict[Status, int]:
    """The cells of a sweep by status."""
    return dict(Counter(state.statuses(sweep_id).values()))


def stage(name: str, key: str, **facts: float | str | bool) -> StageRun:
    row = {"cell": cell(), "target": TARGETS[0], "stage": name, "key": key, "parts": {"is": key}}
    return StageRun(**{**row, **facts})  # type: ignore[arg-type]  # mixed values by name


def add_stages(state: State, held: Lease, *stages: StageRun) -> None:
    """Stage runs of a lease, whichever status their cell has."""
    state.record(held, held.sweep_id, stages[0].cell, Status.BUILDING, stages=stages)


def sql(state: State, statement: str, **values: object) -> None:
    """Behind the back of the state, as another program or another clock would."""
    with state.database.write() as connection:
        connection.execute(text(statement), values)
