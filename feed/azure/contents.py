"""The files of a published version, found in the cheapest way that proves them.

The service has no list of files. Three ways lead to one, and each is proven before it is used:

1. This process published it. The tool reported the manifest id it registered; the feed shows
   the same id and exactly the size that these files with their manifest must have.
2. Its own `modelmill.json`, downloaded alone, lists the files. The list is authentic if it has
   the tree digest of the description, and complete if the size fits.
3. The whole version is downloaded and hashed.

The size is proof because the registered size is that of all files and of a manifest whose
length follows from their paths and sizes, but for its white space; the usual ways to write it are
tried. If that arithmetic ever stops being right, way 3 is taken: slower, never wrong. Even then
a size that no manifest explains shows that files are missing from what came down.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from feed.azure.artifacttool import ArtifactTool
from feed.azure.listing import Listing
from feed.azure.service import Service
from feed.azure.staging import work_folder
from feed.checked import hash_file
from feed.errors import PULL_AGAIN, Corrupt
from feed.interface import Progress, parse_tree
from feed.rules import entry_problems
from machine.files import files_below, remove
from matrix.codec import from_json, parse_json
from matrix.digest import BUILD_RECORD, MANIFEST, RUN_RECORDS, FileEntry, tree_digest

Entries = tuple[FileEntry, ...]

_WRITTEN = (
    (None, (",", ":")),
    (None, (", ", ": ")),
    (None, (",", ": ")),
    (1, (",", ": ")),
    (2, (",", ": ")),
    (4, (",", ": ")),
)
"""Indentation and separators of a manifest; line ends of one or two characters."""

_FILTER_LIMIT = 4000
"""Characters of a filter; command lines are short on Windows."""
_WILD = frozenset("*?[]{}()!+@;\\")
"""Characters that a filter would not take literally."""


class Contents:
    """The file lists of a feed's versions. Safe to use from several threads."""

    def __init__(self, service: Service, listing: Listing, tool: ArtifactTool, work: Path) -> None:
        self._service = service
        self._listing = listing
        self._tool = tool
        self._work = work
        # By manifest id, which names content and so never changes its meaning.
        self._sent: dict[str, Entries] = {}
        self._proven: dict[str, Entries] = {}

    def sent(self, manifest_id: str, entries: Iterable[FileEntry]) -> None:
        """Remember what a run of the tool was given and what it registered."""
        self._sent[manifest_id] = tuple(sorted(entries))

    def files(self, package: str, version: str) -> Entries:
        """The proven list of a version's files."""
        meta = self._listing.metadata(package, version)
        known = self._cheaply(package, version, meta)
        if known is None:
            with work_folder(self._work) as folder:
                known = self.download(package, version, folder / "all")
            _check_size(f"{package} {version}", known, meta.package_size)
            self._proven[meta.manifest_id] = known
        return known

    def download(
        self,
        package: str,
        version: str,
        folder: Path,
        wanted: Sequence[str] = (),
        *,
        maybe: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Entries:
        """Download into a new folder: all, or what is wanted; answers what is really there.

        `maybe`: wanted too, but not every version has it.
        """
        paths = (*wanted, *maybe)

        def attempt() -> dict[str, Path]:
            remove(folder)
            folder.mkdir()
            self._tool.download(package, version, folder, _filter(paths), progress=progress)
            return {path.relative_to(folder).as_posix(): path for path in files_below(folder)}

        there = self._service.patiently(attempt)
        if any(path not in there for path in wanted):
            # The filter did not mean to the tool what it means to us.
            paths = ()
            there = self._service.patiently(attempt)
        return tuple(hash_file(path, name) for name, path in there.items())

    def _cheaply(self, package: str, version: str, meta: Any) -> Entries | None:
        if proven := self._proven.get(meta.manifest_id):
            return proven
        for claimed in (self._sent.get(meta.manifest_id), None):
            entries = claimed or self._claimed(package, version, parse_tree(meta.description or ""))
            if entries and meta.package_size in package_sizes(entries):
                self._proven[meta.manifest_id] = entries
                return entries
        return None

    def _claimed(self, package: str, version: str, tree: str | None) -> Entries | None:
        """The list in the version's own manifest, if the description's digest vouches for it."""
        if tree is None:
            return None
        with work_folder(self._work) as work:
            folder = work / "manifest"
            try:
                got = self.download(package, version, folder, [MANIFEST], maybe=sorted(RUN_RECORDS))
                listed = read_list((folder / MANIFEST).read_bytes())
                if (record := folder / BUILD_RECORD).is_file():
                    listed += _references(record.read_bytes())
            except (FileNotFoundError, ValueError):
                # Not one of ours: the whole version is looked at instead.
                return None
        entries = {entry.path: entry for entry in listed}
        entries |= {entry.path: entry for entry in got}
        known = tuple(sorted(entries.values()))
        if entry_problems(known) or tree_digest(known) != tree:
            return None
        return known


def check_tree(package: str, version: str, description: str, entries: Iterable[FileEntry]) -> None:
    """A version of ours must hold what its description says."""
    tree = parse_tree(description)
    if tree and tree_digest(entries) != tree:
        raise Corrupt(f"{package} {version} does not hold the content its description names")


def package_sizes(entries: Iterable[FileEntry]) -> frozenset[int]:
    """The sizes under which a package of these files may be registered, its manifest included.

    Blob ids have 66 characters for small and large files alike, so only paths and sizes count.
    """
    entries = tuple(entries)
    items = [
        {"path": f"/{entry.path}", "blob": {"id": "0" * 66, "size": entry.size}}
        for entry in entries
    ]
    manifest = {"manifestFormat": "1.1.0", "items": items, "manifestReferences": []}
    content = sum(entry.size for entry in entries)
    return frozenset(content + length for length in _lengths(manifest))


def _lengths(manifest: dict[str, Any]) -> Iterator[int]:
    for escaped in (False, True):
        for indent, separators in _WRITTEN:
            text = json.dumps(manifest, indent=indent, separators=separators, ensure_ascii=escaped)
            length, lines = len(text.encode()), text.count("\n")
            yield from (length, length + 1, length + lines, length + lines + 2)


def _check_size(title: str, came: Entries, registered: int) -> None:
    """Refuse a download that lacks files: the tool may leave some out."""
    missing = registered - max(package_sizes(came))
    if missing > 0:
        raise Corrupt(
            f"{title}: about {missing} bytes are missing from what ArtifactTool downloaded",
            hint=PULL_AGAIN,
        )


def read_list(manifest: bytes) -> Entries:
    """The file list of a `modelmill.json`; raises `ValueError` where there is none."""
    try:
        return from_json(parse_json(manifest)["files"], tuple[FileEntry, ...], exact=False)
    except (KeyError, TypeError) as error:
        raise ValueError("no list of files") from error


def _references(record: bytes) -> Entries:
    """The outputs of the reference that a `build.json` lists; raises `ValueError` for no record."""
    try:
        files = parse_json(record).get("reference", {}).get("files", [])
    except AttributeError as error:
        raise ValueError("no build record") from error
    return from_json(files, tuple[FileEntry, ...], exact=False)


def _filter(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The filter for exactly these files; empty (everything) where a filter cannot say it."""
    if sum(map(len, paths)) + len(paths) > _FILTER_LIMIT or any(_WILD & set(p) for p in paths):
        return ()
    return paths
