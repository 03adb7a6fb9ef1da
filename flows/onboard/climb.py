"""Runs the tiers of an onboarding with the ordinary engine, rungs and runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.measure.subjects import Choice, Finder
from flows.onboard.folder import CATALOG, FINDING, PROBE, RECORD, REPORT, Package, put
from flows.onboard.goals import Tier, Verdict
from flows.output.masking import masked
from flows.output.quantity import named
from flows.settings.settings import Settings
from machine.files import remove, replace_file
from machine.waits import untold
from matrix.errors import MillError
from matrix.model import Cell
from matrix.status import FailureClass
from matrix.verification import Rung
from workers.build.builder import Builder, Built
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.measure.benchmark import Driver, benchmark
from workers.measure.quiet import quiet
from workers.measure.result import Benchmark
from workers.verify.ladder.subject import Subject
from workers.verify.verifier import Climbed, Verifier

SOUND = ("integrity", "policy", "loads", "shapes")
"""The rungs that L0 asks of every package."""
ALIKE = ("samples", "parity")
"""Those that L2 asks."""
NO_PACKAGE = "there is no package"
_HOST = {FailureClass.DISK, FailureClass.NETWORK, FailureClass.AUTH, FailureClass.MEMORY}
_WRITTEN = (RECORD, REPORT, FINDING, CATALOG, "packages", "logs")
_WORDS = {True: "holds", False: "fails", None: "not run"}


@dataclass(slots=True)
class TargetResult:
    """What came of one target."""

    package: Package
    climbed: Climbed | None = None
    error: BuildFailed | None = None

    def rung(self, name: str) -> tuple[bool | None, str]:
        """Whether a rung of verification holds, and its words."""
        if self.climbed is None:
            return None, "it was not built"
        found = next((one for one in self.climbed.rungs if one.name == name), None)
        return (None, "it was not asked for") if found is None else (found.passed, found.detail)


@dataclass(slots=True)
class Climb:
    """The work of one onboarding in its folder."""

    folder: Path
    settings: Settings
    cells: list[Cell]
    builder: Builder
    verifier: Verifier
    tell: Callable[[str], None] = untold
    done: dict[str, TargetResult] = field(default_factory=dict)
    _compared: Mapping[str, Any] = field(default_factory=dict)
    """How the export was compared with the source model; empty: there is no package."""

    def steps(self, finder: Callable[[], Finder]) -> Iterator[tuple[str, Callable[[], Tier]]]:
        """The tiers in order; `finder`: of what is measured, opened only if something is."""
        yield "L0", self.build
        yield "L1", lambda: self.measure(finder())
        yield "L2", self.compare
        yield "L3", self.task

    def build(self) -> Tier:
        """L0: every target builds, and its package is sound."""
        for cell in self.cells:
            self.tell(f"building {cell.target.label}")
            work = self._built(cell)
            self.done[work.package.target] = work
        evidence = tuple(f"evidence/build-{name}.json" for name in self.done)
        if lacking := [*self._unsound()]:
            return Tier("L0", *worst_of(lacking), evidence)
        built = f"{len(self.done)} of {len(self.cells)} targets build"
        return Tier("L0", Verdict.PASS, f"{built}; {', '.join(SOUND)} hold", evidence)

    def _unsound(self) -> Iterator[tuple[Verdict, str]]:
        """What L0 lacks, by target."""
        for name, one in self.done.items():
            if one.error:
                yield verdict_of(one.error.failure), f"{name}: {one.error}"
                continue
            for rung in SOUND:
                passed, words = one.rung(rung)
                if not passed:
                    verdict = Verdict.FAIL if passed is False else Verdict.HOST_BLOCKED
                    yield verdict, f"{name}: {rung}: {words}"
                    break

    def measure(self, finder: Finder) -> Tier:
        """L1: its latency wherever this machine has a device; an emulator's time does not count."""
        numbers: dict[str, Any] = {}
        lacking: list[tuple[Verdict, str]] = []
        evidence = []
        for name in self._packages():
            self.tell(f"measuring {name}")
            try:
                place = self.folder / self.done[name].package.folder
                found = latency(finder, place, "an onboarding", self.tell)
            except BuildFailed as error:
                lacking.append((verdict_of(error.failure), f"{name}: {error}"))
                continue
            except MillError as error:
                lacking.append((Verdict.HOST_BLOCKED, f"{name}: {error.message}"))
                continue
            if found is None:
                lacking.append((Verdict.HOST_BLOCKED, f"{name}: only its emulator is here"))
                continue
            file = f"evidence/bench-{name}.json"
            put(self.folder, file, found)
            evidence.append(file)
            if fault := next((graph.fault for graph in found.graphs if graph.fault), None):
                failure = FailureClass(fault.failure)
                lacking.append((verdict_of(failure), f"{name}: {fault.message}"))
                continue
            numbers[name] = latencies(found)
        verdict, text = worst_of(lacking) if lacking else (Verdict.NOT_RUN, NO_PACKAGE)
        if verdict is Verdict.FAIL or not numbers:
            return Tier("L1", verdict, text, tuple(evidence), numbers)
        told = ", ".join(f"{name} p50 {one['p50']:.3g} ms" for name, one in numbers.items())
        rest = f"; not here: {'; '.join(text for _, text in lacking)}" if lacking else ""
        return Tier("L1", Verdict.PASS, f"{told}{rest}", tuple(evidence), numbers)

    def compare(self) -> Tier:
        """L2: the export against the source model, and every package against the export."""
        found = self._compared
        if not found:
            return Tier("L2", Verdict.NOT_RUN, NO_PACKAGE)
        evidence = tuple(f"evidence/build-{name}.json" for name in self.done)
        if reason := found.get("not"):
            why = f"the export is not compared with its source model: {reason}"
            return Tier("L2", Verdict.TOOL_BLOCKED, why, evidence)
        told: dict[str, Any] = {"source": dict(found)}
        problems: list[str] = []
        holds: list[str] = []
        unjudged: list[str] = []
        for name in self._packages():
            # Parity on samples that do not exercise the model proves nothing.
            rungs = [self.done[name].rung(rung) for rung in ALIKE]
            passed, words = next((one for one in rungs if not one[0]), rungs[-1])
            told[name] = words
            if passed:
                holds.append(name)
            else:
                (unjudged if passed is None else problems).append(f"{name}: {words}")
        if problems:
            return Tier("L2", Verdict.FAIL, "; ".join(problems[:3]), evidence, told)
        if unjudged:
            return Tier("L2", Verdict.HOST_BLOCKED, "; ".join(unjudged[:3]), evidence, told)
        text = f"the export computes what the source model does on {found['samples']} samples "
        text += f"({found['kind']}); parity holds for {', '.join(holds)}"
        return Tier("L2", Verdict.PASS, text, evidence, told)

    def task(self) -> Tier:
        """L3: the metric of the entry's dataset."""
        if self.settings.verify != "task":
            return Tier("L3", Verdict.NOT_RUN, "no dataset is given (--dataset)")
        found = {name: self.done[name].rung("task") for name in self._packages()}
        if not found:
            return Tier("L3", Verdict.NOT_RUN, NO_PACKAGE)
        evidence = tuple(f"evidence/build-{name}.json" for name in self.done)
        for verdict, wanted in ((Verdict.FAIL, False), (Verdict.HOST_BLOCKED, None)):
            for name, (passed, words) in found.items():
                if passed is wanted:
                    return Tier("L3", verdict, f"{name}: {words}", evidence)
        shown = {name: words for name, (_, words) in found.items()}
        return Tier("L3", Verdict.PASS, "; ".join(sorted(set(shown.values()))), evidence, shown)

    def _packages(self) -> list[str]:
        """The targets that were built."""
        return [name for name, one in self.done.items() if one.package.folder]

    def _built(self, cell: Cell) -> TargetResult:
        name = cell.id.rpartition("@")[2].replace(":", "-")
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        package = Package(name, cell.id, "", "", f"logs/{name}.log", "")
        try:
            built = self.builder.build(cell, Watching(log=log))
            try:
                return self._examined(cell, built, package)
            finally:
                built.release()
        except BuildFailed as error:
            told = {"cell": cell.id, "error": str(error)}
            put(self.folder, f"evidence/build-{name}.json", told)
            return TargetResult(package, error=error)
        finally:  # a foreign tool may print anything, and the folder is shown to others
            replace_file(log, masked(log.read_text("utf-8", "replace")).encode())

    def _examined(self, cell: Cell, built: Built, package: Package) -> TargetResult:
        climbed = self.verifier.climb(Subject.of(built))
        self._compared = compared(built.manifest)
        names = ("stage", "component", "key", "reused", "seconds")
        record = {
            "cell": cell.id,
            "tree": built.tree,
            "stages": [{name: getattr(one, name) for name in names} for one in built.stages],
            "manifest": dict(built.manifest),
            **climbed.to_json(),
        }
        put(self.folder, f"evidence/build-{package.target}.json", record)
        place, weights = f"packages/{package.target}", weights_of(climbed.rungs)
        built.move_to(self.folder / place)
        said = success_of(climbed.rungs)
        made = replace(package, folder=place, tree=built.tree, success=said, weights=weights)
        return TargetResult(made, climbed)


