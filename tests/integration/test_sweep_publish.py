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
from tests.sweeps.command import NOBODY, Project, files_below, model

CELLS = 8
"""Targets of a model."""


def two_models(project: Project) -> str:
    journal = str(project.folder / "journal")
    return project.catalog(
        model("tiny/a", journal=journal),
        model("tiny/b", journal=journal, components=["encoder", "decoder"]),
    )


def index_of(project: Project, stamp: str) -> tuple[str, SweepIndex]:
    found = resolve_index(project.feed(), "modelmill-index", stamp)
    return found.published.version, found.index


def pulled_tree(folder: Path) -> str:
    entries: list[FileEntry] = [hash_file(folder / name, name) for name in files_below(folder)]
    return tree_digest(entries)


def stages(project: Project, stamp: str) -> tuple[int, int]:
    """How many stages a sweep ran, and how many it reused."""
    with project.state() as state:
        info = state.find_sweep(stamp)
        assert info
        runs = state.stage_runs(info.id)
    return sum(not one.reused for one in runs), sum(one.reused for one in runs)


def test_every_cell_is_published_and_every_view_of_it_agrees(full_project: Project) -> None:
    project = full_project
    ran = project.ok("sweep", two_models(project), "--stamp", "s1", plain=False)
    assert "sweep s1: 16 cells: 16 published\n" in ran.out
    assert "\nindex: modelmill-index 0.0.0-s1\n" in ran.out
    last = ran.out.splitlines()[-1]
    built, reused = stages(project, "s1")
    assert re.fullmatch(
        rf"in [\d.]+s: {built} stages built, {reused} reused; report: modelmill report s1", last
    )
    status = project.ok("status", "s1", "--json", plain=False).json()
    assert status["counts"] == {"published": 16}
    assert (status["exit_code"], status["open"], status["failures"]) == (0, 0, [])
    recorded = {(one["package"], one["version"]): one["tree"] for one in status["outcomes"]}
    assert len(recorded) == 18  # with the two exports
    listed = project.ok("feed", "ls", "modelmill-*", "--json", plain=False).json()
    trees = {(one["package"], one["version"]): one["tree"] for one in listed}
    index = trees.pop(("modelmill-index", "0.0.0-s1"))
    assert index
    assert trees == recorded

    project.ok("feed", "pull", "--stamp", "s1", "--dest", "out", plain=False)
    version, content = index_of(project, "s1")
    assert version == "0.0.0-s1"
    folders = content.folders()
    assert {str(folder) for folder in folders.values()} == {
        f"{cell.package}/{cell.target}" for cell in content.cells
    }
    for cell in content.cells:
        assert cell.status is Status.PUBLISHED
        folder = project.folder / "out" / folders[cell.id]
        assert pulled_tree(folder) == cell.tree == recorded[cell.package, cell.version]
        record = json.loads((folder / "build.json").read_text())
        assert (record["stamp"], record["version"]) == ("s1", cell.version)
        assert {rung["passed"] for rung in record["verification"]} == {True}


def test_a_stage_runs_once_for_each_distinct_key(project: Project) -> None:
    project.ok("sweep", two_models(project), "--stamp", "s1")
    with project.state() as state:
        runs = state.stage_runs(project.sweep("s1").id)
    assert set(project.ran("s1").values()) == {1}
    assert project.ran("s1").keys() == {run.key for run in runs}
    journal = Counter(line.split()[0] for line in project.journal())
    assert journal["export"] == 2
    assert len(project.journal()) == len(project.ran("s1"))
    # Every cell says what it is made of, whoever made it.
    assert len({run.cell for run in runs}) == 18


