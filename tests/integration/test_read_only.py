"""Commands that only read: on media that cannot be written, and leaving nothing behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.command import Project, model

A, B = "20260609", "20260610"


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, with what would show a write."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("written"))
    project.catalog(model("tiny/a"))
    for ran in project.session(
        [("sweep", "catalog.toml", "--stamp", stamp, "--target", "mlas_cpu") for stamp in (A, B)]
    ):
        assert ran.code == 0, ran
    return project


@pytest.fixture
def mounted(swept: Project, tmp_path: Path) -> Iterator[Project]:
    """The same folder, read-only."""
    if sys.platform != "linux":
        pytest.skip("mounts are Linux's")
    for how in (["--bind", str(swept.folder)], ["-o", "remount,ro,bind"]):
        done = subprocess.run(["mount", *how, str(tmp_path)], capture_output=True)
        if done.returncode:
            subprocess.run(["umount", str(tmp_path)], capture_output=True)
            pytest.skip("this system does not let us mount read-only")
    try:
        yield Project(tmp_path)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


READING = [
    ("status", B),
    ("status", B, "--json"),
    ("status", "--sweeps"),
    ("diff", A, B),
    ("plan", "catalog.toml"),
    ("store", "du"),
    ("feed", "ls"),
    ("feed", "verify", "*"),
]


def test_reading_needs_no_write_access(
    mounted: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = tmp_path_factory.mktemp("out") / "report.html"
    ran = mounted.session([*READING, ("report", B, "-o", str(page)), ("doctor",)])
    for one in ran[:-1]:
        assert (one.code, one.err) == (0, ""), one
    assert page.stat().st_size
    health = {line[6:].split(":")[0]: line[:4].strip() for line in ran[-1].out.splitlines()}
    assert (health["home"], health["state"]) == ("bad", "ok"), ran[-1]


def test_what_has_to_write_says_so_in_a_line(mounted: Project) -> None:
    ran = mounted.session(
        [
            ("store", "gc", "--budget", "0"),
            ("store", "clear"),
            ("sweep", "catalog.toml", "--stamp", "x", "--target", "mlas_cpu"),
            ("resume", B),
            ("report", B),
            ("status", B),
        ]
    )
    for one in ran[:-1]:
        assert one.code in {2, 3, 5}, one
        assert one.err.count("\n") == 1, one
        assert one.err.startswith("error: "), one
    assert ran[-1].code == 0


def test_changes_that_are_still_beside_the_file_are_read(swept: Project, tmp_path: Path) -> None:
    """A state that was copied while a sweep ran: its last changes stand in the -wal file."""
    if sys.platform != "linux":
        pytest.skip("mounts are Linux's")
    source, target = tmp_path / "copied", tmp_path / "mounted"
    source.mkdir()
    target.mkdir()
    with swept.state() as state:
        state.begin("late", "dir:x", [], {}, {}, {}, publish=False)
        for name in ("state.db", "state.db-wal"):
            shutil.copy(swept.home / name, source / name)
    for how in (["--bind", str(source)], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *how, str(target)], capture_output=True).returncode:
            pytest.skip("this system does not let us mount read-only")
    try:
        (listed,) = swept.session([("status", "--sweeps", "--state", str(target / "state.db"))])
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
    assert listed.code == 0, listed
    assert "late" in listed.out


def test_reading_leaves_a_folder_as_it_was(swept: Project, tmp_path: Path) -> None:
    before = contents(swept.folder)
    for one in swept.session([*READING, ("doctor",)]):
        assert one.code in {0, 5}, one
    assert contents(swept.folder) == before
    empty = Project(tmp_path)
    ran = empty.session(
        [
            ("status",),
            ("diff", A, B),
            ("report",),
            ("store", "du"),
            ("feed", "ls"),
            ("plan", "demo"),
            ("doctor",),
            ("sweep", "demo", "--dry-run"),
        ]
    )
    assert list(tmp_path.iterdir()) == []
    assert (ran[-3].code, ran[-1].code) == (0, 0), ran
    # One of the engines of the tests is broken on purpose.
    bad = [line for line in ran[-2].out.splitlines() if line.startswith("bad")]
    assert [line.split()[1:3] for line in bad] == [["engine", "broken:"]], ran[-2]
    assert "cells to build" in ran[-1].out
    for one in ran[:5]:
        assert (one.code, one.err.count("\n")) == (5, 1), one


def test_a_home_of_another_user_is_read_as_far_as_its_permissions_go(swept: Project) -> None:
    """Tests may run as root, whom permissions do not stop; the child gives that up."""
    if sys.platform == "win32":
        pytest.skip("POSIX permissions")
    code = (
        "import os, sys\n"
        "from flows.cli import main as cli\n"
        "cli.main([*sys.argv[1:-1], 'nowhere'])\n"  # nobody may be unable to read our modules
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    closed = swept.folder / "closed"
    closed.mkdir(mode=0o700)
    for words in (["status"], ["store", "du"], ["store", "clear"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--home", str(closed / "home")],
            env=swept.environment(),
            cwd="/",
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == 5, done
