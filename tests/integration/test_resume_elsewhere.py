"""Going on with a sweep on a machine whose state has never heard of it."""

from __future__ import annotations

import shutil

from feed.directory import DirectoryFeed
from tests.sweeps.command import Mill, model


def test_a_sweep_that_only_the_feed_knows_goes_on_with_its_catalog(mill: Mill) -> None:
    journal = str(mill.folder / "journal")
    mill.catalog(model(journal=journal), model("tiny/b", journal=journal))
    mill.env["MODELMILL_FEED"] = str(mill.folder / "feed")
    mill.ok("sweep", "catalog.toml", "--stamp", "s1", "--model", "tiny/a")
    shutil.rmtree(mill.home)
    (mill.folder / "journal").unlink()

    unknown = mill.run("resume", "s2", "catalog.toml")
    assert (unknown.code, unknown.out) == (2, "")
    assert "knows a sweep 's2'" in unknown.err
    alone = mill.run("resume", "s1")
    assert (alone.code, alone.out) == (2, "")
    assert alone.err.endswith("(go on with the catalog: modelmill resume s1 CATALOG)\n")

    mill.ok("resume", "s1", "catalog.toml")
    assert mill.statuses("s1") == {"published": 16}
    assert {line.split()[1] for line in mill.journal()} == {"tiny/b"}, "nothing is built twice"
    mill.ok("resume", "s1")


def test_versions_without_an_index_are_enough(mill: Mill) -> None:
    mill.catalog(model(act={"optimize": "fail:OPTIMIZE"}))
    mill.env["MODELMILL_FEED"] = str(mill.folder / "feed")
    assert mill.run("sweep", "catalog.toml", "--stamp", "s1").code == 1
    feed = DirectoryFeed(mill.folder / "feed")
    assert list(feed.packages()) == ["modelmill-tiny-a"], "the export alone is there, and no index"
    shutil.rmtree(mill.home)
    mill.catalog(model())
    mill.ok("resume", "s1", "catalog.toml")
    assert mill.statuses("s1") == {"published": 8}
