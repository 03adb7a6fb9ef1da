"""One bad cell costs no other cell, and what went wrong is said so that it can be acted on."""

from __future__ import annotations

import os

import psutil
import pytest

from feed.selection import resolve_index
from matrix.status import FailureClass, Status
from tests.machine.timing import patient
from tests.sweeps.command import Project, model

TARGETS = ("--target", "qnn_npu,mlas_cpu")
BAD = "quantize@qnn_npu"
"""A stage that only one of the two cells has."""
SHORT = f"[model.target.qnn_npu]\ntimeout = {patient(2)}"
"""Far more than any stage takes that does not hang."""


def failing(name: str, action: str, extra: str = "") -> str:
    return model(f"tiny/{name}", act={BAD: action}, extra=extra)


def bad_catalog(project: Project) -> str:
    stray = project.folder / "stray"
    return project.catalog(
        model("tiny/good"),
        failing("crash", f"once:{project.folder / 'crashed'}:crash"),
        failing("killed", "kill"),
        failing("hang", "hang", SHORT),
        failing("stray", f"spawn:{stray}", SHORT),
        failing("flood", "flood"),
        failing("memory", "memory:4000"),
        failing("broken", "fail:QUANTIZE"),
        failing("bug", "raise:no such layer"),
        failing("full", "full"),
        failing("shaky", f"once:{project.folder / 'shaken'}:fail:NETWORK:again"),
        failing("unsupported", "fail:UNSUPPORTED"),
        model("tiny/export", act={"export": "fail:EXPORT"}),
        model("tiny/plan", act={"plan": "raise:half-downloaded weights"}),
    )


EXPECTED = {
    "crash": (Status.BUILD_FAILED, FailureClass.CRASH),
    "killed": (Status.BUILD_FAILED, FailureClass.MEMORY),
    "hang": (Status.BUILD_TIMEOUT, FailureClass.TIMEOUT),
    "stray": (Status.BUILD_TIMEOUT, FailureClass.TIMEOUT),
    "flood": (Status.BUILD_FAILED, FailureClass.CRASH),
    "memory": (Status.BUILD_FAILED, FailureClass.MEMORY),
    "broken": (Status.BUILD_FAILED, FailureClass.QUANTIZE),
    "bug": (Status.BUILD_FAILED, FailureClass.QUANTIZE),
    "full": (Status.BUILD_FAILED, FailureClass.DISK),
    "unsupported": (Status.UNSUPPORTED, FailureClass.UNSUPPORTED),
}
WHOLE = {"export": FailureClass.EXPORT, "plan": FailureClass.UNKNOWN}
"""Models of which nothing can be built."""


@pytest.mark.skipif(os.name != "posix", reason="the fake engine dies by signals")
def test_every_bad_cell_fails_alone_with_its_class(project: Project) -> None:
    ran = project.run(
        "sweep",
        bad_catalog(project),
        "--stamp",
        "s1",
        *TARGETS,
        "--memory",
        "500MB",
        "--tries",
        "2",
    )
    assert (ran.code, ran.err) == (1, "")
    outcomes = project.outcomes("s1")
    cells = {
        cell: one for cell, one in outcomes.items() if one.target != "export" and one.status.failed
    }
    expected = {f"tiny/{name}:fill-mask@qnn_npu": ends for name, ends in EXPECTED.items()} | {
        f"tiny/{name}:fill-mask@{target}": (Status.BUILD_FAILED, failure)
        for name, failure in WHOLE.items()
        for target in ("qnn_npu", "mlas_cpu")
    }
    found = {cell: (one.status, one.failure) for cell, one in cells.items()}
    assert found == expected
    assert all(one.message and one.hint and one.stage for one in cells.values())
    # Everything else is published, with an index that tells of all of it.
    published = [one for one in outcomes.values() if one.status is Status.PUBLISHED]
    assert len(published) == len(outcomes) - len(cells) - len(WHOLE)
    assert all(project.published()[one.package, one.version] == one.tree for one in published)
    index = resolve_index(project.feed(), "modelmill-index", "s1").index
    assert sum(cell.available for cell in index.cells) == 2 * 14 - len(cells)
    assert project.alone()
    assert not psutil.pid_exists(int((project.folder / "stray").read_text()))

    said = project.ok("status", "s1", "--failed").out
    assert "the end of the log of " in said
    assert "about to crash" in said
    assert "tiny/good" not in said
    failures = project.ok("status", "s1", "--json").json()["failures"]
    assert {one["class"] for one in failures} == {str(failure) for _, failure in found.values()}

    _retry_one_class(project)


def _retry_one_class(project: Project) -> None:
    """The crash does not come again, the flood does."""
    before, known = project.published(), project.outcomes("s1")
    keyless = project.run("retry", "s1", "--class", "crash", "--sign-key", "nowhere.pem")
    assert (keyless.code, project.outcomes("s1")) == (2, known), "a wrong key forgets no failure"
    ran = project.run("retry", "s1", "--class", "crash")
    assert ran.code == 1
    outcomes = project.outcomes("s1")
    assert outcomes["tiny/crash:fill-mask@qnn_npu"].status is Status.PUBLISHED
    assert outcomes["tiny/flood:fill-mask@qnn_npu"].failure is FailureClass.CRASH
    assert outcomes["tiny/broken:fill-mask@qnn_npu"].attempts == 1
    new = project.published().keys() - before.keys()
    assert sorted(version for _package, version in new) == [
        "0.0.0-s1-qnn-npu-tiny-crash-fill-mask",
        "0.0.0-s1-r2",
    ]
    nothing = project.run("retry", "s1", "--class", "AUTH")
    assert nothing.code == 4
    assert "failed cells, but none of this selection" in nothing.err
