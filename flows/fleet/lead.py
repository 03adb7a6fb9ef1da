"""Who leads a sweep of a fleet, known from the state alone, and the flow runs of its parents.

A parent says at every heartbeat that it lives. When none has said so for long, whoever works on the
sweep or follows it asks for another one; of two, the one that begins last leads. What Prefect says
of a run proves nothing: after an outage, or on a busy machine, it takes living processes for dead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException

from flows.fleet.run import FleetRun
from flows.observe.unserved import BEAT, SILENCE, last_beat
from machine.background import Background
from matrix.errors import Unusable, UsageError
from state.errors import StateError
from state.reading import StateReader
from state.records import Kind, SweepInfo
from state.state import State

PARENT_FLOW = "modelmill-fleet"
NIGHTLY_TAG = "nightly:"
"""How the tag of a nightly deployment begins, and so of its runs.

Each night looks itself whether another one is worked on (`flows.fleet.lead.earlier_night`).

Works around Prefect (test_a_concurrency_limit_is_decided_before_a_run_is_due): a worker takes a run
two minutes before its time, when the sweep of the night before may still end.

Works around Prefect (test_a_concurrency_limit_counts_the_runs_of_one_deployment): a parent that has
to leave its worker asks for another one, which is not a run of the nightly deployment.
"""
CANCELLED = "cancelled in Prefect"
AWAY = (httpx.HTTPError, PrefectException)
"""What Prefect's client raises while the server is away."""
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
UNFINISHED = {"state": {"type": {"not_any_": FINAL}}}
NIGHTLY = "nightly"
"""Key of the settings of a sweep that a schedule began: the deployment."""
_BEATS = 4
_LEAST = 60.0
"""A busy machine may be silent for that long."""
_GAP = 30.0
"""Seconds between two looks after which the state was away, and everybody silent."""


class Heartbeat(Background):
    """Says that a parent lives while the block runs."""

    def __init__(self, state: State, sweep: int, seconds: float) -> None:
        super().__init__("parent-heartbeat")
        self._state = state.at_once
        self._sweep = sweep
        self._seconds = seconds

    def work(self) -> None:
        """Say so until the block is over."""
        notice = {BEAT: self._seconds, SILENCE: max(_LEAST, _BEATS * self._seconds)}
        while not self.over.is_set():
            with suppress(StateError):
                self._state.note(self._sweep, Kind.NOTICE, notice)
            self.over.wait(self._seconds)


@dataclass
class ParentWatch:
    """Asks for another parent when the one of a run has not begun in time, or is silent."""

    state: StateReader
    sweep: int
    run: int
    """The event of the run."""
    start_limit: float
    """Seconds that a parent has to begin."""
    ask: Callable[[str], bool]
    """Asks for one, with a name for the request; False: nobody could be asked."""
    _limit: float = field(init=False)
    _seen: int = field(init=False)
    _since: float = field(init=False)
    _looked: float = field(init=False)
    _asked: int = 0

    def __post_init__(self) -> None:
        self._seen, self._limit = self.run, self.start_limit
        self._since = self._looked = time.monotonic()

    def look(self) -> None:
        """Look now; call it every few seconds."""
        beat = last_beat(self.state.events(self.sweep, self._seen, kind=Kind.NOTICE))
        now = time.monotonic()
        if beat:
            self._seen, self._since, self._asked = beat[0].id, now, 0
            self._limit = beat[1]
        elif now - self._looked > _GAP:
            self._since = now
        self._looked = now
        if now - self._since > self._limit and self.ask(f"{self._seen}-{self._asked + 1}"):
            self._asked += 1
            self._since, self._limit = now, self.start_limit


def earlier_night(state: StateReader, nightly: str, due: float) -> SweepInfo | None:
    """A sweep of the same schedule that was worked on when this one was due, or is now.

    Not whether one is now alone: this one may begin late, because its worker led that one.
    """
    for info in state.sweeps():
        if info.settings.get(NIGHTLY) != nightly:
            continue
        if info.ended_at is not None and info.ended_at > due:
            return info
        if info.ended_at is None and _is_alive(state, info):
            return info
    return None


