"""The owner's side of the runtimes: a host for each kind, started when first needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matrix.model import Target
from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.client import EngineSpec, Host, Reply
from workers.host.watch import UNWATCHED, HostLimits, Watching
from workers.runtimes.runtime import (
    KINDS,
    ORT,
    WINDOWS_ML,
    Kind,
    Missing,
    Runtime,
    kinds_for,
)
from workers.session import CPU

STAGE = "verify"
_MOST_LOST = 4
_GONE = {FailureClass.CRASH, FailureClass.TIMEOUT, FailureClass.MEMORY}
"""Failures in which a vendor library takes its process down: the answer is `crash`."""


@dataclass(slots=True)
class Runtimes:
    """The runtimes of one worker slot."""

    log_dir: Path
    limits: HostLimits = field(default_factory=HostLimits)
    pythons: Mapping[str, Path] = field(default_factory=dict)
    """The interpreters of kinds with their own environment."""
    allowed: Collection[str] | None = None
    """The kinds that may be used besides ONNX Runtime; None: all."""
    download: bool = False
    """Whether Windows ML may download the providers that it offers for this machine."""
    _hosts: dict[str, Host] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    """Kinds whose process has opened a model."""
    _found: dict[str, list[Runtime | Missing]] = field(default_factory=dict)
    _lost: Counter[str] = field(default_factory=Counter)
    """Processes that were lost over the discovery of each kind."""

    @property
    def checker(self) -> Host:
        """The process that inspects models and serves ONNX Runtime."""
        return self._host(ORT)

    def cpu(self) -> Runtime:
        """ONNX Runtime's CPU, on which every model runs. Raises `BuildFailed` without it."""
        found = self.provider_on(ORT, CPU, "cpu")
        if isinstance(found, Missing):
            raise BuildFailed(FailureClass.UNSUPPORTED, STAGE, found.why, hint=found.hint)
        return found

    def for_target(self, target: Target) -> Runtime | Missing:
        """The target's own provider and device, or why it cannot be used here.

        A device comes before its emulator, whichever kind has it.
        """
        emulated, missing = [], []
        for kind in filter(self._here, kinds_for(target.provider)):
            found = self.provider_on(kind, target.provider, target.device)
            if isinstance(found, Missing):
                missing += [found] if not kind.last else []
            elif not found.emulated:
                return found
            else:
                emulated.append(found)
        return emulated[0] if emulated else _together(missing)

    def provider_on(
        self, kind: Kind, provider: str, device: str, virtual: str = ""
    ) -> Runtime | Missing:
        """A provider on a device of a kind, or on a virtual one, or why it cannot be used here."""
        found = [
            one
            for one in self.of_kind(kind)
            # Windows ML's catalog and its libraries write a name in different cases.
            if one.provider.casefold() in {"", provider.casefold()}
        ]
        for one in found:
            if isinstance(one, Runtime) and (one.device, one.virtual) == (device, virtual):
                return one
        for one in found:
            if isinstance(one, Missing):
                return replace(one, provider=provider, device=device)
        own = sorted(
            {one.device for one in found if not (isinstance(one, Runtime) and one.virtual)}
        )
        why = f"{provider} finds no {device} here (only: {', '.join(own) or '-'})"
        if not own and kind is ORT:
            why = f"{provider} is not registered with the ONNX Runtime of this machine"
        elif not own and kind is WINDOWS_ML:
            why = f"Windows ML offers no {provider} for this machine"
        if virtual:
            why = (
                f"{kind.distributions[0]} cannot compile for the {device} {virtual} on this system"
            )
        return Missing(provider, device, why)

    def of_kind(self, kind: Kind) -> list[Runtime | Missing]:
        """The runtimes of a kind on this machine, discovered once, and what it lacks.

        A process that is lost over it is another matter than a runtime that is not there: it is
        asked again, and only what keeps losing its process is believed to do so always.
        """
        if kind.name in self._found:
            return self._found[kind.name]
        found = self._discover(kind)
        while any(isinstance(one, Missing) and one.lost for one in found):
            self._lost[kind.name] += 1
            if self._lost[kind.name] >= _MOST_LOST:
                break
            if self._lost[kind.name] % 2 == 0:
                return found  # the next cell asks again
            found = self._discover(kind)
        self._found[kind.name] = found
        return found

    def all(self) -> list[Runtime | Missing]:
        """The runtimes of all kinds, for display."""
        return [
            one if one.provider else replace(one, provider=kind.title)
            for kind in filter(self._here, KINDS)
            for one in self.of_kind(kind)
        ]

    def install(self, provider: str, watching: Watching) -> Mapping[str, str]:
        """Have Windows ML download a provider. Raises `BuildFailed`."""
        for one in self.of_kind(WINDOWS_ML):
            if isinstance(one, Missing) and not one.provider:
                raise BuildFailed(FailureClass.UNSUPPORTED, STAGE, one.why, hint=one.hint)
        host = self._host(WINDOWS_ML)
        told = host.call("install", {"provider": provider}, watching, stage="install")
        self._found.pop(WINDOWS_ML.name)
        return dict(told.result)

    def measure(self, runtime: Runtime, args: dict[str, Any], watching: Watching) -> dict[str, Any]:
        """Run a model; a process that is lost over it is an answer too."""
        return self.run(runtime, "measure", args, watching)

    def run(
        self, runtime: Runtime, op: str, args: dict[str, Any], watching: Watching
    ) -> dict[str, Any]:
        """An operation that runs models; a process that is lost over it is an answer too."""
        try:
            return dict(self.call(runtime, op, args, watching, stage=STAGE).result)
        except BuildFailed as error:
            if error.failure not in _GONE:
                raise
            # The crash may have broken a device or a cache: the answer is not noted.
            return {"at": "crash", "error": error.reason, "failure": error.failure.value}

    def compile(self, runtime: Runtime, args: dict[str, Any], watching: Watching) -> dict[str, Any]:
        """Compile models, see `workers.runtimes.compile`.

        In a process that has opened no model yet: what a compiler writes depends on what it did
        before, and a group that was broken off leaves its contexts open.
        """
        if runtime.kind in self._used:
            self.renew(runtime)
        reply = self.call(runtime, "compile", args, watching, stage="compile")
        return {**reply.result, "peak_memory": reply.peak_memory}

    def call(
        self,
        runtime: Runtime,
        op: str,
        args: dict[str, Any],
        watching: Watching = UNWATCHED,
        *,
        stage: str,
    ) -> Reply:
        """Any operation of a runtime's host. Raises `BuildFailed` if the process is lost."""
        self._used.add(runtime.kind)
        sent = {**args, "runtime": runtime.to_json()}
        return self._host_of(runtime).call(op, sent, watching, stage=stage)

    def renew(self, runtime: Runtime) -> None:
        """End the process of a runtime: its next call begins in a new one."""
        self._host_of(runtime).close()

    def close(self) -> None:
        """End all host processes."""
        for host in self._hosts.values():
            host.close()

    def _here(self, kind: Kind) -> bool:
        return kind.possible or kind.name in self.pythons

    def _discover(self, kind: Kind) -> list[Runtime | Missing]:
        if kind is not ORT and self.allowed is not None and kind.name not in self.allowed:
            return [Missing("", "", "the setting runtimes excludes it")]
        if not self._here(kind):
            return [Missing("", "", f"{kind.title} is not part of this system")]
        if kind.name not in self.pythons and not kind.installed:
            why = f"{kind.distributions[0]} is not installed"
            return [Missing("", "", why, kind.remedy)]
        try:
            # A vendor library that hangs during discovery counts as missing.
            limit = self.limits.timeout if self.download else self.limits.start_timeout
            asked = {"download": self.download}
            rows = self._host(kind).call("discover", asked, Watching(limit), stage=STAGE).result
        except BuildFailed as error:
            if kind is ORT:
                raise
            lost = error.failure if error.failure in _GONE else None
            return [Missing("", "", error.reason, error.hint, lost)]
        return [Missing(**row) if "why" in row else Runtime(**row) for row in rows]

    def _host_of(self, runtime: Runtime) -> Host:
        return self._host(next(kind for kind in KINDS if kind.name == runtime.kind))

    def _host(self, kind: Kind) -> Host:
        if kind.name not in self._hosts:
            spec = EngineSpec(kind.name, kind.target, self.pythons.get(kind.name), kind.env)
            self._hosts[kind.name] = Host(spec, limits=self.limits, log_dir=self.log_dir)
        return self._hosts[kind.name]


def _together(found: Sequence[Missing]) -> Missing:
    """Why no kind has a provider; ONNX Runtime, which never has what others bring, is the last."""
    told = found[:-1] or found
    why = "; ".join(dict.fromkeys(one.why for one in told))
    hint = next((one.hint for one in told if one.hint), "")
    lost = next((one.lost for one in told if one.lost), None)
    return replace(told[0], why=why, hint=hint, lost=lost)
