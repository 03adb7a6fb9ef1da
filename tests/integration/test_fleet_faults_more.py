"""What dies, stops, restarts, is doubled or has a wrong clock while a fleet sweeps.

Each sweep ends with what an undisturbed one on one machine publishes, digests included, and with
nothing published twice. All of them share the servers and, where they survive, the workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.fleet.lead import PARENT_FLOW
from flows.fleet.slot_runs import SLOT_FLOW
from matrix.errors import Exit
from matrix.status import FailureClass
from tests.fleets.machines import LIMIT, Fleet, gone, named, start_fleet, wait_for
from tests.sweeps.command import model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]


@pytest.fixture(scope="module")
def fleet(prefect_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with start_fleet(
        prefect_template, tmp_path_factory.mktemp("works"), MODELMILL_HEARTBEAT="2"
    ) as made:
        yield made


def held_up(fleet: Fleet, stamp: str, *more: str) -> tuple[str, Path]:
    """A catalog with a model whose building waits; models have other names in every test."""
    hold = fleet.project.folder / f"hold-{stamp}"
    first = model(f"{stamp}/a", act={"quantize": f"wait:{hold}"})
    models = (first, model(f"{stamp}/b"), model(f"{stamp}/c"), *more)
    return fleet.project.catalog(*models, name=f"{stamp}.toml"), hold


def twice(fleet: Fleet, run: str) -> bool:
    """Whether a flow run has been started again, or cost a worker its life."""
    with fleet.api() as api:
        again = api.get(f"/flow_runs/{run}").json()["state_type"] in {"RUNNING", "COMPLETED"}
    return again or any(one.running.popen.poll() is not None for one in fleet.machines.values())


def release(hold: Path) -> None:
    Path(f"{hold}.go").touch()


def test_servers_restart_and_a_slot_is_handed_out_twice(fleet: Fleet) -> None:
    fleet.keep("a", "b")
    catalog, hold = held_up(fleet, "servers")
    with fleet.sweep(catalog, "servers") as order:
        wait_for(hold.exists)
        holder = fleet.holder("servers", "servers/a")
        fleet.prefect.stop()
        fleet.database.stop()
        fleet.database.start()
        fleet.prefect.start()
        beat = fleet.holder("servers", "servers/a").renewed_at
        wait_for(lambda: fleet.holder("servers", "servers/a").renewed_at > beat)
        assert fleet.holder("servers", "servers/a").token == holder.token
        assert fleet.lost("servers") == []
        # Prefect has a running slot run started once more, as if it had lost track of it. (Where
        # it meets its old self, Prefect's worker fails and takes the slot along: a loss like any.)
        sweep = fleet.project.sweep("servers").id
        with fleet.api() as api:
            running = [run["id"] for run in fleet.flow_runs(SLOT_FLOW, sweep) if run["start_time"]]
            assert running
            again = {"state": {"type": "SCHEDULED", "name": "Scheduled"}, "force": True}
            reply = api.post(f"/flow_runs/{running[0]}/set_state", json=again)
            assert reply.status_code in {200, 201}, reply.text
        wait_for(lambda: twice(fleet, running[0]))
        fleet.keep("a", "b")
        release(hold)
        ran = order.end(LIMIT)
    assert (ran.code, ran.err) == (0, ""), ran
    fleet.check(catalog, "servers")


def test_workers_and_parents_that_are_killed(fleet: Fleet) -> None:
    fleet.keep("a", "b")
    catalog, hold = held_up(fleet, "parents")
    with fleet.sweep(catalog, "parents") as order:
        wait_for(hold.exists)
        # The worker alone: its slot finishes what it has, its parent finds another place.
        first = fleet.leader("parents")
        parent = int((first.data or {})["pid"])
        home = fleet.of(parent)
        fleet.machines[home].running.signal(signal.SIGKILL)
        second = fleet.leader("parents", after=first.id)
        assert fleet.of(int((second.data or {})["pid"])) != home
        wait_for(lambda: gone(parent))
        assert order.popen.poll() is None, "whoever ordered goes on following"
        # The parent itself: it is silent, and another one is asked for.
        os.kill(int((second.data or {})["pid"]), signal.SIGKILL)
        fleet.machine("c")
        fleet.ready("c")
        third = fleet.leader("parents", after=second.id)
        # Two others at once: the one that begins last leads, all see the sweep to its end.
        again = fleet.project.fleet("resume", "parents")
        with (
            fleet.project.start(*again, plain=False) as one,
            fleet.project.start(*again, plain=False) as other,
        ):
            fourth = fleet.leader("parents", after=third.id)
            fleet.leader("parents", after=fourth.id)
            release(hold)
            ends = [one.end(LIMIT), other.end(LIMIT), order.end(LIMIT)]
    assert [(ran.code, ran.err) for ran in ends] == [(0, "")] * 3, ends
    wait_for(fleet.machines[home].project.alone)
    fleet.check(catalog, "parents")
    revisions = [version for _name, version in fleet.project.published("modelmill-index")]
    assert [version for version in revisions if "parents" in version] == ["0.0.0-parents"]


def test_a_model_that_kills_its_slot_is_poison_and_a_killed_host_costs_a_cell(
    fleet: Fleet,
) -> None:
    fleet.keep("a", "b")
    cure = fleet.project.folder / "cure"
    poison = model("poison/p", act={"quantize": f"until:{cure}:owner"})
    catalog, hold = held_up(fleet, "poison", poison)
    with fleet.sweep(catalog, "poison") as order:
        wait_for(hold.exists)
        holder = psutil.Process(fleet.holder("poison", "poison/a").pid)
        (host, *_others) = named(holder.children(recursive=True), "child.py")
        host.kill()
        release(hold)
        ran = order.end(LIMIT)
    assert ran.code == Exit.CELLS_FAILED, ran
    outcomes = fleet.project.outcomes("poison")
    set_aside = [
        one for one in outcomes.values() if one.model == "poison/p:fill-mask" and one.failure
    ]
    assert set_aside
    for one in set_aside:
        assert (one.failure, one.retryable) == (FailureClass.CRASH, False)
        assert "died 3 times" in str(one.message)
        lost = (one.detail or {})["lost_leases"]
        assert len({(entry["pid"], entry["token"]) for entry in lost}) == 3
    crashed = [one for one in outcomes.values() if one.failure and one not in set_aside]
    assert [one.model for one in crashed] == ["poison/a:fill-mask"]
    cure.touch()
    ran = fleet.again("poison", "retry")
    assert (ran.code, ran.err) == (0, ""), ran
    fleet.check(catalog, "poison")


def test_cancelled_by_ctrl_c_and_in_prefect(fleet: Fleet) -> None:
    fleet.keep("a", "b")
    catalog, hold = held_up(fleet, "cancel")
    with fleet.sweep(catalog, "cancel") as order:
        wait_for(hold.exists)
        order.signal(signal.SIGINT, group=True)
        ran = order.end(LIMIT)
    assert ran.code == Exit.INTERRUPTED, ran
    assert "resume cancel" in ran.err
    assert fleet.project.holders("cancel") == []
    hold.unlink()
    with fleet.project.start(*fleet.project.fleet("resume", "cancel"), plain=False) as order:
        wait_for(hold.exists)
        sweep = fleet.project.sweep("cancel").id
        with fleet.api() as api:
            (parent,) = [
                run for run in fleet.flow_runs(PARENT_FLOW, sweep) if run["state_type"] == "RUNNING"
            ]
            wanted = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
            assert api.post(f"/flow_runs/{parent['id']}/set_state", json=wanted).is_success
        ran = order.end(LIMIT)
    assert ran.code == Exit.INTERRUPTED, ran
    machines = fleet.machines.values()
    wait_for(lambda: not any(named(one.project.processes(), "child.py") for one in machines))
    # Prefect may have ended a slot before it could hand its model back.
    wait_for(lambda: all(one.expired for one in fleet.project.holders("cancel")))
    with fleet.api() as api:
        ended = {"CANCELLED", "CRASHED", "COMPLETED", "FAILED"}
        wait_for(
            lambda: (
                {
                    run["state_type"]
                    for flow in (PARENT_FLOW, SLOT_FLOW)
                    for run in fleet.flow_runs(flow, sweep)
                }
                <= ended
            )
        )
    release(hold)
    ran = fleet.again("cancel")
    assert (ran.code, ran.err) == (0, ""), ran
    fleet.check(catalog, "cancel")
