"""The manifest of a package, and assembling its folder.

The manifest `modelmill.json` depends on the inputs alone; `build.json` may differ from run to run.
The tree digest of a package covers the manifest and not `build.json`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from matrix.digest import BUILD_RECORD, MANIFEST, RUN_RECORDS, FileEntry, tree_digest
from matrix.model import Cell, Model
from matrix.status import FailureClass
from workers.build.built import PackageFile
from workers.build.graph import EXPORT, StageTask, Walked
from workers.compile.group import STAGE as COMPILE
from workers.compile.stage import portable_stage
from workers.engine import BuildPlan
from workers.errors import BuildFailed
from workers.store import Action, Store

SCHEMA = 1
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PackageContent:
    """The content of a package before it is assembled."""

    files: tuple[FileEntry, ...]
    manifest: Json
    data: bytes
    """The manifest as it is written."""

    @property
    def tree(self) -> str:
        """The identity of the package."""
        return tree_digest([*self.files, entry_of(MANIFEST, self.data)])


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the content of packages for an engine with its tools."""

    engine: str
    tools: Mapping[str, str]

    def cell(
        self, cell: Cell, plan: BuildPlan, walked: Walked, *, self_contained: bool
    ) -> PackageContent:
        """The package of a cell."""
        files = walked.package
        if not files:
            text = f"engine {self.engine} made no files"
            raise BuildFailed(FailureClass.UNKNOWN, "package", text)
        if self_contained and EXPORT in walked.outputs:
            exported = walked.outputs[EXPORT].files
            files += tuple(replace(file, path=f"{EXPORT}/{file.path}") for file in exported)
        export = self.export(cell.model, plan, walked).tree if EXPORT in walked.outputs else None
        subject = {**_cell_subject(cell, plan), "export": {"tree": export}}
        if cell.profile is not None:
            subject["profile"] = asdict(cell.profile)
            subject["portable"] = {"tree": self._portable(cell, plan, walked, self_contained)}
        return _seal({**subject, **self._origin(plan, walked)}, files)

    def _portable(self, cell: Cell, plan: BuildPlan, walked: Walked, self_contained: bool) -> str:
        """The tree digest of the portable package that a compiled one is made from."""
        label = f"+{cell.profile.label}" if cell.profile else ""
        portable = replace(cell, id=cell.id.removesuffix(label), profile=None)
        before = replace(plan, stages=[one for one in plan.stages if one.name != COMPILE])
        until = walked.up_to(portable_stage(before).name)
        return self.cell(portable, before, until, self_contained=self_contained).tree

    def export(self, model: Model, plan: BuildPlan, walked: Walked) -> PackageContent:
        """The package of the export of a walk."""
        if EXPORT not in walked.outputs:
            text = f"engine {self.engine} exports nothing of its own for {model.name}"
            raise BuildFailed(FailureClass.UNSUPPORTED, EXPORT, text)
        walked = walked.up_to(EXPORT)
        subject = {"kind": EXPORT, "model": _model(model)}
        return _seal({**subject, **self._origin(plan, walked)}, walked.outputs[EXPORT].files)

    def _origin(self, plan: BuildPlan, walked: Walked) -> Json:
        used = {name for task, _action in walked.tasks for name in task.spec.tools}
        return {
            "source": dict(plan.source),
            "engine": {
                "name": self.engine,
                "tools": {name: self.tools[name] for name in sorted(used)},
            },
            "stages": [_stage(task, action) for task, action in walked.tasks],
            "components": list(walked.components),
        }


def _stage(task: StageTask, action: Action) -> Json:
    return {
        "stage": task.spec.name,
        "component": task.component,
        "key": task.key.key,
        "params": dict(task.spec.params),
        "inputs": task.key.parts["inputs"],
        "tree": action.tree,
        "facts": dict(action.facts),
    }


def _cell_subject(cell: Cell, plan: BuildPlan) -> Json:
    """The cell and its effective policy, without the stamp."""
    hidden = {"default", "notices"}
    policy = {name: value for name, value in asdict(cell.policy).items() if name not in hidden}
    target = cell.target
    return {
        "kind": "cell",
        "cell": cell.id,
        "model": _model(cell.model),
        "target": {
            "label": target.label,
            "ep": target.ep,
            "device": target.device,
            "provider": target.provider,
        },
        "policy": policy,
        "notices": [*cell.policy.notices, *plan.notices],
    }


def _model(model: Model) -> Json:
    return {"id": model.id, "task": model.task, "model_type": model.model_type}


def _seal(manifest: Json, files: Sequence[FileEntry]) -> PackageContent:
    for reserved in sorted({MANIFEST, *RUN_RECORDS}):
        if any(file.path == reserved for file in files):
            text = f"a stage made a file {reserved}, which is ours"
            raise BuildFailed(FailureClass.UNKNOWN, "package", text)
    ordered = tuple(sorted(files, key=lambda file: file.path))
    data = json_bytes({"schema": SCHEMA, **manifest, "files": [asdict(file) for file in ordered]})
    return PackageContent(ordered, json.loads(data), data)


def assemble(
    store: Store, folder: Path, content: PackageContent, record: Json
) -> list[PackageFile]:
    """Link the files of a package into its folder, add the records. Raises `CorruptBlob`."""
    store.materialize(content.files, folder)
    return [
        *(PackageFile(file, folder / file.path) for file in content.files),
        write_record(folder, MANIFEST, content.data),
        write_record(folder, BUILD_RECORD, compact_bytes(record)),
    ]


def write_record(folder: Path, name: str, data: bytes) -> PackageFile:
    """Write the manifest or a record of the run."""
    path = folder / name
    path.write_bytes(data)
    return PackageFile(entry_of(name, data), path)


def entry_of(path: str, data: bytes) -> FileEntry:
    """The entry of bytes in memory."""
    return FileEntry(path, len(data), hashlib.sha256(data).hexdigest())


def compact_bytes(value: Json) -> bytes:
    """JSON for records that few people read: indenting takes ten times as long."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def json_bytes(value: Json) -> bytes:
    """Readable, sorted JSON: equal values give equal bytes."""
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"
