"""Damaged stores and states, full and read-only disks, a clock that was set back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from matrix.status import FailureClass, Status
from tests.machine.disks import BIG, can_mount, remount, small_disk
from tests.sweeps.command import Project, Ran, model

ONE_CELL = ("--target", "mlas_cpu")


def one_line(ran: Ran) -> str:
    """The error: a line for a person, not a traceback."""
    assert ran.code == 5, ran
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    return ran.err


def change(path: Path, *statements: str) -> None:
    """Write into a database past everybody; closing it folds the write-ahead log in."""
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def blobs(project: Project) -> list[Path]:
    return sorted(path for path in (project.home / "store/blobs").rglob("*") if path.is_file())


def test_bytes_that_went_bad_in_the_store_are_made_again_and_never_published(
    project: Project,
) -> None:
    project.catalog(model("tiny/a"), model("tiny/b", components=["encoder", "decoder"]))
    project.ok("sweep", "catalog.toml", "--stamp", "s1")
    trees = {cell: one.tree for cell, one in project.outcomes("s1").items()}
    for number, blob in enumerate(blobs(project)):
        blob.chmod(0o644)
        data = bytearray(blob.read_bytes())
        if number % 3 == 0:
            data[len(data) // 2] ^= 1  # the size stays
        elif number % 3 == 1:
            del data[-1:]
        blob.write_bytes(data)
    project.ok("sweep", "catalog.toml", "--stamp", "s2")
    assert {cell: one.tree for cell, one in project.outcomes("s2").items()} == trees
    assert project.statuses("s2") == {"published": 16}
    project.ok("feed", "pull", "--stamp", "s2", "--dest", "out")  # checks every digest
    assert project.ran("s2"), "what was damaged had to be made again"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One cell, published."""
    project = Project(tmp_path_factory.mktemp("swept"))
    project.ok("sweep", project.catalog(model("tiny/a")), "--stamp", "s1", *ONE_CELL)
    return project


