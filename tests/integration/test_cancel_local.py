"""`modelmill cancel` on a sweep of this machine, from another process."""

from __future__ import annotations

from tests.machine.timing import eventually
from tests.sweeps.command import Project, model


def test_a_local_sweep_is_cancelled_from_elsewhere_and_resumed(project: Project) -> None:
    gate = project.folder / "gate"
    project.catalog(model(act={"optimize": f"wait:{gate}"}), model("tiny/b"))
    with project.start(
        "sweep", "catalog.toml", "--stamp", "s1", "--jobs", "1", plain=True
    ) as sweep:
        assert eventually(gate.exists, 60)
        cancelled = Project(project.folder).run("cancel", "s1")
        ran = sweep.end()
    assert (cancelled.code, cancelled.err) == (0, "")
    assert "sweep s1 is cancelled" in cancelled.out
    assert ran.code == 130, ran
    assert "stopped: cancelled" in ran.err
    assert "modelmill resume s1" in ran.err
    assert project.alone()
    assert project.sweep("s1").exit_code == 130
    gate.with_name("gate.go").touch()
    resumed = project.run("resume", "s1")
    assert resumed.code == 0, resumed
    assert project.statuses("s1") == {"published": 16}
