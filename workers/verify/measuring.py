"""Runs a package and its export on runtimes: once for equal bytes, and one model at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file, remove_tree
from matrix.digest import value_digest
from workers import generation
from workers.compile.check import SHARED
from workers.compile.devices import runtime_for
from workers.composition import split
from workers.host.watch import Watching
from workers.runtimes.pool import STAGE, Runtimes
from workers.runtimes.runtime import Missing, Runtime
from workers.runtimes.values import SETS
from workers.samples import files
from workers.store import Store
from workers.verify.ladder.claim import Claim
from workers.verify.ladder.observed import Observed, RuntimeRun
from workers.verify.subject import Subject

MEASURED = "measured"
"""The kind of note that keeps measurements."""
VERSION = 5
"""Raised when measuring changes, so that older notes no longer count."""

Json = dict[str, Any]


@dataclass(slots=True)
class Notes:
    """Earlier results for equal bytes; new results are kept if the package passes."""

    store: Store
    fresh: list[tuple[str, str, Json]] = field(default_factory=list)

    def find(
        self,
        kind: str,
        basis: Json,
        examine: Callable[[], Json],
        whole: Callable[[Json], bool] = lambda _found: True,
    ) -> Json:
        """The note of a basis, else the result of examining; `whole`: whether it may be kept."""
        key = value_digest(basis)
        if note := self.store.notes.read(kind, key):
            return dict(note)
        found = examine()
        if whole(found):
            self.fresh.append((kind, key, found))
        return found

    def keep(self) -> None:
        """Write the new results."""
        for kind, key, found in self.fresh:
            self.store.notes.write(kind, key, found)


@dataclass(slots=True)
class Reference:
    """The answers and outputs of the export measured last."""

    key: str = ""
    folder: Path | None = None
    answers: Json = field(default_factory=dict)
    generated: Json = field(default_factory=dict)

    def drop(self) -> None:
        """Remove the outputs."""
        if self.folder is not None:
            remove_tree(self.folder)
        self.key, self.folder, self.answers, self.generated = "", None, {}, {}


@dataclass
class Measuring:
    """The measurements of one package, on all runtimes that apply to it."""

    runtimes: Runtimes
    kept: Reference
    """Of the package before, until this one needs another."""
    subject: Subject
    watching: Watching
    notes: Notes
    with_task: bool

    def measure(self, observed: Observed) -> None:
        """Add the answers of the runtimes to `observed`."""
        subject, cpu = self.subject, self._cpu
        own, profile = self._own(subject.claim), subject.claim.profile
        if profile is not None and (why := _not_opened(own, subject)):
            observed.stopped = f"only its own provider opens a compiled model: {why}"
            observed.missing.append(Missing(own.provider, own.device, why))
            return
        if subject.export is None:
            observed.no_reference = "the export is not available (give it with --export)"
        else:
            observed.reference = self.reference()
            missing = [name for name in subject.models if name not in observed.reference]
            broken = [one["error"] for one in observed.reference.values() if one.get("error")]
            if missing or broken:
                observed.no_reference = (
                    f"the export has no {missing[0]}" if missing else f"the export: {broken[0]}"
                )
        alone = bool(observed.no_reference)
        if profile is None:
            observed.runs.append(self.ran(cpu, own=own == cpu, alone=alone))
        if isinstance(own, Missing):
            observed.missing.append(own)
        elif own != cpu:
            observed.runs.append(self.ran(own, own=True, alone=alone))
            if profile is not None:
                observed.opening = self.opening(own)
        if self._inputs is not None:
            remove_tree(self._inputs)

    def _own(self, claim: Claim) -> Runtime | Missing:
        """The provider and device of the target, with the options of a compiled cell's profile."""
        if claim.profile is None:
            return self.runtimes.for_target(claim.target)
        return runtime_for(self.runtimes, claim.profile, claim.target, emulated=True)

    def __post_init__(self) -> None:
        subject, rules = self.subject, self.subject.claim.rules
        self._cpu = self.runtimes.cpu()
        self._record = subject.composition
        self._names = {one.model: one.name for one in self._record.components}
        self._inputs: Path | None = None
        self._extra = [rules.inputs] if rules.inputs else []
        task = rules.task if self.with_task else None
        self._task = {"dataset": task.dataset} if task else None
        self._basis = {
            "version": VERSION,
            "sets": SETS,
            "composition": asdict(self._record),
            "export": subject.export.tree if subject.export else None,
            "inputs": subject.inputs.tree if subject.inputs else subject.shapes(),
            "extra": [hash_file(Path(path))[0] for path in self._extra],
            "task": hash_file(Path(self._task["dataset"]))[0] if self._task else None,
            "cpu": self._cpu.to_json(),
        }
        self._reference_basis = {**self._basis, "models": subject.models}
        self._reference_key = value_digest(self._reference_basis)

    def reference(self) -> Json:
        """The export's answers on ONNX Runtime's CPU, without its outputs if they are noted."""
        if self.kept.key == self._reference_key:
            return self.kept.answers
        return self.notes.find(MEASURED, self._reference_basis, self._run_reference, _well)

    def _run_reference(self) -> Json:
        kept, subject = self.kept, self.subject
        kept.drop()
        folder = subject.scratch.new_folder("reference")
        kept.folder = folder
        with subject.scratch.borrow("export") as exported:
            if subject.export is not None:
                subject.export.place(exported)
            files = {name: exported / subject.exported(name) for name in subject.models}
            files = {name: file for name, file in files.items() if file.is_file()}
            kept.answers = {
                name: self._measure(self._cpu, file, name, folder, None)
                for name, file in files.items()
            }
            kept.generated = self._generated(self._cpu, files, save=folder / generation.FILE)
        kept.key = self._reference_key
        return kept.answers

    def ran(self, runtime: Runtime, *, own: bool, alone: bool) -> RuntimeRun:
        """The package on one runtime; `alone`: without a reference to compare it with."""
        on = {"content": self.subject.content, "on": runtime.to_json(), "alone": alone}
        found = self.notes.find(
            MEASURED,
            {**self._basis, **on},
            lambda: self._run(runtime, alone=alone),
            lambda found: _well(found["models"]),
        )
        return RuntimeRun(runtime, own, dict(found["models"]), found["joined"], found["generated"])

    def _run(self, runtime: Runtime, *, alone: bool) -> Json:
        subject = self.subject
        reference = None if alone else self._outputs()
        with subject.scratch.borrow("outputs") as folder:
            models = {
                name: self._measure(runtime, subject.folder / name, name, folder, reference)
                for name in subject.models
            }
            joined = {} if reference is None else self._joined(folder, reference)
            generated = self._compared(runtime, reference) if _well(models) else {}
        return {"models": models, "joined": joined, "generated": generated}

    def _compared(self, runtime: Runtime, reference: Path | None) -> Json:
        """What the package generates, beside the export's and PyTorch's."""
        files = {name: self.subject.folder / name for name in self.subject.models}
        if reference is None:
            return self._generated(runtime, files)
        exported = self.kept.generated
        if exported.get("error"):
            return {"export": exported}
        found = self._generated(runtime, files, reference=reference / generation.FILE)
        return {**found, "export": exported} if found else {}

    def _generated(self, runtime: Runtime, files: Mapping[str, Path], **more: Path) -> Json:
        """What models generate; empty if a model is no decoder."""
        if self._record.loop is None:
            return {}
        prompt = self.subject.folder / generation.FILE
        if not prompt.is_file():
            return {"error": f"the package has no {generation.FILE}"}
        known = self.kept.answers
        args: Json = {
            "record": asdict(self._record),
            "prompt": str(prompt.absolute()),
            "files": {self._names[name]: str(file.absolute()) for name, file in files.items()},
            "outputs": {
                self._names[name]: [port[0] for port in known.get(name, {}).get("outputs", ())]
                for name in files
            },
            **{name: str(path) for name, path in more.items()},
        }
        return self.runtimes.run(runtime, "generate", args, self.watching)

    def opening(self, runtime: Runtime) -> Json:
        """Seconds and memory to open each model, portable and then compiled, one after the other
        in the same process."""
        subject, portable = self.subject, self.subject.portable
        if portable is None:
            return {}
        basis = {"opening": VERSION, "portable": portable.tree, "on": runtime.to_json()}

        def examine() -> Json:
            with subject.scratch.borrow("portable") as folder:
                portable.place(folder)
                return {
                    name: {
                        "portable": self._opened(runtime, folder / subject.origin(name), name),
                        "compiled": self._opened(runtime, subject.folder / name, name),
                    }
                    for name in subject.models
                }

        return self.notes.find(MEASURED, {**basis, "content": subject.content}, examine)

    def _opened(self, runtime: Runtime, file: Path, name: str) -> Json:
        args = self._arguments(file, self._names.get(name, ""), sets=1)
        told = self.runtimes.measure(runtime, args, self.watching)
        if told.get("error"):
            return {"error": told["error"]}
        return {"seconds": told["open_seconds"], "memory": told["open_memory"]}

    def _outputs(self) -> Path:
        """The folder of the export's outputs."""
        kept = self.kept
        if kept.key != self._reference_key or kept.folder is None or not kept.folder.is_dir():
            self._run_reference()
        assert kept.folder is not None
        return kept.folder

    def _measure(
        self, runtime: Runtime, file: Path, name: str, save: Path, reference: Path | None
    ) -> Json:
        component = self._names.get(name, "")
        # Outputs are needed as a reference, or by another component.
        wanted = (reference is None and save == self.kept.folder) or bool(component)
        outputs = self.kept.answers.get(name, {}).get("outputs", ())
        args: Json = {
            **self._arguments(file, component, sets=SETS),
            "extra": self._extra,
            "outputs": [port[0] for port in outputs],
            "save": str(save / _saved(component)) if wanted else None,
            "reference": str(reference / _saved(component)) if reference else None,
            "task": self._task if runtime == self._cpu or self.subject.claim.profile else None,
            "linked": self._linked(component, save, reference),
        }
        return self.runtimes.measure(runtime, args, self.watching)

    def _arguments(self, file: Path, component: str, *, sets: int) -> Json:
        return {
            "file": str(file.absolute()),
            "component": component,
            "sets": sets,
            "inputs": self._input_files(component),
            "shapes": self.subject.shapes().get(component, {}),
        }

    def _linked(self, component: str, save: Path, reference: Path | None) -> Json | None:
        """The outputs that feed a component, end to end; None: nothing feeds it.

        The steps of a loop are fed when the whole generates."""
        loop = self._record.loop
        if loop is not None and component == loop.step:
            return None
        inputs = {}
        for link in self._record.into(component):
            giver, output = split(link.output)
            through = (reference or save) / _saved(giver, end=True)
            file = save / _saved(giver, end=through.is_file())
            if not file.is_file():
                return None
            inputs[split(link.input)[1]] = {"file": str(file), "output": output}
        end = _saved(component, end=True)
        return inputs and {
            "inputs": inputs,
            "save": str(save / end),
            "reference": str(reference / end) if reference else None,
        }

    def _input_files(self, component: str) -> list[str]:
        """The engine's input values for a component."""
        if self.subject.inputs is None:
            return []
        if self._inputs is None:
            self._inputs = self.subject.scratch.new_folder("inputs")
            self.subject.inputs.place(self._inputs)
        return [str(path) for path in files.judged(self._inputs, component)]

    def _joined(self, found: Path, wanted: Path) -> Json:
        """How far joined outputs are from the export's."""
        answers: Json = {}
        for join in self._record.joins:
            args: Json = {"name": join.name, "scale": join.scale, "bias": join.bias}
            for who, folder in (("found", found), ("wanted", wanted)):
                args[who] = [
                    {"file": str(folder / _saved(component)), "output": output}
                    for component, output in map(split, join.outputs)
                ]
            if all(Path(side["file"]).is_file() for side in (*args["found"], *args["wanted"])):
                host = self.runtimes.checker
                answers |= host.call("join", args, self.watching, stage=STAGE).result
        return answers


def _not_opened(own: Runtime | Missing, subject: Subject) -> str:
    """Why this machine cannot open the compiled models; empty: it can."""
    if isinstance(own, Missing):
        return own.why
    return SHARED if subject.shares_context and not own.shared_contexts else ""


def _well(answers: Json) -> bool:
    """Whether every model ran."""
    return not any(one.get("error") for one in answers.values())


def _saved(component: str, *, end: bool = False) -> str:
    """The file for a component's outputs: on its own input values, or end to end."""
    return f"{component}.end.npz" if end else f"{component}.npz"