@pytest.mark.parametrize("damage", ["rubbish", "cut", "newer", "foreign"])
def test_a_state_that_cannot_be_read_is_refused_and_left_as_it_is(
    swept: Project, tmp_path: Path, damage: str
) -> None:
    project = Project(Path(shutil.copytree(swept.folder, tmp_path / "project")))
    published, path = project.published(), project.home / "state.db"
    if damage == "newer":
        change(path, "UPDATE modelmill_schema SET version_num = '9999'")
    for name in ("-wal", "-shm"):
        assert not path.with_name(path.name + name).exists()
    if damage == "rubbish":
        path.write_bytes(b"this is no database\n" * 500)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "foreign":
        path.unlink()
        change(path, "CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    commands = (("sweep", "catalog.toml", "--stamp", "s2"), ("resume",), ("status",))
    for ran in project.session(commands):
        said = one_line(ran)
        assert str(path) in said
        assert "left as it is" in said or "left as it was" in said or "restore" in said
        assert damage != "newer" or "does not know" in said
    assert path.read_bytes() == before
    assert project.published() == published


def test_a_cell_that_does_not_fit_the_disk_budget_fails_and_the_others_go_on(
    project: Project,
) -> None:
    project.catalog(
        model("tiny/a"),
        model("tiny/huge", size=BIG, disk=4 * BIG),
        model("tiny/z"),
    )
    arguments = ("--stamp", "s1", *ONE_CELL, "--disk-budget", "5MB")
    ran = project.run("sweep", "catalog.toml", *arguments)
    assert (ran.code, ran.err) == (1, "")
    failed = {cell: one for cell, one in project.outcomes("s1").items() if one.status.failed}
    wanted = {"tiny/huge:fill-mask@mlas_cpu", "tiny/huge:fill-mask@export"}
    assert set(failed) == wanted, failed
    for one in failed.values():
        assert one.failure is FailureClass.DISK
        assert "disk budget of 5.00 MB" in (one.message or "")
        assert "--disk-budget" in (one.hint or "")
    assert project.statuses("s1") == {"published": 2, "build_failed": 1}
    project.ok("retry", "--class", "DISK", "--disk-budget", "50MB")
    assert project.statuses("s1") == {"published": 3}


def test_the_budget_holds_by_evicting_what_is_published(project: Project) -> None:
    names = [f"tiny/m{number}" for number in range(8)]
    project.catalog(*(model(name, size=BIG // 3, disk=BIG) for name in names))
    project.ok("sweep", "catalog.toml", "--stamp", "s1", *ONE_CELL, "--disk-budget", "8MB")
    assert project.statuses("s1") == {"published": 8}
    assert sum(path.stat().st_size for path in blobs(project)) <= 8_000_000


@can_mount
def test_a_full_store_costs_the_cells_that_need_it(project: Project) -> None:
    project.catalog(model("tiny/a"), model("tiny/huge", size=2 * BIG), model("tiny/z"))
    with small_disk(project.folder / "disk", "10m") as disk:
        arguments = ("--stamp", "s1", *ONE_CELL, "--store", str(disk / "store"), "--tries", "1")
        ran = project.run("sweep", "catalog.toml", *arguments)
        assert (ran.code, ran.err) == (1, "")
        outcomes = project.outcomes("s1")
        failed = {one.failure for one in outcomes.values() if one.status.failed}
        assert failed == {FailureClass.DISK}
        remount(disk, "size=600m")
        project.ok("retry", "--store", str(disk / "store"))
    assert project.statuses("s1") == {"published": 3}


@can_mount
def test_a_full_feed_keeps_what_is_built_until_there_is_room(project: Project) -> None:
    journal = str(project.folder / "journal")
    project.catalog(model("tiny/a"), model("tiny/huge", size=2 * BIG, journal=journal))
    with small_disk(project.folder / "disk", "5m") as disk:
        arguments = ("--stamp", "s1", *ONE_CELL, "--feed", str(disk / "feed"), "--tries", "1")
        one_slot = ("--jobs", "1")  # else the large package leaves the small one no room
        ran = project.run("sweep", "catalog.toml", *arguments, *one_slot)
        assert (ran.code, ran.err) == (1, "")
        failed = {one.cell for one in project.outcomes("s1").values() if one.status.failed}
        assert failed == {"tiny/huge:fill-mask@mlas_cpu", "tiny/huge:fill-mask@export"}
        assert project.statuses("s1") == {"published": 1, "publish_failed": 1}
        built = project.journal()
        remount(disk, "size=50m")
        project.ok("retry", "--class", "DISK")
        assert project.statuses("s1") == {"published": 2}
    assert project.journal() == built


@can_mount
def test_a_home_that_is_full_or_read_only_is_one_clear_line(project: Project) -> None:
    catalog = project.catalog(*(model(f"tiny/{name}", size=BIG) for name in "abcd"))
    with small_disk(project.folder / "disk", "2m") as disk:
        arguments = ("--stamp", "s1", *ONE_CELL, "--home", str(disk / "home"), "--tries", "1")
        ran = project.run("sweep", catalog, *arguments)
        assert ran.code in {1, 5}
        assert "Traceback" not in ran.err
        assert ran.err.count("\n") <= 2
        remount(disk, "ro")
        said = one_line(project.run("sweep", catalog, *arguments))
        assert str(disk / "home") in said
        assert "--home" in said
        remount(disk, "rw,size=600m")
        project.run("resume", "--home", str(disk / "home"))
        ran = project.run("retry", "--home", str(disk / "home"))
        assert ran.code in {0, 4}
        status = project.ok("status", "--home", str(disk / "home"), "--json").json()
        assert status["counts"] == {"published": 4}


def test_a_clock_that_was_set_back_stops_nothing(project: Project) -> None:
    """All that was recorded lies a day in the future, and so does the lease of a lost machine."""
    catalog = project.catalog(model("tiny/a"), model("tiny/b"))
    project.ok("sweep", catalog, "--stamp", "s1", *ONE_CELL)
    day = 86400.0
    columns = {
        "event": ["at"],
        "stage_run": ["at"],
        "sweep": ["created_at", "begun_at", "ended_at"],
        "outcome": ["started_at", "ended_at", "published_at"],
    }
    later = f"(julianday('now') - 2440587.5) * 86400.0 + {day}"
    change(
        project.home / "state.db",
        *(
            f"UPDATE {table} SET {name} = {name} + {day}"
            for table in columns
            for name in columns[table]
        ),
        "INSERT INTO lease (model, sweep_id, needs, token, owner, host, pid, pid_started, taken_at,"
        " renewed_at, expires_at, ttl)"
        " SELECT model, sweep_id, needs, 1, 'lost', 'elsewhere', 7, '7',"
        f" {later}, {later}, {later} + 60, 0.5 FROM work LIMIT 1",
    )
    for path in (project.home / "store").rglob("*"):
        os.utime(path, (path.stat().st_atime + day, path.stat().st_mtime + day))
    project.ok("resume", "s1")
    project.ok("sweep", catalog, "--stamp", "s2", *ONE_CELL)
    assert project.statuses("s2") == {"published": 2}
    assert project.ran("s2") == {}
    last = project.ok("status", "--json").json()
    assert last["stamp"] in {"s1", "s2"}
    assert {one.status for one in project.outcomes("s1").values()} == {Status.PUBLISHED}
    with project.state() as state:
        assert state.leases() == []
