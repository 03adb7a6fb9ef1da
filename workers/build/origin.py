"""Compiled cells that begin with a package that is there already: nothing upstream runs again.

The package and its export are fetched once and kept in the store like the results of stages. Its
manifest says the rest, so what is made of it is what a build from the source would have made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine.files import read_json, remove
from machine.waits import WITHOUT_LIMIT, WaitRules
from matrix.digest import (
    BUILD_RECORD,
    MANIFEST,
    RUN_RECORDS,
    SAMPLES,
    FileEntry,
    is_reference,
    tree_digest,
    value_digest,
)
from matrix.manifest import checked_manifest, checked_record
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build.claim import Claim
from workers.build.graph import EXPORT, INPUTS, Output, StageResults, outside, within
from workers.build.package import JUDGE
from workers.compile.group import STAGE as COMPILE
from workers.engine import BuildPlan, StageSpec
from workers.errors import BuildFailed
from workers.store import Action, Store

FETCH = "fetch"
"""Names what fails here, as stages name theirs."""
PACKAGE = "package"

Fetch = Callable[[Cell, Path], None]
"""Puts the portable package of a compiled cell into `package` below a folder and, where it can be
had, the export of that into `export`. Raises `BuildFailed`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What a compiled cell begins with."""

    results: StageResults
    self_contained: bool
    claim: Claim
    inputs: tuple[FileEntry, ...]
    export: tuple[FileEntry, ...]
    references: tuple[FileEntry, ...]
    """The outputs of the reference, beside the samples of the package."""
    reference: Mapping[str, Any]
    """What its build record says of it."""


def begin(
    store: Store, cell: Cell, fetch: Fetch | None = None, rules: WaitRules = WITHOUT_LIMIT
) -> Begun | None:
    """The package of `cell.origin` as the stages that made it, fetched unless the store has it.

    None: the cell is built from its source, or the store lacks the package and `fetch` is None.
    """
    if cell.origin is None:
        return None
    key = value_digest({"package": cell.origin.tree})
    action = store.lookup(key)
    if action is None and fetch is not None:
        with store.lock(key, rules):
            action = store.lookup(key)
            if action is None:
                rules.told("fetching the portable package")
                action = _take_in(store, cell, key, fetch)
    if action is None:
        return None
    if tree_digest(within(action.files, PACKAGE)) != cell.origin.tree:
        raise _unfit(cell, "it is not the package that was listed")
    return _begun_with(store, cell, action)


def _begun_with(store: Store, cell: Cell, action: Action) -> Begun:
    """Read a package. Raises `BuildFailed` for one that is not what the cell is made from."""
    files = within(action.files, PACKAGE)
    manifest, record = action.facts["manifest"], action.facts["record"]
    embedded = within(files, EXPORT)
    beside = (f"{EXPORT}/", f"{SAMPLES}/")
    own = [one for one in files if one.path != MANIFEST and not one.path.startswith(beside)]
    references = tuple(one for one in files if is_reference(one.path))
    try:
        if manifest["kind"] != "cell" or manifest.get("profile"):
            raise _unfit(cell, "it is not a portable package")
        claim = Claim.from_records(manifest, record, cell.target)
        export = within(action.files, EXPORT) or files_of_stage(store, manifest, EXPORT)
        return Begun(
            results=_results(cell, manifest, tuple(own), embedded, _samples(files)),
            self_contained=bool(embedded),
            claim=replace(claim, cell=cell.id, profile=cell.profile),
            inputs=files_of_stage(store, manifest, INPUTS),
            export=embedded or export,
            references=references,
            reference=record.get("reference", {}),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unfit(cell, f"its {MANIFEST} cannot be read: {error!r}") from error


def _results(
    cell: Cell,
    manifest: Mapping[str, Any],
    files: tuple[FileEntry, ...],
    embedded: tuple[FileEntry, ...],
    samples: tuple[FileEntry, ...],
) -> StageResults:
    components = tuple(str(name) for name in manifest["components"])
    last = [one["stage"] for one in manifest["stages"] if one["stage"] not in {INPUTS, COMPILE}][-1]
    folders = {name: within(files, name) for name in components}
    apart = bool(folders) and all(folders.values())  # else the components share their weights
    # Files outside all components are copied as they are, like those of an export.
    others = tuple(outside(files, components)) if apart else ()
    by_component = {name: _action(own) for name, own in folders.items()} if apart else {}
    outputs = {last: Output(by_component or {"": _action(files)})}
    if last != EXPORT and (embedded or others):
        outputs = {EXPORT: Output({"": _action(embedded or others)}), **outputs}
    if samples:
        outputs = {INPUTS: Output({"": _action(samples)}), **outputs}
    return StageResults(
        engine=manifest["engine"]["name"],
        tools=manifest["engine"]["tools"],
        plan=BuildPlan(
            source=manifest["source"],
            stages=[StageSpec(last, {}, (), (), per_component=apart)],
            notices=manifest["notices"][len(cell.policy.notices) :],
        ),
        tasks=(),
        outputs=outputs,
        components=components,
        origin=manifest,
    )


def _samples(files: tuple[FileEntry, ...]) -> tuple[FileEntry, ...]:
    """The samples of a package, named as the stage `inputs` has named them."""
    found = []
    for file in within(files, SAMPLES):
        component, slash, name = file.path.rpartition("/")
        if not is_reference(f"{SAMPLES}/{file.path}"):
            found.append(replace(file, path=f"{component}{slash}{JUDGE}/{name}"))
    return tuple(found)


def _action(files: tuple[FileEntry, ...]) -> Action:
    return Action("", {}, files, {}, {}, 0.0, 0)


def files_of_stage(store: Store, manifest: Mapping[str, Any], stage: str) -> tuple[FileEntry, ...]:
    """What a stage of the package has written, if this machine's store has it."""
    found: list[FileEntry] = []
    for one in manifest.get("stages", ()):
        if one["stage"] == stage:
            action = store.lookup(one.get("key", ""))
            if action is None:
                return ()
            head = f"{one['component']}/" if one.get("component") else ""
            found += [replace(file, path=f"{head}{file.path}") for file in action.files]
    return tuple(found)


def _take_in(store: Store, cell: Cell, key: str, fetch: Fetch) -> Action:
    with store.scratch.borrow("fetched") as folder:
        fetch(cell, folder)
        package = folder / PACKAGE
        try:
            manifest = checked_manifest(read_json(package / MANIFEST))
            record = checked_record(read_json(package / BUILD_RECORD))
        except (OSError, ValueError) as error:
            raise _unfit(cell, f"it has no {MANIFEST} or {BUILD_RECORD}: {error}") from error
        for name in RUN_RECORDS:
            remove(package / name)
        for name in (*RUN_RECORDS, MANIFEST):
            remove(folder / EXPORT / name)
        kept = {name: record.get(name, {}) for name in ("rules", "reference")}
        facts = {"manifest": manifest, "record": kept}
        parts = {"package": cell.origin.tree if cell.origin else ""}
        subject = f"{cell.model.id} {FETCH}"
        return store.ingest(folder, Action(key, parts, (), facts, {}, 0.0, 0, subject))


def _unfit(cell: Cell, why: str) -> BuildFailed:
    version = cell.origin.version if cell.origin else ""
    what = f"{cell.package} {version}".rstrip()
    return BuildFailed(FailureClass.UNKNOWN, FETCH, f"{what} cannot be compiled: {why}")
