"""Verifying what exists already: a folder, a published version, a cell, a batch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from feed.checked import refuse_unsafe
from feed.index import IndexCell
from feed.reader import pull
from flows.output.activity import waiting_for
from flows.packages.builder import open_builder, verifying
from flows.packages.published import check_folder, published_cells, published_export
from flows.packages.run_records import json_bytes
from flows.packages.signing import signature_check
from flows.packages.verdicts import History, keep_verdict
from flows.plan.planning import planned_cell
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import hash_file, read_json, replace_file
from matrix.digest import BUILD_RECORD, MANIFEST, RUN_RECORDS, FileEntry, files_digest, tree_digest
from matrix.errors import NothingSelected, UsageError
from matrix.manifest import checked_manifest, checked_record
from matrix.model import EXPORT
from workers.build.built import Built
from workers.build.claim import Claim
from workers.build.origin import files_of_stage
from workers.compile.devices import runtime_for
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import VIRTUAL, Missing, Runtime
from workers.store import Store
from workers.verify.ladder.subject import Part, Subject
from workers.verify.verifier import Climbed

_OF_A_CELL = {"cell", "target", "policy", "files"}
"""What the manifest of every cell says."""


@contextmanager
def opened_package(
    settings: Settings, what: str, version: str | None, batch: str | None, export: Path | None
) -> Iterator[tuple[Settings, Subject]]:
    """A version, a folder or a cell until the block ends, and the settings that it is verified by.

    `export`: a folder to compare with, in place of the outputs of it that the package holds.
    """
    waiting_for("running the model")
    folder = settings.cwd / what
    if not version and not folder.is_dir():
        with building_cell(settings, what, batch) as (recalled, built):
            yield recalled, Subject.of(built)
        return
    work = Workspace(settings)
    work.prepare()
    with closing(Store(work.store)) as store, store.scratch.borrow("pulled") as pulled:
        if version:
            folder, feed = pulled / "package", work.open_feed()
            pull(feed, what, version, folder, signature=signature_check(settings))
            if not build_record(folder).get("reference"):
                manifest = _manifest(folder)
                export = export or published_export(feed, what, manifest, pulled / EXPORT)
        else:
            check_folder(settings, folder)
        yield settings, subject_of(settings, store, folder, export)


@contextmanager
def building_cell(
    settings: Settings, what: str, batch: str | None
) -> Iterator[tuple[Settings, Built]]:
    """The package of a cell as a sweep planned it (None: the last one), until the block ends, and
    the settings of that sweep. Stages that the store does not have are run."""
    with Workspace(settings).read_state() as state:
        planned = planned_cell(state, settings, what, batch)
    with open_builder(planned.plan, planned.settings) as builder:
        built = builder.build(planned.cell)
        try:
            yield planned.settings, built
        finally:
            built.release()


def keep_evidence(settings: Settings, tree: str, climbed: Climbed) -> Path:
    """Keep evidence where a promotion finds it: by the digest of the content."""
    path = Workspace(settings).evidence_of(tree)
    replace_file(path, json_bytes(climbed.to_json()))
    return path


def subject_of(settings: Settings, store: Store, folder: Path, export: Path | None) -> Subject:
    """A package folder as the verifier takes it, described by its own records."""
    manifest, record = _manifest(folder), build_record(folder)
    if manifest.get("kind") != "cell":
        if manifest.get("kind") == EXPORT:  # the folder may be one that a command has pulled it to
            hint = "to measure it, pull it and give its .onnx file"
            raise UsageError("this package is an export, not a cell", hint=hint)
        raise UsageError(f"{folder} is not the package of a cell", hint=f"see its {MANIFEST}")
    if lacks := _OF_A_CELL - manifest.keys():
        raise _unreadable(folder / MANIFEST, f"it has no {min(lacks)}")
    target = Workspace(settings).targets().get(manifest["target"].get("label", ""))
    inner = folder / EXPORT
    given = export or (inner if inner.is_dir() else None)
    # Without a folder, what the stage wrote for all components, if this machine's store has it.
    stored = None if given else Part.stored(store, list(files_of_stage(store, manifest, EXPORT)))
    digest, size = hash_file(folder / MANIFEST)
    reference = record.get("reference", {})
    # Packages of newer versions may say more of a file.
    listed = (*manifest["files"], *reference.get("files", ()))
    files = [FileEntry(one["path"], one["size"], one["sha256"]) for one in listed]
    refuse_unsafe(files, str(folder))
    try:
        claim = Claim.from_records(manifest, record, target)
    except ValueError as error:
        raise _unreadable(folder, str(error)) from None
    return Subject(
        claim=claim,
        folder=folder,
        files=(*files, FileEntry(MANIFEST, size, digest)),
        store=store,
        manifest=manifest,
        export=_folder_part(given) if given else stored,
        reference=reference,
        named_export=export is not None,
        afresh=True,
    )


def _folder_part(folder: Path) -> Part:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    records, files = (MANIFEST, *RUN_RECORDS), []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in records:
            digest, size = hash_file(path)
            files.append(FileEntry(path.relative_to(folder).as_posix(), size, digest))

    def place(dest: Path) -> None:
        shutil.copytree(folder, dest, ignore=shutil.ignore_patterns(*records), dirs_exist_ok=True)

    return Part(files_digest(files), place)


def _manifest(folder: Path) -> Mapping[str, Any]:
    try:
        return checked_manifest(read_json(folder / MANIFEST))
    except (OSError, ValueError) as error:
        raise _unreadable(folder / MANIFEST, str(error)) from None


def build_record(folder: Path) -> Mapping[str, Any]:
    """What a package says of its build; empty: it has none."""
    try:
        return checked_record(read_json(folder / BUILD_RECORD))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(folder / BUILD_RECORD, str(error)) from None


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} cannot be read: {why}", hint="is this a package? pull it again")


def runnable(
    settings: Settings, stamp: str, runtimes: Runtimes
) -> tuple[list[IndexCell], dict[str, str]]:
    """The published cells of a batch whose own provider is on this machine, and for each other
    target why it is not. Raises `NothingSelected`."""
    work, missing = Workspace(settings), dict[str, str]()

    def wanted(one: IndexCell) -> bool:
        found = _own(work, runtimes, one.target)
        if isinstance(found, Missing) and one.target != EXPORT:
            missing[one.target] = found.why
        return isinstance(found, Runtime)

    try:
        cells = published_cells(
            settings, work.open_feed(), stamp, "for a provider of this machine", wanted
        )
    except NothingSelected as error:
        if not missing:
            raise
        reasons = "; ".join(f"{target}: {why}" for target, why in missing.items())
        raise NothingSelected(error.message, hint=reasons) from None
    return cells, missing


def _own(work: Workspace, runtimes: Runtimes, column: str) -> Runtime | Missing:
    """The runtime of a column of the index: a target, or one with `+PROFILE`."""
    label, _plus, profile = column.partition("+")
    if label == EXPORT:
        return Missing("", "", "an export is for no target")
    target = work.targets().get(label.partition(":")[0])
    if not profile:
        return runtimes.for_target(target)
    found = runtime_for(runtimes, work.profiles().get(profile), target, emulated=True)
    if isinstance(found, Runtime) and found.virtual:
        return Missing(found.provider, found.device, VIRTUAL)
    return found


def verified_again(
    settings: Settings, stamp: str, told: Callable[[str], None]
) -> Iterator[tuple[IndexCell, Climbed, History | None]]:
    """Each cell with what its verdicts come to, or None if its own provider could not be used after
    all; `told` hears which targets are left out."""
    with verifying(settings, again=True) as verifier:
        cells, missing = runnable(settings, stamp, verifier.runtimes)
        for target, why in missing.items():
            told(f"{target} is left out: {why}")
        for number, cell in enumerate(cells, 1):
            waiting_for(f"verifying {number} of {len(cells)}: {cell.id}")
            with opened_package(settings, cell.package, cell.version, None, None) as (_own, found):
                climbed, tree = verifier.climb(found), tree_digest(found.files)
                built = build_record(found.folder)
            keep_evidence(settings, tree, climbed)
            history = keep_verdict(settings, tree, climbed.to_json(), built)
            yield cell, climbed, history
