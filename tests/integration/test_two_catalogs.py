"""Two catalogs under one stamp, as two sweeps of one day are: none loses what the other has."""

from __future__ import annotations

from pathlib import Path

from tests.sweeps.command import Project, model

STAMP = "day"
BAD = "tiny/bad:fill-mask@mlas_cpu"


def sweep_both(project: Project, repaired: Path) -> None:
    bad = model("tiny/bad", act={"optimize@mlas_cpu": f"until:{repaired}:fail:OPTIMIZE"})
    project.catalog(model("tiny/good"), bad, name="first.toml")
    project.catalog(model("tiny/other"), name="second.toml")
    first, second = project.session(
        [
            ("sweep", name, "--stamp", STAMP, "--target", "mlas_cpu")
            for name in ("first.toml", "second.toml")
        ]
    )
    assert (first.code, second.code) == (1, 0), (first, second)


def test_a_retry_takes_up_the_failure_of_the_first_catalog(project: Project) -> None:
    repaired = project.folder / "repaired"
    sweep_both(project, repaired)
    (again,) = project.session([("retry", STAMP)])
    assert again.code == 1
    assert "2 cells: 1 published, 1 build failed" in again.out
    failed = project.outcomes(STAMP)[BAD]
    assert (failed.status, str(failed.failure)) == ("build_failed", "OPTIMIZE")
    repaired.touch()
    (done,) = project.session([("retry", STAMP)])
    assert done.code == 0, done
    assert project.statuses(STAMP) == {"published": 3}


def test_what_the_other_catalog_has_published_is_not_built_again(project: Project) -> None:
    repaired = project.folder / "repaired"
    sweep_both(project, repaired)
    before = project.published()
    (resumed,) = project.session([("resume", STAMP, "--only", "tiny/other:*")])
    assert resumed.code == 0, resumed
    assert "1 cell: 1 published" in resumed.out
    assert before.items() <= project.published().items()


def test_a_catalog_that_is_named_stands_alone(project: Project) -> None:
    """Whoever names the catalog, perhaps edited or moved, means no other."""
    sweep_both(project, project.folder / "repaired")
    (resumed,) = project.session([("resume", STAMP, "second.toml")])
    assert resumed.code == 0, resumed
    assert "1 cell: 1 published" in resumed.out
