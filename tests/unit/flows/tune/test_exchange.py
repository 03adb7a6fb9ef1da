"""What one machine builds for a tuning, another one takes from the feed, or builds for itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from feed.errors import Unavailable
from flows.settings.resolution import resolve
from flows.tune.exchange import FILES, FeedExchange, stages_package
from tests.fakes.feed import MemoryFeed
from tests.fakes.in_process import InProcessHost
from tests.signing.keys import write_keys
from tests.sweeps.in_memory import small_model
from workers.build.builder import Builder
from workers.store import Store

PACKAGE = stages_package("modelmill-tuning-{model}", "night")


@dataclass
class Machine:
    """A machine with a store of its own."""

    root: Path
    feed: MemoryFeed
    opened: ExitStack
    sign_key: Path | None = None
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.root / "store")
        self.opened.callback(self.store.close)
        self.host = InProcessHost(self.root / "logs")
        told = self.told.append
        flags: dict[str, Any] = {"package": "modelmill-tuning-{model}"}
        flags |= {"sign_key": str(self.sign_key)} if self.sign_key else {}
        settings = resolve(flags, {}, self.root)
        exchange = FeedExchange(self.feed, self.store, settings, "night", threading.Event(), told)
        self.builder = Builder(self.store, self.host, self.root / "work", exchange=exchange)

    def build(self) -> str:
        """The tree of a small cell."""
        (cell,) = small_model(cells=1).cells
        built = self.builder.build(cell)
        built.release()
        return built.tree


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def two(root: Path, opened: ExitStack) -> tuple[Machine, Machine]:
    feed = MemoryFeed()
    feed.preflight()
    return Machine(root / "one", feed, opened), Machine(root / "two", feed, opened)


def test_a_stage_runs_on_one_machine_only(tmp_path: Path, opened: ExitStack) -> None:
    one, other = two(tmp_path, opened)
    tree = one.build()
    assert one.host.ran
    assert PACKAGE == "modelmill-tuning-stages-night"
    assert len(list(one.feed.versions(PACKAGE))) == len(one.host.ran)
    assert other.build() == tree
    assert (other.host.ran, other.told) == ([], [])


def test_what_a_machine_has_from_before_is_given_too(tmp_path: Path, opened: ExitStack) -> None:
    one, other = two(tmp_path, opened)
    exchange, one.builder.exchange = one.builder.exchange, None
    one.build()
    one.builder.exchange = exchange
    one.build()
    other.build()
    assert other.host.ran == []


def test_a_result_that_was_changed_is_not_used(
    tmp_path: Path, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two(tmp_path, opened)
    tree = one.build()
    fetch = MemoryFeed.fetch

    def damaged(
        self: MemoryFeed, package: str, version: str, dest: Path, *more: object, **how: object
    ) -> object:
        came = fetch(self, package, version, dest, *more, **how)  # type: ignore[arg-type]
        for path in sorted((dest / FILES).rglob("*")):
            if path.is_file():
                path.write_bytes(b"x" * path.stat().st_size)
        return came

    monkeypatch.setattr(MemoryFeed, "fetch", damaged)
    assert other.build() == tree
    assert other.host.ran == one.host.ran
    assert "its files are not those that were made" in other.told[0]


def test_who_signs_takes_no_result_that_others_have_made(tmp_path: Path, opened: ExitStack) -> None:
    feed, key = MemoryFeed(), write_keys(tmp_path)
    feed.preflight()
    stranger = Machine(tmp_path / "stranger", feed, opened)
    tree = stranger.build()
    mine = Machine(tmp_path / "mine", feed, opened, key)
    assert mine.build() == tree
    assert mine.host.ran == stranger.host.ran
    assert "the package is not signed" in mine.told[0]


def test_what_a_machine_has_signed_another_one_of_the_same_key_takes(
    tmp_path: Path, opened: ExitStack
) -> None:
    feed, key = MemoryFeed(), write_keys(tmp_path)
    feed.preflight()
    tree = Machine(tmp_path / "one", feed, opened, key).build()
    other = Machine(tmp_path / "other", feed, opened, key)
    assert other.build() == tree
    assert (other.host.ran, other.told) == ([], [])


def test_a_feed_that_is_away_costs_a_build_and_nothing_else(
    tmp_path: Path, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two(tmp_path, opened)
    tree = one.build()

    def away(*_about: object) -> None:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(MemoryFeed, "find", away)
    assert other.build() == tree
    assert other.host.ran == one.host.ran