def clear(folder: Path) -> None:
    """Remove what an earlier onboarding left in its folder, whole or half, but for the probe."""
    probe = folder / PROBE
    halves = (path for name in _WRITTEN for path in folder.glob(f".{name}*"))
    evidence = (path for path in probe.parent.iterdir() if path != probe)
    for path in (*(folder / name for name in _WRITTEN), *halves, *evidence):
        remove(path)


def worst_of(lacking: Sequence[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """The verdict on a tier that lacks something, and why: a failure decides, whatever else is
    blocked."""
    failed = [text for verdict, text in lacking if verdict is Verdict.FAIL]
    verdict = Verdict.FAIL if failed else lacking[0][0]
    names: dict[str, list[str]] = {}  # of the targets, by what they all say
    for text in failed or [text for _, text in lacking]:
        name, _colon, why = text.partition(": ")
        names.setdefault(why, []).append(name)
    told = [f"{named(of, 3)}: {why}" for why, of in names.items()]
    return verdict, "; ".join(told[:3])


def verdict_of(failure: FailureClass) -> Verdict:
    """What a failure of this class says of the model."""
    if failure is FailureClass.TIMEOUT:
        return Verdict.TIMED_OUT
    if failure in _HOST:
        return Verdict.HOST_BLOCKED
    return Verdict.TOOL_BLOCKED if failure is FailureClass.UNSUPPORTED else Verdict.FAIL


def success_of(rungs: Iterable[Rung]) -> str:
    """The line that says which rungs hold."""
    return ", ".join(f"{one.name} {_WORDS[one.passed]}" for one in rungs)


def weights_of(rungs: Iterable[Rung]) -> dict[str, int]:
    """Bytes of weights by type: what proves a label such as fp16."""
    told: Counter[str] = Counter()
    for one in rungs:
        if one.name == "policy":
            for model in one.evidence.get("models", {}).values():
                told.update(model.get("bytes", {}))
    return dict(told)


def latencies(found: Benchmark) -> dict[str, float]:
    """Of a composite, the sum of its graphs."""
    graphs, names = [one.latency for one in found.graphs if one.latency], ("p50", "p90", "mean")
    return {name: round(sum(getattr(one, name) for one in graphs), 6) for name in names}


def latency(
    finder: Finder, folder: Path, what: str, tell: Callable[[str], None]
) -> Benchmark | None:
    """The benchmark of a package, made when nothing else runs on this machine; None if only an
    emulator of its device is here, whose time says nothing."""
    settings = finder.settings
    [subject] = finder.find([str(folder)], Choice())
    if subject.runtime.emulated:
        return None
    driver = Driver(finder.runtimes, Watching(settings.timeout))
    with quiet(what, wait=True, told=tell):
        return benchmark(driver, subject, settings.protocol)


def compared(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the export of a package was compared with its source model; `not`: why it was not."""
    found = [one["facts"].get("compared") for one in manifest["stages"] if one["stage"] == "export"]
    return (
        found[0] if found and isinstance(found[0], dict) else {"not": "the engine does not do it"}
    )
