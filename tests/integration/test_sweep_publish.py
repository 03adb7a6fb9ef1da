"""A sweep that goes well, and what the next one makes of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from feed.checked import hash_file
from feed.index import SweepIndex
from feed.selection import resolve_index
from matrix.digest import FileEntry, tree_digest
from matrix.status import Status
from tests.sweeps.command import NOBODY, Mill, files_below, model

CELLS = 8
"""Targets of a model."""


def two_models(mill: Mill) -> str:
    journal = str(mill.folder / "journal")
    return mill.catalog(
        model("tiny/a", journal=journal),
        model("tiny/b", journal=journal, components=["encoder", "decoder"]),
    )


def index_of(mill: Mill, stamp: str) -> tuple[str, SweepIndex]:
    found = resolve_index(mill.feed(), "modelmill-index", stamp)
    return found.published.version, found.index


def pulled_tree(folder: Path) -> str:
    entries: list[FileEntry] = [hash_file(folder / name, name) for name in files_below(folder)]
    return tree_digest(entries)


def stages(mill: Mill, stamp: str) -> tuple[int, int]:
    """How many stages a sweep ran, and how many it reused."""
    with mill.state() as state:
        info = state.find_sweep(stamp)
        assert info
        runs = state.stage_runs(info.id)
    return sum(not one.reused for one in runs), sum(one.reused for one in runs)


def test_every_cell_is_published_and_every_view_of_it_agrees(full_mill: Mill) -> None:
    mill = full_mill
    ran = mill.ok("sweep", two_models(mill), "--stamp", "s1", plain=False)
    assert "sweep s1: 16 cells: 16 published\n" in ran.out
    assert "\nindex: modelmill-index 0.0.0-s1\n" in ran.out
    last = ran.out.splitlines()[-1]
    built, reused = stages(mill, "s1")
    assert re.fullmatch(
        rf"in [\d.]+s: {built} stages built, {reused} reused; report: modelmill report s1", last
    )
    status = mill.ok("status", "s1", "--json", plain=False).json()
    assert status["counts"] == {"published": 16}
    assert (status["exit_code"], status["open"], status["failures"]) == (0, 0, [])
    recorded = {(one["package"], one["version"]): one["tree"] for one in status["outcomes"]}
    assert len(recorded) == 18  # with the two exports
    listed = mill.ok("feed", "ls", "modelmill-*", "--json", plain=False).json()
    trees = {(one["package"], one["version"]): one["tree"] for one in listed}
    index = trees.pop(("modelmill-index", "0.0.0-s1"))
    assert index
    assert trees == recorded

    mill.ok("feed", "pull", "--stamp", "s1", "--dest", "out", plain=False)
    version, content = index_of(mill, "s1")
    assert version == "0.0.0-s1"
    folders = content.folders()
    assert len(folders) == 16
    for cell in content.cells:
        assert cell.status is Status.PUBLISHED
        folder = mill.folder / "out" / folders[cell.id]
        assert pulled_tree(folder) == cell.tree == recorded[cell.package, cell.version]
        record = json.loads((folder / "build.json").read_text())
        assert (record["stamp"], record["version"]) == ("s1", cell.version)
        assert {rung["passed"] for rung in record["verification"]} == {True}


def test_a_stage_runs_once_for_each_distinct_key(mill: Mill) -> None:
    mill.ok("sweep", two_models(mill), "--stamp", "s1")
    with mill.state() as state:
        runs = state.stage_runs(mill.sweep("s1").id)
    assert set(mill.ran("s1").values()) == {1}
    assert mill.ran("s1").keys() == {run.key for run in runs}
    journal = Counter(line.split()[0] for line in mill.journal())
    assert journal["export"] == 2
    assert len(mill.journal()) == len(mill.ran("s1"))
    # Every cell says what it is made of, whoever made it.
    assert len({run.cell for run in runs}) == 18


def test_a_finished_sweep_is_not_built_again_and_does_not_even_start_prefect(mill: Mill) -> None:
    catalog = two_models(mill)
    mill.ok("sweep", catalog, "--stamp", "s1")
    before = (mill.journal(), mill.published(), files_below(mill.feed_folder))
    again = mill.ok("sweep", catalog, "--stamp", "s1", plain=False, PREFECT_API_URL=NOBODY)
    assert "16 published" in again.out
    assert "index: modelmill-index 0.0.0-s1\n" in again.out
    resumed = mill.ok("resume", plain=False, PREFECT_API_URL=NOBODY)
    assert "16 published" in resumed.out
    assert (mill.journal(), mill.published(), files_below(mill.feed_folder)) == before


def test_a_lost_state_is_learned_from_the_feed(mill: Mill) -> None:
    catalog = two_models(mill)
    mill.ok("sweep", catalog, "--stamp", "s1")
    journal, published = mill.journal(), mill.published()
    for path in mill.home.glob("state.db*"):
        path.unlink()
    again = mill.ok("sweep", catalog, "--stamp", "s1", plain=False, PREFECT_API_URL=NOBODY)
    assert "already in the feed: 18 packages" in again.out
    assert mill.statuses("s1") == {"published": 16}
    assert (mill.journal(), mill.published()) == (journal, published)


def test_what_was_removed_from_the_feed_is_published_again_without_building(mill: Mill) -> None:
    catalog = two_models(mill)
    mill.ok("sweep", catalog, "--stamp", "s1")
    journal, published = mill.journal(), mill.published()
    for manifest in (mill.feed_folder / "packages" / "modelmill-tiny-a").glob("*npu*"):
        manifest.unlink()  # not a deletion through the feed, which would leave a tombstone
    assert len(mill.published()) == len(published) - 3
    mill.ok("resume")
    assert mill.published() == published
    assert mill.journal() == journal


def test_unchanged_cells_get_no_new_version(mill: Mill) -> None:
    catalog = two_models(mill)
    mill.ok("sweep", catalog, "--stamp", "s1")
    journal, first = mill.journal(), mill.published()
    mill.ok("sweep", catalog, "--stamp", "s2", "--if-changed")
    assert mill.statuses("s2") == {"unchanged": 16}
    assert mill.journal() == journal
    assert mill.ran("s2") == {}
    assert mill.published().keys() - first.keys() == {("modelmill-index", "0.0.0-s2")}
    # The index of the new stamp leads to the versions that have the content.
    assert {cell.version for cell in index_of(mill, "s2")[1].cells} == {
        cell.version for cell in index_of(mill, "s1")[1].cells
    }
    assert mill.ok("feed", "pull", "--stamp", "s2", "--dest", "out", "--json").json()


def test_only_what_changed_is_published(mill: Mill) -> None:
    mill.catalog(model("tiny/a"), model("tiny/b"))
    mill.ok("sweep", "catalog.toml", "--stamp", "s1")
    first = mill.published()
    mill.catalog(model("tiny/a"), model("tiny/b", salt=2))
    mill.ok("sweep", "catalog.toml", "--stamp", "s2", "--if-changed")
    assert mill.statuses("s2") == {"unchanged": 8, "published": 8}
    new = mill.published().keys() - first.keys()
    assert Counter(package for package, _version in new) == {
        "modelmill-tiny-b": 9,
        "modelmill-index": 1,
    }
    # Without the flag a new stamp is a new batch: everything gets a version, nothing is built.
    mill.ok("sweep", "catalog.toml", "--stamp", "s3")
    assert mill.statuses("s3") == {"published": 16}
    assert mill.ran("s3") == {}


def test_building_now_and_publishing_later(mill: Mill) -> None:
    catalog = two_models(mill)
    mill.ok("sweep", catalog, "--stamp", "s1", "--no-publish")
    assert mill.statuses("s1") == {"verified": 16}
    assert not mill.feed_folder.exists()
    journal = mill.journal()
    mill.ok("resume", "--publish", "--keep-local")
    assert mill.statuses("s1") == {"published": 16}
    assert mill.journal() == journal
    kept = {path.parent.name: path for path in (mill.home / "packages").glob("*/*/modelmill.json")}
    assert len(kept) == 18
    for outcome in mill.outcomes("s1").values():
        assert pulled_tree(kept[outcome.version].parent) == outcome.tree
