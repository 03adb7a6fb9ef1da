"""The manifest of a package, its samples, the record of its build, and assembling its folder.

The manifest `modelmill.json` depends on the inputs alone; `build.json` may differ from run to run.
The tree digest of a package covers the manifest and not `build.json`.

As many judged samples travel in a package as are small beside it. The stage `inputs` writes them
one by one, `judge/NN.npz` below the folder of a component; in the package they are
`samples/NN.npz`. The verdict is given on exactly those.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from matrix.digest import (
    BUILD_RECORD,
    MANIFEST,
    SAMPLES,
    FileEntry,
    LocalFile,
    is_run_record,
    tree_digest,
)
from matrix.model import Cell, Model
from matrix.status import FailureClass
from workers.build.built import StageRun
from workers.build.graph import EXPORT, INPUTS, StageResults, StageTask
from workers.build.request import target_json
from workers.compile.stage import portable_stage
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


def cell_content(cell: Cell, results: StageResults, *, self_contained: bool) -> PackageContent:
    """The package of a cell."""
    files = results.package
    if not files:
        text = f"engine {results.engine} made no files"
        raise BuildFailed(FailureClass.UNKNOWN, "package", text)
    if self_contained and EXPORT in results.outputs:
        exported = results.outputs[EXPORT].files
        files += tuple(replace(file, path=f"{EXPORT}/{file.path}") for file in exported)
    files += _samples(results, compiled=cell.profile is not None)
    policy = asdict(cell.policy)
    del policy["default"], policy["notices"]
    subject: Json = {
        "kind": "cell",
        "cell": cell.id,
        "model": _model(cell.model),
        "target": target_json(cell.target),
        "policy": policy,
        "notices": [*cell.policy.notices, *results.plan.notices],
        "export": {"tree": _export_tree(cell.model, results)},
        "samples": {"trained": cell.model.trained, "accepted": dict(cell.model.samples)},
    }
    if results.members:
        subject |= {
            "profile": asdict(cell.profile) if cell.profile else None,
            "members": [
                _member(name, one, of, self_contained=self_contained)
                for name, (one, of) in results.members.items()
            ],
            "left_out": sorted(results.left_out),
        }
    elif cell.profile is not None:
        if cell.origin is not None:
            portable = cell.origin.tree
        else:
            until = results.up_to(portable_stage(results.plan).name)
            portable = cell_content(cell.portable, until, self_contained=self_contained).tree
        subject |= {"profile": asdict(cell.profile), "portable": {"tree": portable}}
    if results.origin is not None:
        subject["export"] = results.origin["export"]
    return _seal(subject, results, files)


def _samples(results: StageResults, *, compiled: bool) -> tuple[FileEntry, ...]:
    """The judged samples: of a compiled cell, those of the portable packages that it holds."""
    if results.members:
        members = (
            (name, _samples(of, compiled=False)) for name, (_, of) in results.members.items()
        )
        return tuple(
            replace(file, path=f"{SAMPLES}/{name}/{file.path.removeprefix(f'{SAMPLES}/')}")
            for name, files in members
            for file in files
        )
    if compiled:
        results = results.up_to(portable_stage(results.plan).name)
    size = sum(file.size for file in results.package)
    return packaged(results.files_of(INPUTS), size)


def _member(name: str, cell: Cell, results: StageResults, *, self_contained: bool) -> Json:
    """A portable package whose graph is in the context of a group."""
    return {
        "name": name,
        "cell": cell.id,
        "portable": {"tree": cell_content(cell, results, self_contained=self_contained).tree},
        "export": {"tree": _export_tree(cell.model, results)},
    }


def _export_tree(model: Model, results: StageResults) -> str | None:
    if EXPORT not in results.outputs or results.members or results.origin is not None:
        return None
    return export_content(model, results).tree


def export_content(model: Model, results: StageResults) -> PackageContent:
    """The package of the export."""
    if EXPORT not in results.outputs:
        text = f"engine {results.engine} exports nothing of its own for {model.name}"
        raise BuildFailed(FailureClass.UNSUPPORTED, EXPORT, text)
    results = results.up_to(EXPORT)
    subject = {"kind": EXPORT, "model": _model(model)}
    return _seal(subject, results, results.outputs[EXPORT].files)


def _stage(task: StageTask, action: Action) -> Json:
    return {
        "stage": task.spec.name,
        "component": task.component,
        "key": task.key,
        "params": dict(task.spec.params),
        "inputs": task.parts["inputs"],
        "tree": action.tree,
        "facts": dict(action.facts),
    }


def _model(model: Model) -> Json:
    built = {"exported_as": model.exported_as} if model.exported_as else {}
    return {"id": model.id, "task": model.task, "model_type": model.model_type, **built}


def _seal(subject: Json, results: StageResults, files: Sequence[FileEntry]) -> PackageContent:
    for path in sorted(file.path for file in files):
        if path == MANIFEST or is_run_record(path):
            text = f"a stage made a file {path}, which is ours"
            raise BuildFailed(FailureClass.UNKNOWN, "package", text)
    before = results.origin["stages"] if results.origin else ()
    used = {name for task, _action in results.tasks for name in task.spec.tools}
    if results.origin:
        used.update(results.tools)
    ordered = tuple(sorted(files, key=lambda file: file.path))
    manifest = {
        "schema": SCHEMA,
        **subject,
        "source": dict(results.plan.source),
        "engine": {
            "name": results.engine,
            "tools": {name: results.tools[name] for name in sorted(used)},
        },
        "stages": [*before, *(_stage(task, action) for task, action in results.tasks)],
        "components": list(results.components),
        "files": [asdict(file) for file in ordered],
    }
    text = json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    data = text.encode() + b"\n"
    return PackageContent(ordered, json.loads(data), data)


def build_record(
    stamp: str,
    version: str,
    results: StageResults,
    runs: Sequence[StageRun],
    *,
    started: datetime,
    seconds: float,
    attempt: int,
) -> Json:
    """How a package was built, before verification adds its evidence."""
    infos = {task.key: action.info for task, action in results.tasks}
    sharing = next((info["sharing"] for info in infos.values() if "sharing" in info), None)
    return {
        "stamp": stamp,
        "version": version,
        "host": {
            "name": platform.node(),
            "system": platform.system(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "attempt": attempt,
        "tools": dict(results.tools),
        **({"left_out": dict(results.left_out)} if results.left_out else {}),
        **({"sharing": sharing} if sharing else {}),
        "stages": [
            {
                "stage": run.stage,
                "component": run.component,
                "reused": run.reused,
                "seconds": round(run.seconds, 3),
                "bytes": run.bytes,
                "peak_memory": run.peak_memory,
                "info": dict(infos[run.key]),
            }
            for run in runs
            if run.key in infos  # not of a member that failed and was left out
        ],
        "verification": [],
        "runtimes": [],
    }


def assemble(
    store: Store,
    folder: Path,
    content: PackageContent,
    record: Json,
    references: Sequence[FileEntry] = (),
) -> list[LocalFile]:
    """Link the files of a package into its folder, add the records. Raises `CorruptBlob`.

    `references`: outputs of the reference that come with the package it is made of."""
    files = (*content.files, *references)
    store.materialize(files, folder)
    return [
        *(LocalFile(file, folder / file.path) for file in files),
        write_record(folder, MANIFEST, content.data),
        write_record(folder, BUILD_RECORD, compact_bytes(record)),
    ]


def write_record(folder: Path, name: str, data: bytes) -> LocalFile:
    """Write the manifest or a record of the run."""
    path = folder / name
    path.write_bytes(data)
    return LocalFile(entry_of(name, data), path)


def entry_of(path: str, data: bytes) -> FileEntry:
    """The entry of bytes in memory."""
    return FileEntry(path, len(data), hashlib.sha256(data).hexdigest())


def compact_bytes(value: Json) -> bytes:
    """JSON for records that few people read: indenting takes ten times as long."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


