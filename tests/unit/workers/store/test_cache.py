"""Stage results that machines share: what is taken, what is refused, and what that costs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from machine.waits import Cancelled, WaitRules
from matrix.digest import value_digest
from tests.engines.builder import BuilderHarness
from tests.sweeps.in_memory import small_model
from workers.store import Action
from workers.store import cache as module
from workers.store.cache import Cache, CacheRefuses, CacheTrouble, TooLarge, copy
from workers.store.cache_folder import FolderPlace
from workers.store.store import usage_of


@dataclass
class MemoryPlace:
    """A cache in memory, which can be told to fail."""

    entries: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    fail: Callable[[str, str], Exception | None] = lambda _call, _name: None
    where: str = "memory"

    def _ask(self, call: str, name: str) -> None:
        self.asked.append((call, name))
        if error := self.fail(call, name):
            raise error

    def fetch(self, name: str, out: BinaryIO, most: int, cancel: threading.Event | None) -> bool:
        self._ask("fetch", name)
        if name in self.entries:
            copy([self.entries[name]], out, most, cancel)
        return name in self.entries

    def has(self, name: str, cancel: threading.Event | None) -> bool:
        self._ask("has", name)
        return name in self.entries

    def put(self, name: str, source: Path | bytes, cancel: threading.Event | None) -> None:
        self._ask("put", name)
        self.entries[name] = source if isinstance(source, bytes) else source.read_bytes()

    def names(self, space: str) -> list[str]:
        return [name for name in self.entries if name.startswith(f"{space}/")]


class Machine(BuilderHarness):
    """A machine with a store of its own, and the cache."""

    def __init__(self, root: Path, place: Any, **options: Any) -> None:
        super().__init__(root)
        self.told: list[str] = []
        self.now = 0.0
        self.cache = self.builder.cache = Cache(
            place, self.store, told=self.told.append, clock=lambda: self.now, **options
        )

    def build(self) -> str:
        """The tree of a small cell."""
        (cell,) = small_model(cells=1).cells
        built = self.builder.build(cell)
        built.release()
        return built.tree


Make = Callable[..., Machine]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> MemoryPlace:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    return MemoryPlace()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as opened:

        def made(name: str, place: Any, **options: Any) -> Machine:
            machine = Machine(tmp_path / name, place, **options)
            opened.callback(machine.store.close)
            return machine

        yield made


def test_a_stage_runs_on_one_machine_only(place: MemoryPlace, make: Make) -> None:
    one, other = make("one", place), make("other", place)
    tree = one.build()
    assert len(place.names("ac")) == len(one.host.ran) > 0
    assert other.build() == tree
    assert (other.host.ran, other.told, one.told) == ([], [], [])
    assert usage_of(other.store.root) == usage_of(one.store.root)


def test_a_record_comes_after_its_blobs(place: MemoryPlace, make: Make) -> None:
    make("one", place).build()
    put = [name for call, name in place.asked if call == "put"]
    seen: set[str] = set()
    for name in put:
        if name.startswith("ac/"):
            files = json.loads(place.entries[name].split(b"\n")[0])["files"]
            assert {f"cas/{one['sha256']}" for one in files} <= seen
        seen.add(name)
    assert len(put) == len(set(put)), "nothing is sent twice"


def test_what_a_machine_has_from_before_is_given_too(place: MemoryPlace, make: Make) -> None:
    one, other = make("one", place), make("other", place)
    one.builder.cache = None
    one.build()
    assert place.entries == {}
    one.builder.cache = one.cache
    one.build()
    other.build()
    assert other.host.ran == []
    place.asked.clear()
    one.build()
    assert place.asked == [], "a process knows what it has given"


def test_who_only_reads_gives_nothing(place: MemoryPlace, make: Make) -> None:
    one = make("one", place, writes=False)
    one.build()
    assert place.entries == {}
    assert {call for call, _name in place.asked} == {"fetch"}
    make("other", place).build()
    one = make("again", place, writes=False)
    one.build()
    assert one.host.ran == []


def test_a_blob_that_was_evicted_is_made_here_and_put_back(place: MemoryPlace, make: Make) -> None:
    one, other, third = (make(name, place) for name in ("one", "other", "third"))
    tree = one.build()
    for name in place.names("cas"):
        del place.entries[name]
    assert other.build() == tree
    assert other.host.ran == one.host.ran
    assert other.told == []
    assert third.build() == tree
    assert third.host.ran == []


@pytest.mark.parametrize("space", ["ac", "cas"])
@pytest.mark.parametrize("bytes_", [b"", b"\n", b"[]\n", b"\xff" * 99, b"x" * 3_000_000])
def test_rubbish_is_made_here_and_replaced(
    place: MemoryPlace, make: Make, space: str, bytes_: bytes
) -> None:
    one, other, third = (make(name, place) for name in ("one", "other", "third"))
    tree = one.build()
    (spoilt, *_) = [name for name in place.names(space) if place.entries[name]]
    place.entries[spoilt] = bytes_
    assert other.build() == tree
    assert len(other.host.ran) == 1
    (news,) = other.told
    assert news.startswith("the cache memory has a wrong result, which is made here: ")
    assert len(news) < 200
    assert third.build() == tree
    assert third.host.ran == []


def test_a_cache_that_lies_again_and_again_is_not_asked_any_more(
    place: MemoryPlace, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UNFIT", 2)
    one, other = make("one", place), make("other", place)
    one.build()
    for name in place.names("ac"):
        place.entries[name] = b"{}"
    other.build()
    assert sum(call == "fetch" for call, _name in place.asked[-99:]) >= 2
    assert other.host.ran == one.host.ran
    assert "2 results were wrong, the last: " in other.told[-1]
    place.asked.clear()
    small = small_model("tiny/other", cells=1)
    other.builder.build(small.cells[0]).release()
    assert "fetch" not in {call for call, _name in place.asked}


def _record(value: dict[str, Any]) -> bytes:
    text = json.dumps(value).encode()
    return b"\n".join([text, hashlib.sha256(text).hexdigest().encode()])


def _file(value: dict[str, Any], **changes: Any) -> dict[str, Any]:
    first, *rest = value["files"]
    return {**value, "files": [{**first, **changes}, *rest]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: {**one, "key": "0" * 64}, "about another stage"),
        (lambda one: {**one, "parts": {**one["parts"], "engine": "x"}}, "about another stage"),
        (lambda one: _file(one, path="../outside"), "is not a name"),
        (lambda one: _file(one, path="/etc/outside"), "absolute path"),
        (lambda one: _file(one, path="C:\\outside"), "backslash"),
        (lambda one: _file(one, path="a/../../outside"), "is not a name"),
        (lambda one: _file(one, path="NUL"), "reserved on Windows"),
        (lambda one: _file(one, path="a\u0000b"), "control character"),
        (lambda one: {**one, "files": [*one["files"], *one["files"]]}, "are one file"),
        (lambda one: _file(one, sha256="../../x"), "not a size and a SHA-256"),
        (lambda one: _file(one, size=-1), "not a size and a SHA-256"),
        (lambda one: _file(one, size=1 << 52), "half of what the disk has left"),
        (lambda one: {**one, "files": [one["files"][0]] * 20_001}, "more than 20000"),
        (lambda one: {**one, "seconds": float("nan")}, "its costs"),
        (lambda one: {**one, "seconds": -1.0}, "its costs"),
        (lambda one: {**one, "peak_memory": 1 << 60}, "its costs"),
        (lambda one: {**one, "files": "none"}, "Expected"),
        (lambda one: {name: one[name] for name in one if name != "facts"}, "facts"),
        (lambda one: [one], "Expected"),
    ],
)
def test_a_record_that_could_do_harm_is_refused(
    place: MemoryPlace,
    make: Make,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], Any],
    why: str,
) -> None:
    one, other = make("one", place), make("other", place)
    tree = one.build()
    (first, *_) = place.names("ac")
    value = json.loads(place.entries[first].split(b"\n")[0])
    place.entries[first] = _record(change(value))
    assert other.build() == tree
    assert len(other.host.ran) == 1
    assert why in other.told[0]
    assert not list(tmp_path.rglob("*outside*"))


def test_a_record_that_a_newer_version_wrote_is_read(place: MemoryPlace, make: Make) -> None:
    one, other = make("one", place), make("other", place)
    one.build()
    for name in place.names("ac"):
        value = json.loads(place.entries[name].split(b"\n")[0])
        place.entries[name] = _record({**value, "more": 1})
    other.build()
    assert (other.host.ran, other.told) == ([], [])


def test_facts_that_are_no_finite_numbers_are_shared_too(place: MemoryPlace, make: Make) -> None:
    one, other = make("one", place), make("other", place)
    parts = {"stage": "quantize"}
    action = Action(value_digest(parts), parts, (), {"snr": math.inf}, {}, 1.0, 1)
    one.cache.give(action, WaitRules())
    assert other.cache.take(action.key, WaitRules()) == action
    assert other.store.lookup(action.key) == action


def _sign(text: bytes) -> bytes:
    return b"signed " + value_digest(text.decode()).encode() + b"\n"


def _check(signature: bytes, text: bytes) -> None:
    if signature != _sign(text).strip():
        raise ValueError("it is signed by somebody else")


def test_who_asks_for_signatures_takes_nothing_else(place: MemoryPlace, make: Make) -> None:
    stranger = make("stranger", place)
    tree = stranger.build()
    mine = make("mine", place, sign=_sign, check=_check)
    assert mine.build() == tree
    assert mine.host.ran == stranger.host.ran
    assert "it is not signed" in mine.told[0]
    other = make("other", place, sign=_sign, check=_check)
    assert other.build() == tree
    assert (other.host.ran, other.told) == ([], []), "mine were put in place of the stranger's"
    for name in place.names("ac"):
        place.entries[name] = place.entries[name].replace(b"signed ", b"forged ")
    last = make("last", place, sign=_sign, check=_check)
    assert last.build() == tree
    assert "signed by somebody else" in last.told[0]


def test_a_cache_that_is_away_is_asked_again_later(place: MemoryPlace, make: Make) -> None:
    one, other = make("one", place), make("other", place)
    tree = one.build()
    place.asked.clear()
    place.fail = lambda _call, _name: CacheTrouble("no route to host")
    assert other.build() == tree
    assert other.host.ran == one.host.ran
    assert other.told == ["the cache memory is not used for now: no route to host"]
    assert len(place.asked) == module.TRIES, "the other stages do not wait for it"
    place.fail = lambda _call, _name: None
    other.now += module.AWAY
    small = small_model("tiny/other", cells=1)
    other.builder.build(small.cells[0]).release()
    assert other.told[1:] == [""], "the news are taken back"
    assert ("put", f"ac/{_newest(place)}") in place.asked


def _newest(place: MemoryPlace) -> str:
    return place.names("ac")[-1].removeprefix("ac/")


def test_each_time_it_is_away_it_is_left_alone_for_longer(place: MemoryPlace, make: Make) -> None:
    one = make("one", place)
    place.fail = lambda _call, _name: CacheTrouble("down")
    asked = []
    for _ in range(8):
        place.asked.clear()
        one.cache.take("0" * 64, WaitRules())
        asked.append(bool(place.asked))
        one.now += module.AWAY
    assert asked == [True, True, False, True, False, False, False, True]
    assert len(one.told) == 1


@pytest.mark.parametrize(
    ("error", "news"),
    [
        (CacheRefuses("it answers 403"), "takes nothing from this machine: it answers 403"),
        (CacheTrouble("its disk is full"), "takes nothing for now: its disk is full"),
        (TooLarge(), ""),
        (PermissionError(13, "of the store"), ""),
    ],
)
def test_a_cache_that_takes_nothing_is_still_read(
    place: MemoryPlace, make: Make, error: Exception, news: str
) -> None:
    one, other = make("one", place), make("other", place)
    place.fail = lambda call, _name: error if call == "put" else None
    one.build()
    assert one.told == ([f"the cache memory {news}"] if news else [])
    assert place.entries == {}
    place.fail = lambda _call, _name: None
    other.build()
    one.builder.store.gc(0)
    ran = len(one.host.ran)
    one.build()
    assert len(one.host.ran) == ran


def test_a_stop_ends_a_transfer(place: MemoryPlace, make: Make) -> None:
    one, other = make("one", place), make("other", place)
    one.build()
    stop = threading.Event()
    stop.set()
    key = _newest(place)
    with pytest.raises(Cancelled):
        other.cache.take(key, WaitRules(cancel=stop))
    assert other.told == []
    assert other.store.lookup(key) is None


def test_wrong_bytes_of_this_store_are_not_given(place: MemoryPlace, make: Make) -> None:
    one = make("one", place, writes=False)
    one.build()
    one.cache._gives_until = 0.0
    key = next(iter(one.store._actions.all()))[1]
    action = one.store.lookup(key)
    assert action is not None
    blob = one.store.source(action.files[0])
    blob.chmod(0o644)
    blob.write_bytes(b"x" * action.files[0].size)
    one.cache.give(action, WaitRules())
    assert place.entries == {}


def test_a_disk_that_is_full_here_is_told_and_the_stage_is_tried(
    place: MemoryPlace, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make("one", place), make("other", place)
    tree = one.build()

    def full(*_about: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(other.store, "take_in", full)
    key = _newest(place)
    assert other.cache.take(key, WaitRules()) is None
    assert other.told == ["the cache memory is not used for a result: No space left on device"]
    monkeypatch.undo()
    assert other.build() == tree


def test_a_folder_is_a_cache(tmp_path: Path, make: Make) -> None:
    place = FolderPlace(tmp_path / "shared")
    one, other = make("one", place), make("other", place)
    tree = one.build()
    assert other.build() == tree
    assert (other.host.ran, other.told) == ([], [])
    assert list((tmp_path / "shared" / "tmp").iterdir()) == []


def test_a_folder_whose_disk_is_not_there_is_not_made(tmp_path: Path, make: Make) -> None:
    one = make("one", FolderPlace(tmp_path / "mnt" / "shared"))
    one.build()
    (news,) = one.told
    assert f"is not used for now: there is no folder {tmp_path / 'mnt'}" in news
    assert not (tmp_path / "mnt").exists()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_links_in_a_folder_are_not_followed(tmp_path: Path, make: Make, depth: int) -> None:
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    one, other = make("one", FolderPlace(shared)), make("other", FolderPlace(shared))
    tree = one.build()
    path = next(path for path in sorted((shared / "ac").rglob("*")) if path.is_file())
    linked = (path, path.parent, path.parent.parent)[depth]
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    assert other.build() == tree
    assert f"{linked} is a link" in other.told[0]
    assert sorted(elsewhere.rglob("*")) == before


def test_a_pipe_in_a_folder_keeps_nobody_waiting(tmp_path: Path, make: Make) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes with names")
    shared = tmp_path / "shared"
    one, other = make("one", FolderPlace(shared)), make("other", FolderPlace(shared))
    tree = one.build()
    for path in [path for path in (shared / "cas").rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)
    assert other.build() == tree
    assert other.host.ran == one.host.ran


def test_a_folder_that_cannot_be_written_is_read(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"

    def refused(*_about: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    one = make("one", FolderPlace(shared))
    with monkeypatch.context() as patched:
        patched.setattr("workers.store.cache_folder.claimed_folder", refused)
        one.build()
    assert one.told == [f"the cache {shared} takes nothing from this machine: Permission denied"]
