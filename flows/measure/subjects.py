"""From what the user names to what is measured: a published version, a folder, a cell, a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from feed.reader import pull
from flows.packages.published import check_folder
from flows.packages.reverify import building_cell, subject_of
from flows.packages.signing import signature_check
from flows.settings.engines import runtimes_of
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.slot.cell_work import kept_bytes
from machine.memory import total
from machine.waits import WaitRules
from matrix.digest import tree_digest
from matrix.errors import UsageError
from matrix.nearest import hint, quote
from workers.build.budgets import DiskBudget
from workers.build.built import Built
from workers.build.claim import Claim
from workers.compile.devices import runtime_for
from workers.errors import BuildFailed
from workers.host.watch import HostLimits
from workers.measure.subject import Artifact, Graph, Subject, file_artifact
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import SHARED, VIRTUAL, Missing, Runtime
from workers.session import Port
from workers.store import Store
from workers.verify.ladder.subject import Subject as Package

_MOST = 0.9
"""The share of the machine's memory that a measurement may take: a library that grows without end
then costs one measurement, and not the machine."""
_POLL = 1.0
"""Seconds between two looks at a host; they take time of the processors that are measured."""
_SOON = WaitRules(60.0)
_FORMS = "give PACKAGE VERSION, a folder, MODEL:TASK@TARGET or a .onnx file"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user decides beside the names."""

    target: str | None = None
    profile: str | None = None
    """Neither: a package is measured on the runtime that it was made for."""
    batch: str | None = None
    """The stamp of a cell's sweep; None: the last one."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of the inputs of model files."""
    inputs: Path | None = None
    """A file of samples for model files."""


