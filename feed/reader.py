"""Pull: download a version into a local folder, complete and checked, or not at all.

Files go to a new folder beside the destination. Only when every one of them agrees with the
feed's list and with what the package states of itself (`feed.verdict`) does that folder get the
destination's name. With a key, the statement must be there and signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from feed.attestation import manifest_problems, parse
from feed.checked import hash_file, refuse_unsafe
from feed.errors import Corrupt, NotFound, UnsafePath, local_errors
from feed.interface import Feed, Progress
from feed.listing import missing
from feed.rules import matching
from feed.verdict import CheckSignature, Verdict, judge
from machine.files import files_below, is_link, long_path, move, unlink
from machine.scratch import claimed_folder
from matrix.digest import (
    BUILD_RECORD,
    MANIFEST,
    PROVENANCE,
    SBOM,
    SIGNATURE,
    FileEntry,
    tree_digest,
)
from matrix.errors import UsageError

_READ = frozenset({MANIFEST, BUILD_RECORD, SBOM, PROVENANCE, SIGNATURE})
"""The files that say what a package is: every pull reads them."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What the destination holds now."""

    package: str
    version: str
    dest: Path
    files: tuple[FileEntry, ...]
    tree: str
    """Of the whole version, also where only some files were asked for."""
    unchanged: bool
    """The destination held exactly this already; nothing of it was transferred."""
    kind: str = ""
    """What the version states to be (a cell, an export, an index); empty: it states nothing."""
    signed: bool = False
    """Whether that is signed with the key that was given."""


def pull(
    feed: Feed,
    package: str,
    version: str,
    dest: Path,
    patterns: Sequence[str] = ("*",),
    *,
    progress: Progress | None = None,
    force: bool = False,
    room: Callable[[int], object] = lambda _size: None,
    signature: CheckSignature | None = None,
) -> Pulled:
    """Download what matches `patterns` into `dest`, after a look at all of the version.

    A folder with other content is refused. With `force` files of the package replace those of
    the same name there, each at once and whole; other files stay. `room` is called with the number
    of bytes before they are transferred, and may raise to prevent it. `signature` checks the
    statement; without it, what states nothing of itself is taken as it is.
    """
    dest = long_path(dest)
    listed, tree = listed_files(feed, package, version)
    chosen = matching(listed, patterns)
    if not chosen:
        raise NotFound(f"no file of {package} {version} matches {' '.join(patterns)}")
    with local_errors(dest):
        used = occupied(dest)
    unchanged = used and _holds(dest, chosen)
    if used and not unchanged and not force:
        raise UsageError(
            f"{dest} is not empty and holds other content than {package} {version}",
            hint="give another folder, or --force to replace files of the same name",
        )
    read = {entry for entry in listed if entry.path in _READ}
    if unchanged and read <= set(chosen):
        verdict = _checked(dest, package, version, listed, signature)
        return Pulled(package, version, dest, chosen, tree, unchanged, *_stated(verdict))
    if not unchanged:
        room(sum(entry.size for entry in chosen))
    wanted = [one for one in listed if one in read or (one in chosen and not unchanged)]
    names = [_literal(entry.path) for entry in wanted] if len(wanted) < len(listed) else ["*"]
    with staging(dest) as stage:
        if wanted:
            feed.fetch(package, version, stage, names, progress=progress)
        with local_errors(dest):
            _check_came(stage, f"{package} {version}", wanted)
            verdict = _checked(stage, package, version, listed, signature)
            if not unchanged:
                for extra in set(wanted) - set(chosen):
                    unlink(stage / extra.path)
                _move(stage, dest, chosen)
    return Pulled(package, version, dest, chosen, tree, unchanged, *_stated(verdict))


def listed_files(feed: Feed, package: str, version: str) -> tuple[tuple[FileEntry, ...], str]:
    """The files of a live version with their tree digest, which must be that of its description."""
    published = feed.find(package, version)
    if published is None:
        raise missing(feed, package, version)
    if published.deleted:
        hint = f"see: modelmill feed ls {package}"
        raise NotFound(f"{package} {version} was deleted from {feed.name}", hint=hint)
    files = feed.files(package, version)
    refuse_unsafe(files, f"{package} {version}")
    tree = tree_digest(files)
    if published.tree and published.tree != tree:
        raise Corrupt(f"{package} {version} says tree {published.tree} but holds {tree}")
    return files, tree