LEAST_BYTES = 5_000_000
SHARE = 0.05
"""Of the bytes of the package, if that is more than `LEAST_BYTES`: samples and the outputs of the
reference together."""
FOR_OUTPUTS = 0.25
"""The share of that for the outputs."""
LEAST = 2
"""Samples that are there however large they are: with one, nothing could vary."""
JUDGE = "judge"
_JUDGED = re.compile(rf"(?:(?P<component>.+)/)?{JUDGE}/(?P<number>\d+)\.npz")


def most_bytes(package: int) -> int:
    """For the samples of a package of so many bytes, with the outputs of the reference."""
    return max(LEAST_BYTES, int(package * SHARE))


def packaged(inputs: Iterable[FileEntry], package: int) -> tuple[FileEntry, ...]:
    """Of the files of the stage `inputs`, those of the first samples that fit, by their names in a
    package whose other files have so many bytes. A sample counts with all its components."""
    found: dict[str, list[FileEntry]] = {}
    for file in inputs:
        if match := _JUDGED.fullmatch(file.path):
            component = f"{match['component']}/" if match["component"] else ""
            path = f"{SAMPLES}/{component}{match['number']}.npz"
            found.setdefault(match["number"], []).append(replace(file, path=path))
    left = most_bytes(package) * (1 - FOR_OUTPUTS)
    taken: list[FileEntry] = []
    for place, (_, files) in enumerate(sorted(found.items())):
        left -= sum(file.size for file in files)
        if left < 0 and place >= LEAST:
            break
        taken += files
    return tuple(taken)
