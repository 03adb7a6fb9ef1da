"""Commands that look back on two sweeps: diff, plan with its estimate, the report of both."""

from __future__ import annotations

import json

import pytest

from tests.sweeps.command import Project, Ran, model

A, B = "20260609", "20260610"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The second batch has another source for one model, another model, and a failure."""
    project = Project(tmp_path_factory.mktemp("swept"))
    project.catalog(model("tiny/a"), model("tiny/b"), model("tiny/gone"))
    project.catalog(
        model("tiny/a"),
        model("tiny/b", salt="2", act={"optimize@mlas_cpu": "fail:OPTIMIZE"}),
        model("tiny/new"),
        name="second.toml",
    )
    first, second = project.session(
        [
            ("sweep", "catalog.toml", "--stamp", A, "--target", "mlas_cpu,qnn_npu"),
            ("sweep", "second.toml", "--stamp", B, "--target", "mlas_cpu,qnn_npu"),
        ]
    )
    assert (first.code, second.code) == (0, 1), (first, second)
    return project


def test_two_sweeps_are_compared_for_people_machines_and_the_report(swept: Project) -> None:
    told, document, page, absent, also, differs, same, failed, green = swept.session(
        [
            ("diff", A, B),
            ("diff", A, B, "--json"),
            ("report", B, "--against", A, "-o", "out/report.html"),
            ("diff", A, "elsewhere"),
            ("report", B, "--against", "elsewhere"),
            ("diff", A, B, "--exit-code"),
            ("diff", B, B, "--exit-code"),
            ("status", B, "--exit-code"),
            ("status", A, "--exit-code"),
        ]
    )
    assert [one.code for one in (differs, same, failed, green)] == [1, 0, 1, 0]
    assert (swept.home / ".gitignore").read_text("utf-8").splitlines()[-1] == "*"
    counts = {
        "now fails": 1,
        "verified less": 0,
        "still fails": 0,
        "now works": 0,
        "changed": 1,
        "new": 2,
        "removed": 2,
        "unfinished": 0,
        "unchanged": 2,
    }
    assert document.json()["counts"] == counts
    cells = {one["cell"]: one for one in document.json()["cells"]}
    changed = cells["tiny/b:fill-mask@qnn_npu"]
    assert changed["verdict"] == "changed"
    assert [cause["origin"] for cause in changed["inputs"]] == ["source"]
    assert changed["before"]["tree"] != changed["after"]["tree"]
    assert changed["before"]["bytes"]
    assert changed["after"]["seconds"]
    assert any(name.startswith("parity") for name in changed["after"]["measures"])
    lines = told.out.splitlines()
    assert lines[0] == "now fails (1)"
    assert "    OPTIMIZE: told to fail" in lines
    assert any(line.startswith("    source content: ") for line in lines)
    assert any(line.startswith("    time ") for line in lines)
    assert lines[-1] == f"{A} -> {B}: 1 now fails, 1 changed, 2 new, 2 removed, 2 unchanged"
    assert (page.code, page.out) == (0, "out/report.html\n")
    html = (swept.folder / "out" / "report.html").read_text("utf-8")
    data = html.partition('<script id="data" type="application/json">')[2].partition("</script>")[0]
    assert json.loads(data)["comparison"]["counts"] == counts
    for ran in (absent, also):
        assert ran.code == 2
        assert f"known: {B}, {A}" in ran.err


def test_what_is_not_there_is_near_something_that_is(swept: Project) -> None:
    stamp, cell, other = swept.session(
        [
            ("status", "2026060"),
            ("explain", "tiny/nw:fill-mask@mlas_cpu"),
            ("explain", "tiny/gone:fill-mask@mlas_cpu"),
        ]
    )
    assert {one.code for one in (stamp, cell, other)} == {2, 4}, (stamp, cell, other)
    assert "did you mean 202606" in stamp.err
    assert f"sweep {B} has no cell tiny/nw:fill-mask@mlas_cpu" in cell.err
    assert "did you mean tiny/new:fill-mask@mlas_cpu" in cell.err
    assert f"it is in sweep {A}: --stamp {A}" in other.err


def estimates(ran: Ran) -> dict[str, float]:
    found = ran.json()["estimate"]
    for figure in (found["seconds"], found["disk"], found["memory"]):
        assert figure > 0
    return {name: one["seconds"] for name, one in found["models"].items()}


def test_a_plan_tells_what_it_will_take_from_what_was_before(swept: Project) -> None:
    known, document, one_slot, before = swept.session(
        [
            ("plan", "second.toml", "--disk-budget", "20GB", "--timeout", "15m"),
            ("plan", "second.toml", "--json"),
            ("plan", "second.toml", "--json", "--jobs", "1"),
            ("plan", "second.toml", "--home", "nothing-was-swept-here"),
        ]
    )
    models = estimates(document)
    assert set(models) == {"tiny/a:fill-mask", "tiny/b:fill-mask", "tiny/new:fill-mask"}
    estimates(one_slot)
    alone, shared = (ran.json()["estimate"] for ran in (one_slot, document))
    assert (alone["slots"], shared["slots"]) == (1, 2)
    assert alone["seconds"] > shared["seconds"]
    assert "if everything is built again with 2 slots, about:" in known.out
    shown = [line.split() for line in known.out.splitlines()]
    assert ["disk_budget", "20.0", "GB", "flag", "--disk-budget"] in shown
    assert ["timeout", "15m00s", "flag", "--timeout"] in shown
    for word in ("time", "disk", "memory"):
        assert any(line.startswith(f"  {word} ") for line in known.out.splitlines())
    assert "if everything" not in before.out