def test_a_finished_sweep_is_not_built_again_and_does_not_even_start_prefect(
    project: Project,
) -> None:
    catalog = two_models(project)
    project.ok("sweep", catalog, "--stamp", "s1")
    before = (project.journal(), project.published(), files_below(project.feed_folder))
    again = project.ok("sweep", catalog, "--stamp", "s1", plain=False, PREFECT_API_URL=NOBODY)
    assert "16 published" in again.out
    assert "index: modelmill-index 0.0.0-s1\n" in again.out
    resumed = project.ok("resume", plain=False, PREFECT_API_URL=NOBODY)
    assert "16 published" in resumed.out
    assert (project.journal(), project.published(), files_below(project.feed_folder)) == before


def test_a_lost_state_is_learned_from_the_feed(project: Project) -> None:
    catalog = two_models(project)
    project.ok("sweep", catalog, "--stamp", "s1")
    journal, published = project.journal(), project.published()
    for path in project.home.glob("state.db*"):
        path.unlink()
    again = project.ok("sweep", catalog, "--stamp", "s1", plain=False, PREFECT_API_URL=NOBODY)
    assert "already in the feed: 18 packages" in again.out
    assert project.statuses("s1") == {"published": 16}
    assert (project.journal(), project.published()) == (journal, published)


def test_what_was_removed_from_the_feed_is_published_again_without_building(
    project: Project,
) -> None:
    catalog = two_models(project)
    project.ok("sweep", catalog, "--stamp", "s1")
    journal, published = project.journal(), project.published()
    for manifest in (project.feed_folder / "packages" / "modelmill-tiny-a").glob("*npu*"):
        manifest.unlink()  # not a deletion through the feed, which would leave a tombstone
    assert len(project.published()) == len(published) - 3
    project.ok("resume")
    assert project.published() == published
    assert project.journal() == journal


def test_unchanged_cells_get_no_new_version(project: Project) -> None:
    catalog = two_models(project)
    project.ok("sweep", catalog, "--stamp", "s1")
    journal, first = project.journal(), project.published()
    project.ok("sweep", catalog, "--stamp", "s2", "--if-changed")
    assert project.statuses("s2") == {"unchanged": 16}
    assert project.journal() == journal
    assert project.ran("s2") == {}
    assert project.published().keys() - first.keys() == {("modelmill-index", "0.0.0-s2")}
    # The index of the new stamp leads to the versions that have the content.
    assert {cell.version for cell in index_of(project, "s2")[1].cells} == {
        cell.version for cell in index_of(project, "s1")[1].cells
    }
    assert project.ok("feed", "pull", "--stamp", "s2", "--dest", "out", "--json").json()


def test_only_what_changed_is_published(project: Project) -> None:
    project.catalog(model("tiny/a"), model("tiny/b"))
    project.ok("sweep", "catalog.toml", "--stamp", "s1")
    first = project.published()
    project.catalog(model("tiny/a"), model("tiny/b", salt=2))
    project.ok("sweep", "catalog.toml", "--stamp", "s2", "--if-changed")
    assert project.statuses("s2") == {"unchanged": 8, "published": 8}
    new = project.published().keys() - first.keys()
    assert Counter(package for package, _version in new) == {
        "modelmill-tiny-b": 9,
        "modelmill-index": 1,
    }
    # Without the flag a new stamp is a new batch: everything gets a version, nothing is built.
    project.ok("sweep", "catalog.toml", "--stamp", "s3")
    assert project.statuses("s3") == {"published": 16}
    assert project.ran("s3") == {}


def test_building_now_and_publishing_later(project: Project) -> None:
    catalog = two_models(project)
    project.ok("sweep", catalog, "--stamp", "s1", "--no-publish")
    assert project.statuses("s1") == {"verified": 16}
    assert not project.feed_folder.exists()
    journal = project.journal()
    project.ok("resume", "--publish", "--keep-local")
    assert project.statuses("s1") == {"published": 16}
    assert project.journal() == journal
    kept = {
        path.parent.name: path for path in (project.home / "packages").glob("*/*/modelmill.json")
    }
    assert len(kept) == 18
    for outcome in project.outcomes("s1").values():
        assert pulled_tree(kept[outcome.version].parent) == outcome.tree