def occupied(dest: Path) -> bool:
    """Whether a folder is there that holds anything. Raises `UsageError` if it is a file."""
    if dest.exists() and not dest.is_dir():
        raise UsageError(f"{dest} is a file, not a folder")
    return dest.is_dir() and any(dest.iterdir())


def _holds(dest: Path, chosen: Sequence[FileEntry]) -> bool:
    """Whether the folder has exactly these files. Sizes first: hashing is the last resort."""
    found = {path.relative_to(dest).as_posix(): path for path in files_below(dest)}
    if found.keys() != {entry.path for entry in chosen}:
        return False
    return all(
        not found[entry.path].is_symlink() and found[entry.path].stat().st_size == entry.size
        for entry in chosen
    ) and all(hash_file(found[entry.path], entry.path) == entry for entry in chosen)


@contextmanager
def staging(dest: Path) -> Iterator[Path]:
    """A new folder beside the destination, for what is not complete; removed if it stays there."""
    with ExitStack() as stack:
        with local_errors(dest):
            beside = claimed_folder(dest.parent, f".{dest.name[:60]}.pull-")
            stage = stack.enter_context(beside)
        yield stage


def _literal(path: str) -> str:
    return path.replace("[", "[[]")


def _check_came(stage: Path, title: str, wanted: Sequence[FileEntry]) -> None:
    """The feed has checked the digest of every byte on the way (`Feed.fetch`)."""
    files = files_below(stage)
    came = {path.relative_to(stage).as_posix(): path.lstat().st_size for path in files}
    if came != {entry.path: entry.size for entry in wanted}:
        raise Corrupt(f"{title}: the downloaded files are not those that the feed lists")


def _checked(
    folder: Path,
    package: str,
    version: str,
    listed: Sequence[FileEntry],
    signature: CheckSignature | None,
) -> Verdict | None:
    """The verdict about a version by its records in a folder; raises unless all is right. None:
    it states nothing of itself, and no key demands that."""
    title, held = f"{package} {version}", {entry.path for entry in listed}
    if signature is None and PROVENANCE not in held:
        if MANIFEST in held:
            _check_manifest((folder / MANIFEST).read_bytes(), title, listed)
        return None
    verdict = judge(title, folder, listed, name=(package, version), signature=signature)
    if not verdict.ok:
        more = len(verdict.problems) - 1
        text = verdict.problems[0] + (f"; and {more} more" if more else "")
        raise Corrupt(f"{title} is refused: {text}", hint=f"see: modelmill feed verify {title}")
    return verdict


def _stated(verdict: Verdict | None) -> tuple[str, bool]:
    return (verdict.kind, verdict.signed) if verdict else ("", False)


def _check_manifest(data: bytes, title: str, listed: Sequence[FileEntry]) -> None:
    try:
        manifest = parse(data)
    except ValueError as error:
        raise Corrupt(f"{title}: its {MANIFEST} cannot be read: {error}") from error
    if "files" in manifest and (problems := manifest_problems(manifest, listed)):
        raise Corrupt(
            f"{title}: its {MANIFEST} lists other files than the feed: {'; '.join(problems)}"
        )


def _move(stage: Path, dest: Path, chosen: Sequence[FileEntry]) -> None:
    if not occupied(dest):
        if dest.is_dir():
            dest.rmdir()
        move(stage, dest)
        return
    for entry in chosen:
        _adopt(stage, dest, PurePosixPath(entry.path))


def _adopt(stage: Path, dest: Path, path: PurePosixPath) -> None:
    """Move a checked file into a folder that may hold links, which could lead elsewhere."""
    folder = dest
    for part in path.parts[:-1]:
        folder /= part
        if is_link(folder):
            raise UnsafePath(f"{folder} is a link: {path} would leave {dest}")
        folder.mkdir(exist_ok=True)
    move(stage / path, folder / path.name)
