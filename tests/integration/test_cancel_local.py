"""`modelmill cancel` on a sweep of this machine, from another process."""

from __future__ import annotations

from tests.machine.timing import eventually
from tests.sweeps.command import Mill, model


def test_a_local_sweep_is_cancelled_from_elsewhere_and_resumed(mill: Mill) -> None:
    gate = mill.folder / "gate"
    mill.catalog(model(act={"optimize": f"wait:{gate}"}), model("tiny/b"))
    with mill.start("sweep", "catalog.toml", "--stamp", "s1", "--jobs", "1", plain=True) as sweep:
        assert eventually(gate.exists, 60)
        cancelled = Mill(mill.folder).run("cancel", "s1")
        ran = sweep.end()
    assert (cancelled.code, cancelled.err) == (0, "")
    assert "sweep s1 is cancelled" in cancelled.out
    assert ran.code == 130, ran
    assert "stopped: cancelled" in ran.err
    assert "modelmill resume s1" in ran.err
    assert mill.alone()
    assert mill.sweep("s1").exit_code == 130
    gate.with_name("gate.go").touch()
    resumed = mill.run("resume", "s1")
    assert resumed.code == 0, resumed
    assert mill.statuses("s1") == {"published": 16}
