"""What a package is judged by: the outputs of its export for the samples in the package.

At the build, the export runs once for all packages of a model, and what is kept of its outputs goes
into the package, beside the samples: later the package is judged anywhere without its export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file, remove_tree
from matrix.digest import (
    ENDS,
    OUTPUTS,
    SAMPLES,
    FileEntry,
    files_digest,
    is_reference,
    value_digest,
)
from workers import code, generation
from workers.build.package import FOR_OUTPUTS, most_bytes
from workers.errors import CorruptBlob
from workers.host.watch import Watching
from workers.runtimes.pool import STAGE, Runtimes
from workers.store import Action
from workers.verify.ladder.subject import Subject

Json = dict[str, Any]
GENERATED = f"{SAMPLES}/generation{OUTPUTS}"
SETS = 3
"""Seeded inputs on which a package without samples is opened and run."""
CODE = ("workers.runtimes.service", "workers.verify.ladder.reference")
"""A change of these modules, or of what they import, is another reference."""


@dataclass(slots=True)
class Reference:
    """The outputs in files, and what a record says about them."""

    root: Path
    """The folder with the files, under their names in the package."""
    files: tuple[FileEntry, ...]
    components: Json
    """By component: inputs and outputs as the export declares them, and what came out."""
    generated: Json = field(default_factory=dict)
    """Of a decoder: PyTorch's tokens and the export's."""
    fresh: bool = False
    """It was made now, and belongs into the package."""

    @property
    def digest(self) -> str:
        """Of its files."""
        return files_digest(self.files)

    def outputs(self, samples: list[str], end: str = OUTPUTS) -> list[str]:
        """The files for these samples; none unless there is one for each."""
        known = {file.path for file in self.files}
        names = [name.removesuffix(".npz") + end for name in samples]
        there = bool(names) and known.issuperset(names)
        return [str((self.root / name).absolute()) for name in names] if there else []

    def to_json(self) -> Json:
        """For the build record."""
        return {
            "components": self.components,
            "generated": self.generated,
            "files": [asdict(file) for file in self.files],
        }


def stored(subject: Subject) -> Reference | None:
    """The reference that a package has; None: it lacks it, or some of it."""
    record = subject.reference
    files = tuple(FileEntry(**one) for one in record.get("files", ()))
    found = Reference(
        subject.folder, files, record.get("components", {}), record.get("generated", {})
    )
    samples = subject.samples()
    whole = samples and all(found.outputs(names) for names in samples.values())
    return found if whole and samples.keys() <= found.components.keys() else None


@dataclass(slots=True)
class Exported:
    """The export as it ran last, with all its outputs."""

    key: str = ""
    folder: Path | None = None
    answers: Json = field(default_factory=dict)
    """By component."""

    def drop(self) -> None:
        """Remove the outputs."""
        if self.folder is not None:
            remove_tree(self.folder)
        self.key, self.folder, self.answers = "", None, {}


@dataclass(slots=True)
class ReferenceRun:
    """Runs the export of a package on ONNX Runtime's CPU."""

    runtimes: Runtimes
    exported: Exported
    subject: Subject
    watching: Watching

    def made(self, root: Path) -> Reference | str:
        """The reference in a folder, from the store if it is there; a text: why it cannot be made.

        A package without samples gets what its export declares, and no files.
        """
        subject, store = self.subject, self.subject.store
        assert subject.export is not None, "the caller knows that there is an export"
        prompt = subject.folder / generation.FILE
        parts = {
            "code": code.digest(*CODE),
            "export": subject.export.tree,
            "samples": self._samples(),
            "composition": asdict(subject.composition),
            "prompt": hash_file(prompt)[0] if prompt.is_file() else "",
            "task": subject.claim.task,
            "most": int(self._most()),
            "cpu": self.runtimes.cpu().to_json(),
        }
        key = value_digest(parts)
        action = store.lookup(key)
        if action is not None:
            try:
                store.materialize(action.files, root)
            except CorruptBlob:  # they are made again
                store.distrust(action.files)
                remove_tree(root)
                action = None
        if action is None:
            with store.scratch.borrow("kept") as folder:
                facts = self._run(folder)
                if isinstance(facts, str):
                    return facts
                title = f"{subject.claim.cell} reference"
                # Equal bytes may be there and have gone bad: those are dropped, for ours.
                store.distrust(
                    FileEntry(path.name, size, sha256)
                    for path in sorted(folder.rglob("*"))
                    if path.is_file()
                    for sha256, size in [hash_file(path)]
                )
                action = store.ingest(folder, Action(key, parts, (), facts, {}, 0.0, 0, title))
            store.materialize(action.files, root)
        told = action.facts
        return Reference(root, action.files, told["components"], told["generated"], fresh=True)

    def _run(self, folder: Path) -> Json | str:
        """Write the files; what the record says, or why there is nothing."""
        subject = self.subject
        files = {one.name: subject.exported(one.model) for one in subject.composition.components}
        assert subject.export is not None, "see above"
        with subject.scratch.borrow("export") as export:
            subject.export.place(export)
            places = {name: export / file for name, file in files.items()}
            for name, place in places.items():
                if not place.is_file():
                    return f"the export has no {files[name]}"
            answers = self._answers(places)
            for name, answer in answers.items():
                if answer.get("error"):
                    return f"the export: {f'{name}: ' if name else ''}{answer['error']}"
            self._keep(answers, folder)
            generated = self._generated(places, answers, folder)
        ports = ("inputs", "outputs", "seen")
        told = {name: {key: one[key] for key in ports} for name, one in answers.items()}
        return {"components": told, "generated": generated}

    def _samples(self) -> str:
        """The digest of the samples of the package."""
        head = f"{SAMPLES}/"
        files = self.subject.files
        return files_digest(
            one for one in files if one.path.startswith(head) and not is_reference(one.path)
        )

    def _answers(self, places: Mapping[str, Path]) -> Json:
        """Of every component, run on its samples, unless it ran on them for the package before."""
        subject, last = self.subject, self.exported
        assert subject.export is not None, "see above"
        basis = {"export": subject.export.tree, "samples": self._samples()}
        key = value_digest(basis | {"composition": asdict(subject.composition)})
        if last.key == key and last.folder is not None and last.folder.is_dir():
            return last.answers
        last.drop()
        last.folder = subject.scratch.new_folder("reference")
        cpu, given = self.runtimes.cpu(), subject.samples()
        for name, place in places.items():
            args: Json = {
                "file": str(place.absolute()),
                "component": name,
                "samples": subject.sample_files(name),
                "sets": SETS,
                "save": str(last.folder / saved(name)) if given.get(name) else None,
                "linked": subject.linked(name, last.folder),
            }
            last.answers[name] = self.runtimes.measure(cpu, args, self.watching)
        last.key = key if not any(one.get("error") for one in last.answers.values()) else ""
        return last.answers

    def _keep(self, answers: Json, root: Path) -> None:
        """Write what is kept of the outputs."""
        folder, subject = self.exported.folder, self.subject
        assert folder is not None, "the export has run"
        given = subject.samples()
        sides = [
            (name, end, folder / saved(name, end=end == ENDS))
            for name in given
            for end in (OUTPUTS, ENDS)
        ]
        sides = [side for side in sides if side[2].is_file()]
        count = sum(len(given[name]) for name, _, _ in sides) + (
            subject.composition.loop is not None
        )
        for name, end, file in sides:
            paths = [path.removesuffix(".npz") + end for path in given[name]]
            args = {
                "saved": str(file),
                "samples": subject.sample_files(name),
                "to": [str((root / path).absolute()) for path in paths],
                "most": self._most() / count,
                "agree": subject.claim.task,
                "inputs": answers[name]["inputs"],
                "outputs": answers[name]["outputs"],
            }
            self.runtimes.checker.call("keep", args, self.watching, stage=STAGE)

    def _most(self) -> float:
        """The bytes of all kept outputs; the portable package decides for a compiled one."""
        subject = self.subject
        size = sum(file.size for file in subject.files if not file.path.startswith(f"{SAMPLES}/"))
        return most_bytes(subject.portable.size if subject.portable else size) * FOR_OUTPUTS

    def _generated(self, places: Mapping[str, Path], answers: Json, root: Path) -> Json:
        """What a decoder generates; empty if it is none."""
        args = generation_arguments(self.subject, places, answers)
        if not args or "error" in args:
            return args
        count = sum(map(len, self.subject.samples().values())) + 1
        more = {"save": str((root / GENERATED).absolute()), "most": self._most() / count}
        return self.runtimes.run(self.runtimes.cpu(), "generate", args | more, self.watching)


def generation_arguments(subject: Subject, places: Mapping[str, Path], ports: Json) -> Json:
    """What `generate` takes; `ports`: by component, those of the export. Empty: no decoder."""
    record = subject.composition
    if record.loop is None:
        return {}
    prompt = subject.folder / generation.FILE
    if not prompt.is_file():
        return {"error": f"the package has no {generation.FILE}"}
    return {
        "record": asdict(record),
        "prompt": str(prompt.absolute()),
        "files": {name: str(file.absolute()) for name, file in places.items()},
        "outputs": {name: [port[0] for port in ports[name]["outputs"]] for name in places},
    }


def saved(component: str, *, end: bool = False) -> str:
    """The file for all outputs of a component: on its own samples, or end to end."""
    return f"{component}.end.npz" if end else f"{component}.npz"
