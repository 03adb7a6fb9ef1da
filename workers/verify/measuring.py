"""Runs a package on runtimes, one model at a time, and compares it with its reference.

Equal bytes run once on a runtime: what was measured is noted in the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file
from matrix.digest import ENDS, value_digest
from workers import code
from workers.build.claim import Claim
from workers.compile.devices import runtime_for
from workers.composition import split
from workers.host.watch import Watching
from workers.runtimes.pool import STAGE, Runtimes
from workers.runtimes.runtime import SHARED, VIRTUAL, Missing, Runtime
from workers.store import Store
from workers.verify.ladder.observed import Observed, RuntimeRun
from workers.verify.ladder.reference import (
    GENERATED,
    SETS,
    Exported,
    Reference,
    ReferenceRun,
    generation_arguments,
    saved,
    stored,
)
from workers.verify.ladder.subject import Subject


@dataclass(slots=True)
class Notes:
    """Earlier results for equal bytes; new results are kept if the package passes."""

    store: Store
    again: bool = False
    """Examine what has a note too."""
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
        note = None if self.again else self.store.notes.read(kind, key)
        if note:
            return dict(note)
        found = examine()
        if whole(found):
            self.fresh.append((kind, key, found))
        return found

    def keep(self) -> None:
        """Write the new results."""
        for kind, key, found in self.fresh:
            self.store.notes.write(kind, key, found)


MEASURED = "measured"
"""The kind of note that keeps measurements."""
CODE = ("workers.runtimes.service", "workers.verify.measuring", "workers.verify.taken")
"""A change of these modules, or of what they import, makes earlier notes worthless."""
EMULATED = 4
"""Samples that an emulator is judged on: a run takes it seconds."""
OLD = (
    "the package has no samples: it was built before samples were recorded, and verified on "
    "synthetic ones; build it again"
)

Json = dict[str, Any]


@dataclass
class Measuring:
    """The measurements of one package, on all runtimes that apply to it."""

    runtimes: Runtimes
    exported: Exported
    """Of the package before, until this one needs another."""
    subject: Subject
    watching: Watching
    notes: Notes
    with_task: bool

    def __post_init__(self) -> None:
        subject = self.subject
        self._cpu = self.runtimes.cpu()
        self._record = subject.composition
        self._names = {one.model: one.name for one in self._record.components}
        self._limit = asdict(subject.claim.limit)
        task = subject.claim.rules.task if self.with_task else None
        self._task = {"dataset": task.dataset} if task else None
        self._reference: Reference | None = None

    def measure(self, observed: Observed) -> None:
        """Add the answers of the runtimes to `observed`."""
        subject, cpu = self.subject, self._cpu
        own, profile = self._own(subject.claim), subject.claim.profile
        if profile is not None and (why := _not_opened(own, subject)):
            observed.stopped = f"only its own provider opens a compiled model: {why}"
            observed.missing.append(Missing(own.provider, own.device, why))
            return
        found = self._referred()
        if not subject.samples():
            observed.no_samples = OLD
        if isinstance(found, Reference):
            self._reference = found
            if found.files:
                observed.compared = found
            parts = found.components
            observed.reference = {model: parts[name] for model, name in self._names.items()}
            observed.exercised = self._exercised(found)
            if self._task and subject.export is not None:
                self._run_task(observed)
        else:
            observed.no_reference = found
        if profile is None:
            observed.runs.append(self.ran(cpu, own=own == cpu))
        if isinstance(own, Missing):
            observed.missing.append(own)
        elif own != cpu:
            observed.runs.append(self.ran(own, own=True))
            if profile is not None:
                observed.opening = self.opening(own)

    def _own(self, claim: Claim) -> Runtime | Missing:
        """The provider and device of the target, with the options of a compiled cell's profile."""
        if claim.profile is None:
            return self.runtimes.for_target(claim.target)
        return runtime_for(self.runtimes, claim.profile, claim.target, emulated=True)

    def _referred(self) -> Reference | str:
        """What the package is compared with; a text: why there is nothing."""
        subject = self.subject
        if not subject.named_export and (there := stored(subject)):
            return there
        if subject.export is None:
            given = "the export is not available (give it with --export)"
            return given if subject.samples() else f"{given}, and {OLD}"
        root = subject.folder if subject.building else subject.scratch.new_folder("compared")
        return ReferenceRun(self.runtimes, self.exported, subject, self.watching).made(root)

    def _exercised(self, reference: Reference) -> Json:
        """By component, how far outputs vary and which values inputs take."""
        samples = self.subject.samples()
        basis = {"exercised": reference.digest, "content": self.subject.content}

        def examine() -> Json:
            return {
                name: self.runtimes.checker.call(
                    "exercise",
                    {
                        "samples": self.subject.sample_files(name),
                        "reference": reference.outputs(files),
                        "limit": self._limit,
                        "agree": self.subject.claim.task,
                    },
                    self.watching,
                    stage=STAGE,
                ).result
                for name, files in samples.items()
            }

        return self.notes.find(MEASURED, self._basis(basis), examine)

    def _basis(self, more: Json) -> Json:
        return {
            "code": code.digest(*CODE),
            "limit": self._limit,
            "agree": self.subject.claim.task,
            "composition": asdict(self._record),
            "cpu": self._cpu.to_json(),
            **more,
        }

    def ran(self, runtime: Runtime, *, own: bool) -> RuntimeRun:
        """The package on one runtime."""
        more = {
            "content": self.subject.content,
            "on": runtime.to_json(),
            "reference": self._reference.digest if self._reference else "",
            "task": hash_file(Path(self._task["dataset"]))[0] if self._task else None,
        }
        found = self.notes.find(
            MEASURED,
            self._basis(more),
            lambda: self._run(runtime),
            lambda found: not any(one.get("error") for one in found["models"].values()),
        )
        return RuntimeRun(runtime, own, dict(found["models"]), found["joined"], found["generated"])

    def _run(self, runtime: Runtime) -> Json:
        subject = self.subject
        with subject.scratch.borrow("outputs") as folder:
            models = {
                name: self._measure(runtime, subject.folder / name, name, folder)
                for name in subject.models
            }
            joined = self._joined(folder)
            well = not any(one.get("error") for one in models.values())
            generated = self._generated(runtime) if well else {}
        return {"models": models, "joined": joined, "generated": generated}

    def _measure(self, runtime: Runtime, file: Path, name: str, save: Path) -> Json:
        component, reference = self._names.get(name, ""), self._reference
        most = EMULATED if runtime.emulated else None
        names = self.subject.samples().get(component, [])[:most]
        ports = reference.components[component]["outputs"] if reference else ()
        args: Json = {
            **self._arguments(file, component),
            "samples": self.subject.sample_files(component)[:most],
            "outputs": [port[0] for port in ports],
            "save": str(save / saved(component)) if component else None,
            "reference": reference.outputs(names) if reference else [],
            "limit": self._limit,
            "agree": self.subject.claim.task,
            "task": self._task if runtime == self._cpu or self.subject.claim.profile else None,
            "linked": self.subject.linked(component, save),
            "compiled": self.subject.claim.profile is not None,
        }
        if args["linked"]:
            args["linked"]["reference"] = reference.outputs(names, ENDS) if reference else []
        answer = self.runtimes.measure(runtime, args, self.watching)
        if assigned := answer.pop("assigned", None):
            given = {"file": args["file"], "assigned": assigned}
            call = self.runtimes.checker.call("taken", given, self.watching, stage=STAGE)
            answer["taken"] = call.result
        return answer

    def _arguments(self, file: Path, component: str) -> Json:
        return {
            "file": str(file.absolute()),
            "component": component,
            "sets": SETS,
            "shapes": self.subject.shapes().get(component, {}),
        }

    def _generated(self, runtime: Runtime) -> Json:
        """What the package generates, beside the export's and PyTorch's."""
        reference, subject = self._reference, self.subject
        if reference is None or self._record.loop is None:
            return {}
        if reference.generated.get("error"):
            return {"export": reference.generated}
        files = {self._names[name]: subject.folder / name for name in subject.models}
        args = generation_arguments(subject, files, reference.components)
        if "error" in args:
            return args
        more = {"reference": str((reference.root / GENERATED).absolute()), "limit": self._limit}
        found = self.runtimes.run(runtime, "generate", args | more, self.watching)
        return {**found, "export": reference.generated}

    def _run_task(self, observed: Observed) -> None:
        """The answers of the export on the catalog's dataset."""
        subject = self.subject
        assert subject.export is not None, "the caller knows that there is an export"
        with subject.scratch.borrow("export") as folder:
            subject.export.place(folder)
            for name in subject.models:
                file = folder / subject.exported(name)
                component = self._names.get(name, "")
                args = {
                    **self._arguments(file, component),
                    "samples": subject.sample_files(component)[:1],
                    "task": self._task,
                }
                told = self.runtimes.measure(self._cpu, args, self.watching)
                observed.reference[name] = {**observed.reference[name], "task": told.get("task")}

    def opening(self, runtime: Runtime) -> Json:
        """Seconds and memory to open each model, portable and then compiled, one after the other
        in the same process."""
        subject, portable = self.subject, self.subject.portable
        if portable is None:
            return {}

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

        basis = {"opening": portable.tree, "content": subject.content, "on": runtime.to_json()}
        return self.notes.find(MEASURED, self._basis(basis), examine)

    def _opened(self, runtime: Runtime, file: Path, name: str) -> Json:
        component = self._names.get(name, "")
        args = {
            **self._arguments(file, component),
            "sets": 1,
            "samples": self.subject.sample_files(component)[:1],
        }
        told = self.runtimes.measure(runtime, args, self.watching)
        if told.get("error"):
            return {"error": told["error"]}
        return {"seconds": told["open_seconds"], "memory": told["open_memory"]}

    def _joined(self, found: Path) -> Json:
        """How far joined outputs are from the reference's."""
        answers: Json = {}
        samples, reference = self.subject.samples(), self._reference
        if reference is None:
            return answers
        for join in self._record.joins:
            sides = [split(output) for output in join.outputs]
            files = [reference.outputs(samples.get(name, [])) for name, _ in sides]
            args: Json = {
                "name": join.name,
                "scale": join.scale,
                "bias": join.bias,
                "limit": self._limit,
                "agree": self.subject.claim.task,
                "found": [
                    {"file": str(found / saved(name)), "output": output} for name, output in sides
                ],
                "wanted": [
                    {"files": one, "output": output}
                    for one, (_, output) in zip(files, sides, strict=True)
                ],
            }
            if all(files) and all(Path(side["file"]).is_file() for side in args["found"]):
                host = self.runtimes.checker
                answers |= host.call("join", args, self.watching, stage=STAGE).result
        return answers


def _not_opened(own: Runtime | Missing, subject: Subject) -> str:
    """Why this machine cannot open the compiled models; empty: it can."""
    if isinstance(own, Missing):
        return own.why
    if own.virtual:
        return VIRTUAL
    return SHARED if subject.shares_context and not own.shared_contexts else ""
