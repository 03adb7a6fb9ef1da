"""What every feed promises. `pytest PATH_OF_THIS_FILE --feed SPEC` checks another one, too."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from feed.checked import hash_file
from feed.errors import (
    Conflict,
    Corrupt,
    NotFound,
    OutcomeUnknown,
    Rejected,
    Unavailable,
    VersionExists,
)
from feed.interface import LocalFile, write_description
from feed.open import open_feed
from feed.publisher import Publisher
from feed.reader import pull
from matrix.digest import FileEntry
from tests.fakes.feed import tree_of, write_files
from tests.feeds.subjects import Subject

CONTENTS = {
    "model.onnx": b"weights" * 1000,
    "model.onnx.data": b"",
    "text encoder/model [int8].onnx": b"t" * 70_000,
    "sub/mod\u00e8le.json": b"{}",
}
A, B = "0.0.0-20260609-qnn-npu-a", "0.0.0-20260609-qnn-npu-b"


@pytest.fixture
def files(tmp_path: Path) -> tuple[LocalFile, ...]:
    return write_files(tmp_path / "src", CONTENTS)


def publish(subject: Subject, package: str, version: str, files: Sequence[LocalFile]) -> None:
    subject.feed.publish(package, version, files, write_description(tree_of(files), "demo"))


def held(folder: Path) -> Mapping[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# -- what is published is there, whole, and stays


def test_a_published_version_is_found_listed_and_fetched(
    subject: Subject, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    for feed in (subject.feed, subject.reopened()):
        found = feed.find(package, A)
        assert found is not None
        assert (found.package, found.version, found.deleted) == (package, A, False)
        assert found.tree == tree_of(files)
        assert found.description.endswith("demo")
        assert [(one.version, one.tree) for one in feed.versions(package)] == [(A, found.tree)]
        assert package in list(feed.packages())
        assert set(feed.files(package, A)) == {file.entry for file in files}
    subject.reopened().fetch(package, A, tmp_path / "out")
    assert held(tmp_path / "out") == CONTENTS


def test_the_name_of_a_feed_opens_it(subject: Subject, tmp_path: Path) -> None:
    name = subject.feed.name
    if ":" in name:  # the fake in memory has no address
        assert open_feed(name, base=tmp_path).name == name
    assert subject.reopened().name == name


def test_only_what_is_asked_for_is_fetched(
    subject: Subject, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    got = subject.feed.fetch(package, A, tmp_path / "out", ["text*", "*.json"])
    wanted = {"text encoder/model [int8].onnx", "sub/mod\u00e8le.json"}
    assert {entry.path for entry in got} == wanted == held(tmp_path / "out").keys()
    assert subject.feed.fetch(package, A, tmp_path / "none", ["nothing*"]) == ()


def test_a_listing_is_of_one_package_and_one_prefix(
    subject: Subject, files: tuple[LocalFile, ...]
) -> None:
    package = subject.package()
    for name, version in ((package, A), (package, B), (f"{package}-large", A)):
        publish(subject, name, version, files)
    assert [found.version for found in subject.feed.versions(package)] == [A, B]
    assert [found.version for found in subject.feed.versions(package, B[:-1])] == [A, B]
    assert [found.version for found in subject.feed.versions(package, B)] == [B]
    assert list(subject.feed.versions(package[:-1])) == []


def test_what_is_not_there_is_told_apart_from_an_error(
    subject: Subject, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    for name, version in ((subject.package(), A), (package, B)):
        assert subject.feed.find(name, version) is None
        with pytest.raises(NotFound):
            subject.feed.files(name, version)
        with pytest.raises(NotFound):
            subject.feed.fetch(name, version, tmp_path / "out")
        with pytest.raises(NotFound):
            subject.feed.promote(name, version, subject.view)
    assert list(subject.feed.versions(subject.package())) == []


def test_a_version_is_never_written_twice(subject: Subject, tmp_path: Path) -> None:
    package = subject.package()
    first = write_files(tmp_path / "a", {"x": b"1"})
    publish(subject, package, A, first)
    with pytest.raises(VersionExists):
        publish(subject, package, A, write_files(tmp_path / "b", {"x": b"2"}))
    assert set(subject.reopened().files(package, A)) == {file.entry for file in first}


def test_of_many_publishers_of_one_version_one_wins(subject: Subject, tmp_path: Path) -> None:
    package = subject.package()
    start = threading.Barrier(4)

    def work(number: int) -> str:
        files = write_files(tmp_path / f"src{number}", {"x": b"same", "build.json": b"%d" % number})
        start.wait()
        publish(subject, package, f"0.0.0-own-{number}", files)
        try:
            publish(subject, package, A, files)
        except VersionExists:
            return "lost"
        return "won"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(work, range(4)))
    assert sorted(outcomes) == ["lost"] * 3 + ["won"]
    assert len(list(subject.reopened().versions(package))) == 5


@pytest.mark.deletes
def test_a_deleted_version_stays_taken(
    subject: Subject, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    assert subject.delete
    subject.delete(package, A)
    feed = subject.reopened()
    found = feed.find(package, A)
    assert found is not None
    assert found.deleted
    assert [(one.version, one.deleted) for one in feed.versions(package)] == [(A, True)]
    with pytest.raises((VersionExists, Conflict)):
        publish(subject, package, A, files)
    with pytest.raises(NotFound):
        feed.files(package, A)
    with pytest.raises(NotFound):
        feed.fetch(package, A, tmp_path / "out")
    with pytest.raises(NotFound):
        feed.promote(package, A, subject.view)


# -- what must not be published is not


@pytest.mark.parametrize("change", ["flipped", "cut", "longer", "gone"])
def test_a_file_that_changed_since_it_was_hashed_is_refused(
    subject: Subject, files: tuple[LocalFile, ...], change: str
) -> None:
    package, source = subject.package(), files[0].source
    data = uuid.uuid4().bytes  # new to the feed, which need not read again what it has
    source.write_bytes(data)
    files = (LocalFile(hash_file(source, files[0].entry.path), source), *files[1:])
    if change == "gone":
        source.unlink()
    else:
        changed = {
            "flipped": bytes([data[0] ^ 1]) + data[1:],
            "cut": data[:-1],
            "longer": data + b"x",
        }
        source.write_bytes(changed[change])
    with pytest.raises(Corrupt, match=r"model\.onnx"):
        publish(subject, package, A, files)
    assert subject.reopened().find(package, A) is None


@pytest.mark.parametrize(
    "path", ["../up", "/etc/x", "a//b", "a\\b", "con", "dot.", ".git/x", "sub/.ArtifactIgnore"]
)
def test_a_path_that_is_not_the_same_file_everywhere_is_refused(
    subject: Subject, files: tuple[LocalFile, ...], path: str
) -> None:
    package = subject.package()
    bad = [*files, LocalFile(replace(files[0].entry, path=path), files[0].source)]
    with pytest.raises(Rejected):
        publish(subject, package, A, bad)
    assert subject.feed.find(package, A) is None


def test_a_version_without_files_is_refused(subject: Subject) -> None:
    with pytest.raises(Rejected, match="at least one file"):
        publish(subject, subject.package(), A, ())


def test_names_beyond_the_declared_limits_are_refused(
    subject: Subject, files: tuple[LocalFile, ...]
) -> None:
    package, limits = subject.package(), subject.feed.limits
    assert limits.package.problem(package) is None
    assert limits.version.problem(A) is None
    bad = [
        ("x" * (limits.package.longest + 1), A),
        ("a\n", A),
        (package, "0.0.0-" + "x" * (limits.version.longest - 5)),
        (package, "0.0.0 "),
    ]
    for name, version in bad:
        with pytest.raises(Rejected):
            publish(subject, name, version, files)
        assert subject.feed.find(name, version) is None


def test_names_at_the_declared_limits_are_taken(subject: Subject, tmp_path: Path) -> None:
    limits = subject.feed.limits
    package = subject.package()
    package += "x" * (min(limits.package.longest, 200) - len(package))
    version = "0.0.0-" + "x" * (limits.version.longest - 6)
    files = write_files(tmp_path / "src", {"x": b"1"})
    subject.feed.preflight([(package, version)])
    publish(subject, package, version, files)
    assert set(subject.reopened().files(package, version)) == {file.entry for file in files}


@pytest.mark.fills
def test_no_more_versions_than_declared_fit(subject: Subject) -> None:
    most = subject.feed.limits.versions
    package = subject.package()
    assert subject.fill
    subject.fill(package, most - 1)
    feed = subject.reopened()
    feed.preflight([(package, "0.0.0"), (package, A)])
    with pytest.raises(Rejected, match=f"2 new versions do not fit, {most - 1} of {most}"):
        feed.preflight([(package, A), (package, B)])


# -- a publish can be watched, limited and stopped


def test_progress_counts_the_bytes(subject: Subject, files: tuple[LocalFile, ...]) -> None:
    seen: list[tuple[int, int]] = []
    package = subject.package()
    subject.feed.publish(package, A, files, "", progress=lambda *step: seen.append(step))
    assert seen
    assert all(0 <= done <= total for done, total in seen)
    assert seen == sorted(seen)


def test_progress_that_raises_stops_the_publish(
    subject: Subject, files: tuple[LocalFile, ...]
) -> None:
    package = subject.package()

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        subject.feed.publish(package, A, files, "", progress=stop)
    check_all_or_nothing(subject, package, files)


def test_time_that_is_over_stops_the_publish(
    subject: Subject, files: tuple[LocalFile, ...]
) -> None:
    package = subject.package()
    with pytest.raises((Unavailable, OutcomeUnknown)):
        subject.feed.publish(package, A, files, "", timeout=0)
    check_all_or_nothing(subject, package, files)


def check_all_or_nothing(subject: Subject, package: str, files: Sequence[LocalFile]) -> None:
    """Whoever is stopped may have committed a moment before."""
    feed = subject.reopened()
    if feed.find(package, A):
        assert set(feed.files(package, A)) == {file.entry for file in files}


# -- views


def test_a_promotion_shows_in_listings_and_can_be_repeated(
    subject: Subject, files: tuple[LocalFile, ...]
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    for view in (subject.view, subject.view.lower(), subject.view.upper()):
        subject.feed.promote(package, A, view)
    (listed,) = subject.reopened().versions(package)
    assert listed.views == (subject.feed.view(subject.view),)
    assert listed.tree == tree_of(files)


@pytest.mark.parametrize("view", ["", "../../x", "a b", "local", "Local"])
def test_what_cannot_be_a_view_is_refused(
    subject: Subject, files: tuple[LocalFile, ...], view: str
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    with pytest.raises(Rejected, match="view"):
        subject.feed.promote(package, A, view)


# -- with the code that all feeds share


def test_publishing_again_sends_nothing_and_other_content_is_a_conflict(
    subject: Subject, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    package = subject.package()
    first = Publisher(subject.feed).publish(package, A, files, tree=tree_of(files))
    again = Publisher(subject.reopened()).publish(package, A, files, tree=tree_of(files))
    assert (first.already_there, again.already_there, again.attempts) == (False, True, 0)
    other = write_files(tmp_path / "other", {**CONTENTS, "model.onnx": b"other"})
    with pytest.raises(Conflict):
        Publisher(subject.feed).publish(package, A, other, tree=tree_of(other))
    assert set(subject.feed.files(package, A)) == {file.entry for file in files}


def test_a_pull_is_whole_and_a_second_one_transfers_nothing(
    subject: Subject, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    package = subject.package()
    publish(subject, package, A, files)
    pulled = pull(subject.feed, package, A, tmp_path / "out")
    assert pulled.tree == tree_of(files)
    assert held(tmp_path / "out") == CONTENTS
    assert pull(subject.feed, package, A, tmp_path / "out").unchanged


def test_a_host_that_can_publish_passes_the_check(subject: Subject) -> None:
    assert not subject.feed.is_new
    subject.feed.check()
    subject.feed.preflight([(subject.package(), A)])


def test_entries_are_listed_as_they_were_sent(subject: Subject, tmp_path: Path) -> None:
    package = subject.package()
    parts = {f"part-{number:03}": b"%d" % number for number in range(60)}
    files = write_files(tmp_path / "src", parts)
    publish(subject, package, A, files)
    found: tuple[FileEntry, ...] = subject.reopened().files(package, A)
    assert sorted(found) == sorted(file.entry for file in files)
