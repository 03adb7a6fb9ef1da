"""The whole command on Azure's stand-in: sweep, look, pull, promote, lose the token, resume."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.status import FailureClass
from tests.fakes.azure.faults import Effect, Fault, When
from tests.fakes.azure.server import AzureStandIn
from tests.fakes.azure.toolkit import install
from tests.machine.disks import BIG, can_mount, remount, small_disk
from tests.machine.timing import patient
from tests.sweeps.command import Project, files_below, model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")

VERSIONS = 10
"""Of one model: 8 cells, the export, and the index of the sweep."""


@pytest.fixture
def azure() -> Iterator[AzureStandIn]:
    with AzureStandIn() as made:
        yield made


def at(azure: AzureStandIn, project: Project, token: str = "good-token") -> Project:
    """Point a folder at the stand-in."""
    project.env |= {
        "MODELMILL_FEED": azure.url,
        "AZURE_DEVOPS_EXT_PAT": token,
        "MODELMILL_AZURE_TOOL": str(install(project.folder / "tool")),
        "MODELMILL_AZURE_CACHE": str(project.folder / "azure-cache"),
    }
    return project


def once(azure: AzureStandIn, count: int) -> bool:
    """Whether so many versions are registered, none of them twice."""
    registered = Counter(azure.organization.registrations)
    return len(registered) == count and set(registered.values()) == {1}


def test_sweep_look_pull_and_promote(azure: AzureStandIn, project: Project) -> None:
    at(azure, project)
    catalog = project.catalog(model("tiny/a"))
    ran = project.ok("sweep", catalog, "--stamp", "s1")
    assert "8 cells: 8 published" in ran.out
    assert once(azure, VERSIONS)
    listed = project.ok("feed", "ls", "modelmill-*", "--json").json()
    assert {(one["package"], one["version"]) for one in listed} == set(
        azure.organization.registrations
    )
    (qnn,) = [one for one in listed if "-qnn-npu-" in one["version"]]
    shown = project.ok("feed", "show", qnn["package"], qnn["version"], "--json").json()
    assert shown["published"]["published_at"]
    assert {file["path"] for file in shown["files"]} >= {"modelmill.json", "build.json"}

    project.ok("feed", "pull", "--stamp", "s1", "--target", "qnn_npu", "--dest", "out")
    below = files_below(project.folder / "out")
    assert {Path(name).parts[1] for name in below} == {"qnn_npu"}
    assert {"/".join(Path(name).parts[2:]) for name in below} == {
        file["path"] for file in shown["files"]
    }

    project.ok(
        "feed",
        "promote",
        qnn["package"],
        qnn["version"],
        "--view",
        "release",
        "--demand",
        "release=parity",
    )
    package = azure.feed.upack(qnn["package"])
    assert package is not None
    assert package.versions[qnn["version"]].views == ["Release"]

    azure.forget()
    project.ok("sweep", catalog, "--stamp", "s1")
    assert not azure.counts()["register"]


def test_a_fresh_machine_learns_from_the_feed_what_is_done(
    azure: AzureStandIn, project: Project, tmp_path: Path
) -> None:
    at(azure, project).ok("sweep", project.catalog(model("tiny/a")), "--stamp", "s1")
    (tmp_path / "other").mkdir()
    other = at(azure, Project(tmp_path / "other"))
    journal = str(other.folder / "journal")
    other.ok("sweep", other.catalog(model("tiny/a", journal=journal)), "--stamp", "s1")
    assert other.journal() == []
    assert once(azure, VERSIONS)


def test_faults_cost_time_but_no_version(azure: AzureStandIn, project: Project) -> None:
    azure.plan(
        Fault("register", effect=Effect.RESET, when=When.AFTER, every=3, times=9),
        Fault("blob-put", status=503, every=11, times=9),
        Fault("names", status=429, times=2),
        Fault("metadata", effect=Effect.TRUNCATE, every=5, times=5),
    )
    # More tries than there are faults: which uploads they strike depends on the order of two slots.
    catalog = project.catalog(model("tiny/a"))
    ran = at(azure, project).run("sweep", catalog, "--stamp", "s1", "--tries", "12")
    assert ran.code == 0, ran
    # A version that several faults strike waits long enough to be mentioned.
    assert all("; going on in " in line for line in ran.err.splitlines()), ran
    assert once(azure, VERSIONS)
    assert azure.faults.struck["register"] >= 3


def test_a_token_that_is_taken_away_stops_the_sweep_and_a_resume_finishes_it(
    azure: AzureStandIn, project: Project
) -> None:
    at(azure, project)

    def revoke(route: str) -> None:
        if route == "register" and len(azure.organization.registrations) == 4:
            azure.organization.tokens.pop("good-token", None)

    azure.on_request = revoke
    journal = str(project.folder / "journal")
    ran = project.run("sweep", project.catalog(model("tiny/a", journal=journal)), "--stamp", "s1")
    assert ran.code == 3
    assert "AZURE_DEVOPS_EXT_PAT" in ran.err
    assert "resume" in ran.err
    azure.organization.tokens["new-token"] = "contributor"
    project.ok("resume", "s1", AZURE_DEVOPS_EXT_PAT="new-token")
    assert once(azure, VERSIONS)
    assert project.statuses("s1") == {"published": 8}
    assert set(project.ran("s1").values()) == {1}


def test_a_host_that_cannot_publish_is_told_before_anything_is_built(
    azure: AzureStandIn, project: Project
) -> None:
    azure.organization.tokens["reader-token"] = "reader"
    at(azure, project, "reader-token")
    journal = str(project.folder / "journal")
    catalog = project.catalog(model("tiny/a", journal=journal))
    ran = project.run("sweep", catalog, "--stamp", "s1", MODELMILL_AZURE_TOOL="/nowhere")
    assert ran.code == 3
    assert "not publish to it" in ran.err
    assert "there is no artifacttool" in ran.err
    assert project.journal() == []
    assert project.run("sweep", catalog, MODELMILL_FEED="azure:https://x/y").code == 2
    missing = project.run("sweep", catalog, MODELMILL_FEED=azure.url.replace("models", "other"))
    assert missing.code == 5
    assert "doesn't exist" in missing.err


def test_a_login_that_expired_before_the_start_names_a_step_that_works(
    azure: AzureStandIn, project: Project
) -> None:
    at(azure, project, "expired-token")
    catalog = project.catalog(model("tiny/a", journal=str(project.folder / "journal")))
    ran = project.run("sweep", catalog, "--stamp", "s1")
    assert ran.code == 3
    assert "then run the same command again" in ran.err
    assert "resume" not in ran.err
    assert project.journal() == []
    azure.organization.tokens["new-token"] = "contributor"
    project.ok("sweep", catalog, "--stamp", "s1", AZURE_DEVOPS_EXT_PAT="new-token")
    assert once(azure, VERSIONS)


@pytest.mark.slow  # `test_publishers.py` has two publishers at once in every run
def test_two_machines_with_one_stamp_publish_each_version_once(
    azure: AzureStandIn, tmp_path: Path
) -> None:
    mills = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        mills.append(at(azure, Project(tmp_path / name)))
    codes = []

    def sweep(project: Project) -> None:
        catalog = project.catalog(model("tiny/a"), model("tiny/b"))
        codes.append(project.run("sweep", catalog, "--stamp", "s1"))

    threads = [threading.Thread(target=sweep, args=(project,)) for project in mills]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ran.code for ran in codes] == [0, 0], codes
    registered = Counter(azure.organization.registrations)
    assert set(registered.values()) == {1}
    cells = [version for _, version in registered if "-tiny-" in version]
    assert len(cells) == 18
    assert all(project.statuses("s1") == {"published": 16} for project in mills)


def test_a_sweep_that_is_killed_while_publishing_is_resumed(
    azure: AzureStandIn, project: Project
) -> None:
    at(azure, project)
    reached = threading.Event()

    def watch(route: str) -> None:
        if route == "register" and len(azure.organization.registrations) >= 4:
            reached.set()

    azure.on_request = watch
    catalog = project.catalog(model("tiny/a"))
    with project.start("sweep", catalog, "--stamp", "s1", plain=True) as running:
        assert reached.wait(patient(100))
        running.signal(signal.SIGKILL)
        running.popen.wait()
    project.ok("resume", "s1")
    assert once(azure, VERSIONS)
    assert project.statuses("s1") == {"published": 8}
    assert not list((project.folder / "azure-cache" / "work").iterdir())


def test_the_token_is_written_nowhere(azure: AzureStandIn, project: Project) -> None:
    at(azure, project)
    azure.behaviour.append({"show": True})
    ran = project.run("sweep", project.catalog(model("tiny/a")), "--stamp", "s1", "--json")
    assert "good-token" not in ran.out + ran.err
    for path in project.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"good-token" not in content, path
            assert b"Omdvb2QtdG9rZW4" not in content, path


@can_mount
def test_a_full_work_folder_ends_the_cells_that_need_it(
    azure: AzureStandIn, project: Project
) -> None:
    at(azure, project)
    catalog = project.catalog(model("tiny/a"), model("tiny/huge", size=BIG))
    with small_disk(project.folder / "disk", "1m") as disk:
        project.env["MODELMILL_AZURE_WORK"] = str(disk / "work")
        # One slot: a model that publishes while the huge one fills the disk would fail with it.
        sweep = ("sweep", catalog, "--stamp", "s1", "--target", "mlas_cpu", "--jobs", "1")
        ran = project.run(*sweep)
        assert (ran.code, ran.err) == (1, ""), ran
        failed = {cell: one for cell, one in project.outcomes("s1").items() if one.status.failed}
        assert set(failed) == {"tiny/huge:fill-mask@mlas_cpu", "tiny/huge:fill-mask@export"}
        for one in failed.values():
            assert one.failure is FailureClass.DISK
            assert str(disk / "work") in (one.message or "")
            assert "MODELMILL_AZURE_WORK" in (one.hint or "")
        assert not list((disk / "work").iterdir())
        assert not list((project.home / "work").rglob("*.onnx"))
        remount(disk, "size=50m")
        project.ok("retry", "--class", "DISK")
    assert project.statuses("s1") == {"published": 2}


def end_service(azure: AzureStandIn, status: int) -> None:
    """From now on the service fails every request, or denies that it has the feed."""
    if status == 404:
        azure.feed.name = "renamed"
    else:
        soon = {"Retry-After": "1"}  # our own pauses grow to a minute
        azure.plan(*(Fault(one, status=status, headers=soon, times=10_000) for one in ROUTES))


def begin_service(azure: AzureStandIn) -> None:
    azure.feed.name = "models"
    azure.faults.forget()


ROUTES = ("connection", "feed", "metadata", "names", "version", "versions", "packages", "register")


@pytest.mark.parametrize("status", [503, pytest.param(404, marks=pytest.mark.slow)])
def test_an_outage_stops_the_sweep_and_the_same_command_completes_it(
    azure: AzureStandIn, project: Project, status: int
) -> None:
    at(azure, project)
    catalog = project.catalog(model("tiny/a"), model("tiny/b"))

    def fail(route: str) -> None:
        if route == "register" and len(azure.organization.registrations) == 3:
            azure.on_request = lambda _route: None
            end_service(azure, status)

    azure.on_request = fail
    ran = project.run("sweep", catalog, "--stamp", "s1", "--tries", "2")
    assert ran.code == 5, ran
    assert "what is built is kept: modelmill resume s1" in ran.err
    failures = {one.failure for one in project.outcomes("s1").values() if one.status.failed}
    assert failures <= {FailureClass.NETWORK}
    begin_service(azure)
    project.ok("sweep", catalog, "--stamp", "s1")
    assert once(azure, 2 * VERSIONS - 1)
    assert project.statuses("s1") == {"published": 16}