def _is_alive(state: StateReader, info: SweepInfo) -> bool:
    if any(not one.expired for one in state.leases(info.id)):
        return True
    beat = last_beat(state.events(info.id, kind=Kind.NOTICE))
    return beat is not None and state.now() - beat[0].at < beat[1]


def check_deployed(pool: str) -> None:
    """Refuse a pool for which `modelmill deploy` has not been run."""
    try:
        with get_client(sync_client=True) as client:
            client.read_deployment_by_name(f"{PARENT_FLOW}/{pool}")
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server knows no fleet '{pool}'", hint=f"modelmill deploy --pool {pool}"
        ) from None


def submit(pool: str, run: FleetRun, request: str = "") -> None:
    """Start a parent for a recorded run; `request`: the name of a further one."""
    stamp = run.plan.stamp
    run_deployment(
        f"{PARENT_FLOW}/{pool}",
        parameters={"stamp": stamp, "sweep": run.sweep, "run": run.id, "pool": pool},
        timeout=0,
        tags=[f"stamp:{stamp}", f"sweep:{run.sweep}"],
        idempotency_key="-".join(filter(None, (f"{pool}-{run.sweep}-{run.id}", request))),
        as_subflow=False,  # a slot that asks for it ends before it
    )


def another_parent(pool: str, run: FleetRun, request: str) -> bool:
    """Start another parent for a run, unless the last one failed or was cancelled; `request` names
    it, so that two who ask start one. False: the server is away."""
    try:
        if not refused(run.sweep):
            submit(pool, run, request)
    except AWAY:
        return False
    return True


def refused(sweep: int) -> str:
    """Why no other parent is to follow the last one: what it said when it failed, or that somebody
    cancelled it; empty: nothing of that."""
    with get_client(sync_client=True) as client:
        newest = FlowRunSort.EXPECTED_START_TIME_DESC
        runs = runs_of(client, PARENT_FLOW, [f"sweep:{sweep}"], {}, sort=newest, limit=1)
    for state in (run.state for run in runs):
        if state is not None and state.is_failed():
            return state.message or "failed"
        if state is not None and (state.is_cancelled() or state.is_cancelling()):
            return CANCELLED
    return ""


def this_run() -> FlowRun | None:
    """The flow run around us."""
    context = FlowRunContext.get()
    return context.flow_run if context else None


def nightly_of(run: FlowRun | None) -> str:
    """The schedule that started a run; empty: none did."""
    tags = run.tags if run else []
    return next((tag.removeprefix(NIGHTLY_TAG) for tag in tags if tag.startswith(NIGHTLY_TAG)), "")


def runs_of(
    client: SyncPrefectClient, flow: str, tags: list[str], wanted: Mapping[str, Any], **page: Any
) -> list[FlowRun]:
    """The runs of a flow that have these tags and match the filter."""
    return client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [flow]}}),
        flow_run_filter=FlowRunFilter.model_validate({"tags": {"all_": tags}, **wanted}),
        **page,
    )


@contextmanager
def reached() -> Iterator[None]:
    """Turn the errors of Prefect's client into one line."""
    url = os.environ.get("PREFECT_API_URL", "")
    shown = httpx.URL(url).copy_with(userinfo=None) if url else "PREFECT_API_URL (not set)"
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        hint = "set PREFECT_API_AUTH_STRING or PREFECT_API_KEY" if code in {401, 403} else ""
        raise Unusable(f"the Prefect server at {shown} answers {code}", hint=hint) from None
    except ObjectNotFound:
        raise Unusable(
            f"the Prefect server at {shown} has no such pool", hint="run modelmill deploy first"
        ) from None
    except (httpx.HTTPError, RuntimeError) as error:
        raise Unusable(
            f"the Prefect server at {shown} cannot be reached: {error}",
            hint="start it, or check PREFECT_API_URL",
        ) from None
