"""Commands in hints about a sweep of a fleet say `--fleet`, or else they build on this machine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.fleet.run import FleetRun, record_run
from flows.observe.following import NOBODY, StatusWatch
from flows.observe.summaries.document import summary_document
from flows.observe.summaries.markdown import markdown
from flows.observe.summary import summary_of
from flows.observe.views import PlainView
from flows.run.resume import nothing_to_retry
from matrix.status import FailureClass, Status
from state.leases import _LOOK
from state.records import Facts
from state.state import State
from tests.fleets.runs import begun


@pytest.fixture(params=["", " --fleet"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[State, FleetRun, str]]:
    """A sweep, on this machine and on a fleet."""
    state, run = begun(tmp_path)
    with state:
        if request.param:
            record_run(state, run)
        yield state, run, request.param


def test_what_can_go_on(case: tuple[State, FleetRun, str]) -> None:
    state, run, flags = case
    info = state.sweep(run.sweep)
    again = f"modelmill resume s{flags}"
    assert f"`{again}` continues it" in markdown(summary_document(state, info))
    assert nothing_to_retry(state, info).hint.endswith(f" open: {again}")
    out = io.StringIO()
    watch = StatusWatch(state, info, PlainView(out))
    watch.begin()
    assert watch.progress.notice == f"{NOBODY} s{flags}"


def test_what_failed(case: tuple[State, FleetRun, str]) -> None:
    """The state does not know the names of commands' flags."""
    state, run, flags = case
    cells = [cell for cell in state.statuses(run.sweep) if "@" in cell]
    for cell, facts in zip(
        cells,
        [
            Facts(failure=FailureClass.CRASH, message="x", hint=_LOOK, retryable=False),
            Facts(failure=FailureClass.NETWORK, message="y", retryable=True),
            Facts(failure=FailureClass.AUTH, message="z", retryable=True),
        ],
        strict=False,
    ):
        state.record(None, run.sweep, cell, Status.BUILD_FAILED, facts)
    summary = summary_of(state, state.sweep(run.sweep))
    assert {group.hint for group in summary.groups} == {
        f"look for memory or driver trouble, then: modelmill retry s{flags} --class CRASH",
        f"check the connection, then modelmill retry s{flags} --class NETWORK",
        f"log in again, then modelmill resume s{flags}",
    }