@dataclass(slots=True)
class Finder:
    """Finds subjects; their files stay until the block of `finding` ends."""

    settings: Settings
    runtimes: Runtimes
    store: Store
    rules: WaitRules
    """For the wait until there is room for a package that is pulled."""
    _opened: ExitStack

    def find(self, words: Sequence[str], choice: Choice) -> list[Subject]:
        """The subjects of a command line. Raises `UsageError`."""
        if len(words) == 2 and not any(map(self._is_form, words)):
            return [self.published(words[0], words[1], choice)]
        return [self._one(word, choice) for word in words]

    def _is_form(self, word: str) -> bool:
        return "@" in word or word.endswith(".onnx") or (self.settings.cwd / word).exists()

    def _one(self, word: str, choice: Choice) -> Subject:
        path = self.settings.cwd / word
        if path.is_dir():
            check_folder(self.settings, path)
            return self._package(subject_of(self.settings, self.store, path, None), choice, word)
        if path.is_file():
            if self.settings.origin("key").startswith("flag"):
                text = f"{word} is a file: only packages are signed"
                raise UsageError(text, hint="give the package, or leave out --key")
            return self._file(path, word, choice)
        if "@" in word:
            opened = building_cell(self.settings, word, choice.batch)
            return self.built(self._opened.enter_context(opened)[1], choice)
        raise UsageError(f"'{word}' is neither a folder nor a file", hint=_FORMS)

    def published(self, package: str, version: str, choice: Choice) -> Subject:
        """A version of the feed."""
        folder = self._opened.enter_context(self.store.scratch.borrow("pulled")) / "package"
        feed = Workspace(self.settings).open_feed()
        check = signature_check(self.settings)
        pull(feed, package, version, folder, room=self._reserve, signature=check)
        found = subject_of(self.settings, self.store, folder, None)
        name = f"{package} {version}"
        return self._package(found, choice, name, package=package, version=version)

    def _reserve(self, size: int) -> None:
        """What is pulled counts in the disk budget for as long as it is there."""
        kept, limit = Workspace(self.settings).kept, self.settings.disk_budget or 0
        beside, keep_free = partial(kept_bytes, kept), self.settings.keep_free
        budget = DiskBudget(self.store, limit, keep_free=keep_free, beside=beside)
        self._opened.enter_context(budget.reserve(size, self.rules))

    def built(self, built: Built, choice: Choice) -> Subject:
        """A package that was just built; its folder must stay for as long as it is measured."""
        return self._package(Package.of(built), choice, built.cell_id)

    def _package(self, found: Package, choice: Choice, name: str, **published: str) -> Subject:
        if problems := found.file_problems():
            raise UsageError(f"{name} is damaged: {problems[0]}", hint="pull it again")
        claim = found.claim
        if not choice.target and not choice.profile:
            choice = replace(choice, target=claim.target.label)
        own = claim.profile.label if claim.profile else ""
        where = (claim.cell, choice.target or "", choice.profile or own)
        artifact = Artifact(name, tree_digest(found.files), *where, **published)
        runtime = self.runtime(choice, claim)
        if found.shares_context and not runtime.shared_contexts:
            text = f"{name} cannot be measured here: {SHARED}"
            raise UsageError(text, hint="measure it on the device itself")
        return Subject(artifact, tuple(self._graphs(found)), runtime)

    def _graphs(self, package: Package) -> Iterator[Graph]:
        """The models of a package with the input values that it was built with."""
        shapes = package.shapes()
        names = {one.model: one.name for one in package.composition.components}
        for model in package.models:
            component = names.get(model, "")
            given = tuple(map(Path, package.sample_files(component)[:1]))
            yield Graph(component, package.folder / model, given, shapes.get(component, {}))

    def _file(self, path: Path, name: str, choice: Choice) -> Subject:
        if not choice.target and not choice.profile:
            raise UsageError(f"no target is given for {name}", hint="for example --target mlas_cpu")
        args = {"folder": str(path.parent.absolute()), "models": [path.name]}
        try:
            reply = self.runtimes.checker.call("contexts", args, stage="measure")
        except BuildFailed as error:
            raise UsageError(f"{name} cannot be read as an ONNX model: {error.reason}") from None
        told: Mapping[str, Any] = reply.result[path.name]
        _check_shapes(name, told["inputs"], choice.shapes)
        beside = sorted({*told["external"], *told["binaries"]})
        artifact = file_artifact(path, beside, name, choice.target or "", choice.profile or "")
        given = (self.settings.cwd / choice.inputs,) if choice.inputs else ()
        if missing := [file for file in given if not file.is_file()]:
            raise UsageError(f"--inputs: {missing[0]} is not a file", hint="give .npz or .jsonl")
        graph = Graph("", path, given, dict(choice.shapes))
        return Subject(artifact, (graph,), self.runtime(choice))

    def runtime(self, choice: Choice, claim: Claim | None = None) -> Runtime:
        """What a target or profile is measured on here, by default that which a package is made
        for. Raises `UsageError` if there is nothing."""
        work, profile = Workspace(self.settings), claim.profile if claim else None
        if choice.profile:
            profile = work.profiles().get(choice.profile)
        target = work.targets().get(profile.target if profile else choice.target or "")
        if profile:
            found = runtime_for(self.runtimes, profile, target, emulated=True)
            if isinstance(found, Runtime) and found.virtual:
                found = Missing(found.provider, found.device, VIRTUAL)
        else:
            found = self.runtimes.for_target(target)
        if isinstance(found, Missing):
            where = choice.profile or choice.target
            raise UsageError(f"{where} cannot be measured here: {found.why}", hint=found.hint)
        if found.emulated and not self.settings.emulated:
            text = f"this machine only emulates the device: {found.name}"
            raise UsageError(text, hint="--emulated measures it, which says nothing of the device")
        return found


def _check_shapes(
    name: str, inputs: Mapping[str, Sequence[int | str | None]], given: Mapping[str, Sequence[int]]
) -> None:
    """Raise `UsageError` for an input that the model does not have, or a shape it cannot take."""
    for one, sizes in given.items():
        if one not in inputs:
            raise UsageError(f"--shape: {name} has no input {quote(one)}", hint=hint(one, inputs))
        if not Port(one, "", tuple(inputs[one])).fits(sizes):
            takes = "x".join(str(size or "?") for size in inputs[one])
            raise UsageError(
                f"--shape: '{one}' of {name} cannot be {'x'.join(map(str, sizes))}",
                hint=f"it takes {takes}",
            )


@contextmanager
def finding(settings: Settings, threads: int = 0, rules: WaitRules = _SOON) -> Iterator[Finder]:
    """A finder and the runtimes of its subjects; `threads`: of each runtime, 0: its own choice.

    `rules`: how long a package that is pulled may wait for room on the disk.
    """
    work = Workspace(settings)
    work.prepare()
    limits = HostLimits(
        memory=settings.memory or int(_MOST * total()),
        timeout=settings.timeout,
        threads=threads,
        poll=_POLL,
    )
    with ExitStack() as opened:
        store = opened.enter_context(closing(Store(work.store)))
        runtimes = opened.enter_context(closing(runtimes_of(settings, limits)))
        yield Finder(settings, runtimes, store, rules, opened)
