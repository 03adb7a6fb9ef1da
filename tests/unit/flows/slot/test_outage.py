"""A hub that cannot be reached: asked by one cell for all, and asked again after a pause."""

from __future__ import annotations

from dataclasses import replace

from flows.observe.progress import OUTAGE, SweepProgress
from flows.slot.context import PAUSE, HubOutage, concerns
from matrix.model import Source, SourceKind
from matrix.status import FailureClass
from state.records import Kind
from tests.plans.cells import make_cell
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.errors import BuildFailed


def unreachable(text: str = "no route") -> BuildFailed:
    return BuildFailed(FailureClass.NETWORK, "plan", text)


def seen(outage: HubOutage) -> tuple[bool, bool]:
    return outage.known, outage.suspected


def test_only_network_failures_of_hub_models_concern_the_hub() -> None:
    local = make_cell()
    model = replace(local.model, source=Source(SourceKind.HUB, "a/b"))
    cell = replace(local, model=model)
    assert concerns(cell, unreachable())
    assert not concerns(local, unreachable())
    assert not concerns(cell, BuildFailed(FailureClass.EXPORT, "plan", "x"))
    assert not concerns(cell, OSError("x"))


def test_it_is_told_once_the_same_for_all_and_forgotten_when_the_hub_is_back(
    harness: SweepHarness,
) -> None:
    harness.sweep(make_plan(small_model(cells=1)))
    assert harness.begun is not None
    sweep, now = harness.begun.info.id, [1000.0]
    outage = HubOutage(harness.state, sweep, "20260609", lambda: now[0])
    assert seen(outage) == (False, False)
    first = outage.note(unreachable("refused"), asked=True)
    other = outage.note(unreachable("left alone"), asked=False)
    assert first.reason == other.reason == "refused"
    assert first.hint.endswith("modelmill retry 20260609 --class NETWORK")
    assert seen(outage) == (True, True)
    now[0] += PAUSE
    assert seen(outage) == (False, True)
    outage.note(unreachable("refused"), asked=True)
    assert seen(outage) == (True, True)
    now[0] += PAUSE
    outage.over()
    outage.over()
    assert seen(outage) == (False, False)
    events = harness.state.events(sweep, kind=Kind.NOTICE)
    told = [one for one in events if one.data and OUTAGE in one.data]
    assert len(told) == 2
    progress = SweepProgress({})
    progress.apply(told[0])
    assert progress.remarks.startswith("refused; models that are not in the local cache")
    progress.apply(told[1])
    assert progress.remarks == ""
