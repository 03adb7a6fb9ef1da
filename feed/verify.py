"""Verify versions of a feed, and packages that were pulled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from feed.attestation import Name
from feed.checked import hash_file
from feed.errors import Corrupt, NotFound, UnsafePath, local_errors
from feed.interface import Feed, Progress
from feed.reader import listed_files
from feed.verdict import Check, CheckSignature, Verdict, judge
from machine.files import files_below, is_link, long_path
from matrix import digest


def verify_published(
    feed: Feed,
    package: str,
    version: str,
    dest: Path,
    *,
    signature: CheckSignature | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Download a version into a new folder, and verify it."""
    title = f"{package} {version}"
    try:
        listed, _tree = listed_files(feed, package, version)
        came = feed.fetch(package, version, dest, progress=progress)
        if set(came) != set(listed):
            raise Corrupt(f"{title}: the downloaded files are not those that the feed lists")
    except (Corrupt, UnsafePath) as error:
        return Verdict(title, "", 0, (Check("content", (error.message,)),))
    return judge(title, dest, came, name=(package, version), signature=signature)


def verify_folder(
    folder: Path, *, name: Name | None = None, signature: CheckSignature | None = None
) -> Verdict:
    """Verify a package that was pulled; every file there must belong to it. `name`: the package
    and version that it must be."""
    folder = long_path(folder)
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    with local_errors(folder):
        files = tuple(_entries(folder))
        return judge(str(folder), folder, files, name=name, signature=signature)


def _entries(folder: Path) -> Iterator[digest.FileEntry]:
    for path in files_below(folder):
        if is_link(path):
            raise UnsafePath(f"{path} is a link: a package has none")
        if not path.is_file():
            raise UnsafePath(f"{path} is not a file")
        yield hash_file(path, path.relative_to(folder).as_posix())
