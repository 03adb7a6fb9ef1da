"""The subject of a verification: a package folder, its claim, its export and its input values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file
from machine.scratch import Scratch
from matrix.digest import (
    BUILD_RECORD,
    ENDS,
    MANIFEST,
    SAMPLES,
    FileEntry,
    files_digest,
    is_reference,
    tree_digest,
)
from matrix.status import FailureClass
from workers import composition
from workers.build.built import Built
from workers.build.claim import Claim
from workers.composition import Composition, plain, split
from workers.errors import BuildFailed
from workers.sources.links import leads_out
from workers.store import Store

Place = Callable[[Path], None]
"""Puts files into a folder."""


@dataclass(frozen=True, slots=True)
class Part:
    """The export or the input values: identified by digest, placed only if something has to run."""

    tree: str
    place: Place
    size: int = 0

    @classmethod
    def stored(cls, store: Store, files: Sequence[FileEntry]) -> Part | None:
        """A part from files of the store."""
        if not files:
            return None
        size = sum(file.size for file in files)
        return cls(files_digest(files), lambda dest: store.materialize(files, dest), size)


@dataclass(frozen=True, slots=True)
class Subject:
    """A package to verify."""

    claim: Claim
    folder: Path
    files: tuple[FileEntry, ...]
    store: Store
    manifest: Mapping[str, Any] = field(default_factory=dict)
    export: Part | None = None
    inputs: Part | None = None
    portable: Part | None = None
    """Of a compiled cell: the models that were compiled."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """What the build record says of the reference in the package."""
    named_export: bool = False
    """A user has named the export: it is compared with, and not the reference in the package."""
    building: bool = False
    """The package is being built: what is made for it belongs into its folder."""
    afresh: bool = False
    """Hash the files of the folder, because nothing else has."""

    @classmethod
    def of(cls, built: Built) -> Subject:
        """A package that was just built."""
        if built.claim is None:
            text = f"{built.cell_id} is an export: only cells are verified"
            raise BuildFailed(FailureClass.VERIFY, "verify", text)
        return cls(
            claim=built.claim,
            folder=built.folder,
            files=tuple(file.entry for file in built.files),
            store=built.store,
            manifest=built.manifest,
            export=Part.stored(built.store, built.export),
            inputs=Part.stored(built.store, built.inputs),
            portable=Part.stored(built.store, built.portable),
            reference=built.build_record.get("reference", {}),
            building=True,
        )

    @property
    def content(self) -> str:
        """The digest of the checked files: equal for equal artifacts of different targets."""
        records = {MANIFEST, BUILD_RECORD}
        return tree_digest(file for file in self.files if file.path not in records)

    @property
    def composition(self) -> Composition:
        """The package's record; if there is no usable one, every model is judged separately."""
        with suppress(ValueError):
            if record := self._record():
                return record
        return plain(self._model_files())

    @property
    def models(self) -> list[str]:
        """The model files, in an order in which they can run."""
        found = self._model_files()
        order = [one.model for one in self.composition.components]
        return sorted(found, key=lambda path: order.index(path) if path in order else len(order))

    @property
    def scratch(self) -> Scratch:
        """Where working folders go."""
        return self.store.scratch

    def file_problems(self) -> list[str]:
        """Missing files and wrong sizes; digests are compared wherever files are copied."""
        problems = []
        for file in self.files:
            if file.path == BUILD_RECORD:
                continue
            path = self.folder / file.path
            if not path.is_file():
                problems.append(f"{file.path} is missing")
            elif path.stat().st_size != file.size:
                size = path.stat().st_size
                problems.append(f"{file.path} has {size} bytes instead of {file.size}")
            elif self.afresh and hash_file(path)[0] != file.sha256:
                problems.append(f"{file.path} differs from its digest in {MANIFEST}")
        return [*problems, *self._record_problems()]

    def _record(self) -> Composition | None:
        known = any(file.path == composition.FILE for file in self.files)
        return composition.read(self.folder) if known else None

    def _record_problems(self) -> Iterator[str]:
        try:
            record = self._record()
        except ValueError as error:
            yield str(error)
            return
        if record is None:
            return
        named, found = {one.model for one in record.components}, set(self._model_files())
        for path in sorted(named ^ found):
            what = "names" if path in named else "does not name"
            where = "the package does not have" if path in named else "the package has"
            yield f"{composition.FILE} {what} {path}, which {where}"

    def _model_files(self) -> list[str]:
        return sorted(
            file.path
            for file in self.files
            if file.path.endswith(".onnx") and not file.path.startswith("export/")
        )

    @property
    def shares_context(self) -> bool:
        """Whether one compiled context holds several of its models."""
        return len(self._origins()) > 1

    def origin(self, model: str) -> str:
        """Where a model is in the portable package."""
        return self._origins().get(model, model)

    def exported(self, model: str) -> str:
        """Where a model is in the export."""
        origin = self.origin(model)
        return self._origins("share").get(origin, origin)

    def _origins(self, name: str = "compile") -> dict[str, str]:
        """Of models that a stage puts elsewhere, because they share a context or their weights."""
        graphs = [
            one for stage in self._stages(name) for one in stage.get("facts", {}).get("graphs", ())
        ]
        found = {str(one["model"]): str(one["origin"]) for one in graphs}
        return {name: path for name, path in found.items() if not leads_out(path)}

    def blocked_passes(self) -> tuple[str, ...] | None:
        """The passes that the manifest lists as blocked; None: it has no such stage."""
        params = [one.get("params", {}) for one in self._stages("optimize")]
        if not params:
            return None
        return tuple(name for one in params for name in one.get("blocked_passes", ()))

    def samples(self) -> dict[str, list[str]]:
        """The samples that it is judged on, by component, in order."""
        found: dict[str, list[str]] = {}
        for path in sorted(file.path for file in self.files):
            if path.startswith(f"{SAMPLES}/") and not is_reference(path):
                component = path.rpartition("/")[0].removeprefix(SAMPLES).removeprefix("/")
                found.setdefault(component, []).append(path)
        return found

    def sample_files(self, component: str) -> list[str]:
        """Those of a component, where they are."""
        return [str((self.folder / path).absolute()) for path in self.samples().get(component, ())]

    def sampled(self) -> list[Mapping[str, Any]]:
        """What the stages that made samples say of them: kind, origin and the size of the parts."""
        facts = (one.get("facts", {}) for one in self._stages("inputs"))
        found = (one.get("samples") for one in facts)
        return [one for one in found if isinstance(one, Mapping)]

    def linked(self, component: str, outputs: Path) -> dict[str, Any] | None:
        """The outputs in a folder that feed a component, end to end; None: nothing feeds it.

        The steps of a loop are fed when the whole generates."""
        loop = self.composition.loop
        if loop is not None and component == loop.step:
            return None
        inputs = {}
        for link in self.composition.into(component):
            giver, output = split(link.output)
            end = outputs / f"{giver}{ENDS}"
            file = end if end.is_file() else outputs / f"{giver}.npz"
            if not file.is_file():
                return None
            inputs[split(link.input)[1]] = {"file": str(file), "output": output}
        return (inputs and {"inputs": inputs, "save": str(outputs / f"{component}{ENDS}")}) or None

    def shapes(self) -> dict[str, dict[str, list[int]]]:
        """The shapes of the input values by component, from the manifest."""
        return {
            component: {name: port["shape"] for name, port in ports.items()}
            for component, ports in self.calibrated().items()
        }

    def calibrated(self) -> dict[str, dict[str, Any]]:
        """By component and input, what the manifest says of the samples for calibration."""
        found = {}
        for one in self._stages("inputs"):
            for name, ports in one.get("facts", {}).get("inputs", {}).items():
                found[one.get("component", "") if name == "." else name] = ports
        return found

    def _stages(self, name: str) -> list[Mapping[str, Any]]:
        """What the manifest says of the runs of a stage."""
        return [one for one in self.manifest.get("stages", ()) if one.get("stage") == name]
