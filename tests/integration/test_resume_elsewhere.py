"""Going on with a sweep on a machine whose state has never heard of it."""

from __future__ import annotations

import shutil

from feed.directory import DirectoryFeed
from tests.sweeps.command import Project, model


def test_a_sweep_that_only_the_feed_knows_goes_on_with_its_catalog(project: Project) -> None:
    journal = str(project.folder / "journal")
    project.catalog(model(journal=journal), model("tiny/b", journal=journal))
    project.env["MODELMILL_FEED"] = str(project.folder / "feed")
    project.ok("sweep", "catalog.toml", "--stamp", "s1", "--model", "tiny/a")
    shutil.rmtree(project.home)
    (project.folder / "journal").unlink()

    unknown = project.run("resume", "s2", "catalog.toml")
    assert (unknown.code, unknown.out) == (2, "planning the sweep\n")
    assert "knows a sweep 's2'" in unknown.err
    alone = project.run("resume", "s1")
    assert (alone.code, alone.out) == (2, "planning the sweep\n")
    assert alone.err.endswith("(continue with the catalog: modelmill resume s1 CATALOG)\n")

    project.ok("resume", "s1", "catalog.toml")
    assert project.statuses("s1") == {"published": 16}
    assert {line.split()[1] for line in project.journal()} == {"tiny/b"}, "nothing is built twice"
    project.ok("resume", "s1")


def test_versions_without_an_index_are_enough(project: Project) -> None:
    project.catalog(model(act={"optimize": "fail:OPTIMIZE"}))
    project.env["MODELMILL_FEED"] = str(project.folder / "feed")
    assert project.run("sweep", "catalog.toml", "--stamp", "s1").code == 1
    feed = DirectoryFeed(project.folder / "feed")
    assert list(feed.packages()) == ["modelmill-tiny-a"], "the export alone is there, and no index"
    shutil.rmtree(project.home)
    project.catalog(model())
    project.ok("resume", "s1", "catalog.toml")
    assert project.statuses("s1") == {"published": 8}
