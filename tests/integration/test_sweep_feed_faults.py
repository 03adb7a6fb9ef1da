"""A feed that misbehaves: nothing built is lost, nothing is said that the feed does not have."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from feed.directory import DirectoryFeed
from matrix.status import FailureClass, Status
from tests.fakes.feed import tree_of, write_files
from tests.sweeps.command import NOBODY, Project, Ran, model

TARGETS = ("--target", "qnn_npu,ov_cpu,mlas_cpu")
CELLS = 6


class Remote:
    """A project whose feed is `flaky:`, with the faults of a test."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "remote"
        self.catalog = project.catalog(
            model("tiny/a", journal=str(project.folder / "journal")),
            model("tiny/b", journal=str(project.folder / "journal")),
        )

    def faults(self, **planned: Any) -> None:
        self.folder.with_suffix(".json").write_text(json.dumps(planned))
        self.folder.with_suffix(".calls").unlink(missing_ok=True)

    def calls(self) -> Counter[str]:
        return Counter(self.folder.with_suffix(".calls").read_text().split())

    def run(self, command: str, *more: str, **env: str) -> Ran:
        what = [command, "s1"]
        if command == "sweep":
            what = [command, self.catalog, "--stamp", "s1", *TARGETS]
        feed = f"flaky:{self.folder}"
        # One slot: the order of publishes is then that of the plan.
        arguments = (*what, "--feed", feed, "--jobs", "1", *more)
        return self.project.run(*arguments, plain=True, **env)

    def trees(self) -> dict[str, str | None]:
        feed = DirectoryFeed(self.folder)
        return {
            one.version: one.tree for package in feed.packages() for one in feed.versions(package)
        }

    def check_complete(self) -> None:
        outcomes = self.project.outcomes("s1")
        assert {one.status for one in outcomes.values()} == {Status.PUBLISHED}
        trees = self.trees()
        assert all(trees[one.version] == one.tree for one in outcomes.values())
        assert trees.keys() - {one.version for one in outcomes.values()} == {"0.0.0-s1"}


@pytest.fixture
def remote(project: Project) -> Remote:
    return Remote(project)


@pytest.mark.parametrize(
    "faults",
    [
        {"publish": [None, "lost", "lost"]},
        {"publish": ["silent"]},
        {"publish": ["halfway", None, "untrue"]},
        {"publish": ["down", "down", "halfway"]},
        {"find": [None, None, "empty", "empty"]},
        {"versions": ["down", "cut"]},
    ],
    ids=lambda faults: " ".join(map(str, next(iter(faults.values())))),
)
def test_what_passes_is_survived_without_a_word(remote: Remote, faults: dict[str, Any]) -> None:
    remote.faults(**faults)
    ran = remote.run("sweep")
    assert (ran.code, ran.err) == (0, ""), ran.out
    remote.check_complete()


def test_a_publish_that_never_gets_through_fails_one_cell_and_a_resume_publishes_it(
    remote: Remote,
) -> None:
    remote.faults(publish=[None, "down"])
    ran = remote.run("sweep", "--tries", "1")
    assert (ran.code, ran.err) == (1, "")
    failed = [one for one in remote.project.outcomes("s1").values() if one.status.failed]
    (one,) = failed
    assert (one.status, one.failure, one.retryable) == (
        Status.PUBLISH_FAILED,
        FailureClass.NETWORK,
        True,
    )
    assert one.version not in remote.trees()
    journal = remote.project.journal()
    remote.faults()
    ran = remote.run("resume")
    assert (ran.code, ran.err) == (0, "")
    assert "failed before, tried again: 1 NETWORK" in ran.out
    assert remote.project.journal() == journal
    assert remote.trees()[one.version]
    assert "0.0.0-s1-r2" in remote.trees()


def test_a_refused_login_stops_the_sweep_and_keeps_what_is_built(remote: Remote) -> None:
    remote.faults(publish=[None, None, "denied", *["denied"] * 20])
    ran = remote.run("sweep")
    assert ran.code == 3
    first, second = ran.err.splitlines()
    assert first.startswith("stopped: publish: denied")
    assert second == "what is built is kept: modelmill resume s1"
    outcomes = remote.project.outcomes("s1").values()
    statuses = Counter(one.status for one in outcomes)
    assert statuses == {Status.PUBLISHED: 2, Status.PLANNED: 6}
    assert len(remote.trees()) == 2
    remote.faults()
    ran = remote.run("resume")
    assert (ran.code, ran.err) == (0, "")
    remote.check_complete()
    # What was built is not built again, but for the one stage that was under way at the stop.
    with remote.project.state() as state:
        keys = {run.key for run in state.stage_runs(remote.project.sweep("s1").id)}
    assert len(remote.project.journal()) <= len(keys) + 1


def test_a_login_that_is_refused_at_once_builds_nothing(remote: Remote) -> None:
    remote.faults(preflight=["denied"])
    ran = remote.run("sweep")
    assert ran.code == 3
    assert ran.err.startswith("error: preflight: denied")
    assert not remote.project.journal()


def test_a_feed_that_cannot_be_listed_is_never_empty(remote: Remote) -> None:
    remote.faults()
    assert remote.run("sweep").code == 0
    trees, journal = remote.trees(), remote.project.journal()
    remote.faults(versions=["cut", "down"] * 50)
    ran = remote.run("resume")
    assert ran.code == 5
    assert ran.err.count("\n") == 1
    assert "--trust-state" in ran.err
    assert remote.calls()["publish"] == 0
    # The state alone says that all is done; it is believed when asked for.
    ran = remote.run("sweep", "--trust-state", PREFECT_API_URL=NOBODY)
    assert "6 published" in ran.out
    assert remote.project.statuses("s1") == {"published": CELLS}
    assert (remote.trees(), remote.project.journal()) == (trees, journal)


def test_the_content_of_others_is_left_alone_and_ours_is_kept(remote: Remote) -> None:
    feed = DirectoryFeed(remote.folder)
    feed.preflight()
    theirs = write_files(remote.project.folder / "theirs", {"model.onnx": b"theirs"})
    package, version = "modelmill-tiny-a", "0.0.0-s1-ov-cpu-tiny-a-fill-mask"
    # Published between our listing and our publish: the listing does not show it.
    remote.faults(versions=["empty", "empty"], find=[None])
    feed.publish(package, version, theirs, f"by hand tree=sha256:{tree_of(theirs)}")
    ran = remote.run("sweep")
    assert (ran.code, ran.err) == (1, "")
    one = remote.project.outcomes("s1")["tiny/a:fill-mask@ov_cpu"]
    assert (one.status, one.failure) == (Status.CONFLICT, FailureClass.PUBLISH)
    assert remote.trees()[version] == tree_of(theirs)
    kept = remote.project.home / "kept" / package / version
    assert (kept / "model.onnx").read_bytes() != b"theirs"
    assert str(kept) in (one.hint or "")
    assert remote.project.statuses("s1") == {"conflict": 1, "published": CELLS - 1}
    # A second run does not make it better, nor worse.
    assert remote.run("resume").code == 1
    assert remote.project.statuses("s1") == {"conflict": 1, "published": CELLS - 1}
