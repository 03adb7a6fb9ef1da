"""A directory feed that is away is not made anew: everything would be published a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from feed.errors import NotFound
from flows.cli.main import main
from flows.sweep.listing import check_present
from machine.files import remove_tree
from matrix.errors import Exit
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "feed"


@pytest.fixture
def swept(harness: SweepHarness, folder: Path) -> SweepHarness:
    harness.feed = DirectoryFeed(folder)
    assert harness.sweep(make_plan(small_model(cells=1))).exit_code() is Exit.OK
    return harness


@pytest.mark.parametrize("mount_point", [False, True], ids=["removed", "empty mount point"])
@pytest.mark.parametrize("stamp", ["20260609", "20260610"], ids=["resumed", "another stamp"])
def test_a_feed_that_held_versions_and_is_away_is_refused_and_not_made(
    swept: SweepHarness, folder: Path, stamp: str, *, mount_point: bool
) -> None:
    folder.rename(folder.with_name("elsewhere"))
    if mount_point:
        folder.mkdir()
    before = swept.outcomes()
    plan = make_plan(small_model(cells=1), stamp=stamp)
    with pytest.raises(NotFound, match="it had versions, but now nothing is there"):
        swept.sweep(plan)
    assert not folder.exists() or not any(folder.iterdir())
    assert swept.outcomes() == before
    if mount_point:
        folder.rmdir()
    folder.with_name("elsewhere").rename(folder)
    ran = len(swept.ran)
    assert swept.sweep(plan).exit_code() is Exit.OK
    assert len(swept.ran) == ran


def test_a_first_feed_is_made_also_of_an_empty_folder(swept: SweepHarness, folder: Path) -> None:
    for name in ("new", "empty"):
        other = folder.with_name(name)
        if name == "empty":
            other.mkdir()
        swept.feed = DirectoryFeed(other)
        assert swept.feed.is_new
        assert swept.sweep(make_plan(small_model(cells=1))).exit_code() is Exit.OK
        assert not swept.feed.is_new


def test_a_feed_that_failed_before_its_first_version_may_be_made_again(
    harness: SweepHarness, folder: Path
) -> None:
    harness.feed = DirectoryFeed(folder)
    harness.sweep(make_plan(small_model(cells=1, act={"export": "fail:EXPORT"})))
    remove_tree(folder)
    check_present(harness.feed, harness.state)


def test_a_dry_run_does_not_promise_to_build_all_of_it(
    swept: SweepHarness, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remove_tree(folder)
    words = ["sweep", "demo", "--dry-run", "--home", str(swept.root), "--feed", str(folder)]
    assert main(words) == Exit.UNUSABLE
    assert "it had versions, but now nothing is there" in capsys.readouterr().err
