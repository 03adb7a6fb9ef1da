"""The owner's side of the runtimes: a host for each kind, started when first needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matrix.model import Target
from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.client import EngineSpec, Host, Reply
from workers.host.watch import UNWATCHED, HostLimits, Watching
from workers.runtimes.runtime import KINDS, ORT, Kind, Missing, Runtime, kind_for
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
    _hosts: dict[str, Host] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    """Kinds whose process has opened a model."""
    _found: dict[str, list[Runtime] | Missing] = field(default_factory=dict)
    _lost: Counter[str] = field(default_factory=Counter)
    """Processes that were lost over the discovery of each kind."""

    @property
    def checker(self) -> Host:
        """The process that inspects models and serves ONNX Runtime."""
        return self._host(ORT)

    def cpu(self) -> Runtime:
        """ONNX Runtime's CPU, on which every model runs. Raises `BuildFailed` without it."""
        found = self.of_kind(ORT)
        if isinstance(found, Missing):
            raise BuildFailed(FailureClass.UNSUPPORTED, STAGE, found.why, hint=found.hint)
        return next(one for one in found if one.provider == CPU)

    def for_target(self, target: Target) -> Runtime | Missing:
        """The target's own provider and device, or why it cannot be used here."""
        return self.provider_on(kind_for(target.provider), target.provider, target.device)

    def provider_on(self, kind: Kind, provider: str, device: str) -> Runtime | Missing:
        """A provider on a device of a kind, or why it cannot be used here."""
        found = self.of_kind(kind)
        if isinstance(found, Missing):
            return replace(found, provider=provider, device=device)
        for one in found:
            if (one.provider, one.device) == (provider, device):
                return one
        own = sorted({one.device for one in found if one.provider == provider})
        why = f"{provider} is not registered with the ONNX Runtime of this machine"
        if kind is not ORT or own:
            why = f"{provider} finds no {device} here (only: {', '.join(own) or '-'})"
        return Missing(provider, device, why)

    def of_kind(self, kind: Kind) -> list[Runtime] | Missing:
        """The runtimes of a kind on this machine, discovered once.

        A process that is lost over it is another matter than a runtime that is not there: it is
        asked again, and only what keeps losing its process is believed to do so always.
        """
        if kind.name in self._found:
            return self._found[kind.name]
        found = self._discover(kind)
        while isinstance(found, Missing) and found.lost:
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
        rows: list[Runtime | Missing] = []
        for kind in KINDS:
            found = self.of_kind(kind)
            rows += [found] if isinstance(found, Missing) else found
        return rows

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

    def _discover(self, kind: Kind) -> list[Runtime] | Missing:
        provider = kind.providers[0]
        if kind is not ORT and self.allowed is not None and kind.name not in self.allowed:
            return Missing(provider, "", "the setting runtimes excludes it")
        if kind.name not in self.pythons and not kind.installed:
            why = f"{kind.distributions[0]} is not installed"
            return Missing(provider, "", why, kind.remedy)
        try:
            # A vendor library that hangs during discovery counts as missing.
            limit = Watching(self.limits.start_timeout)
            rows = self._host(kind).call("discover", {}, limit, stage=STAGE).result
        except BuildFailed as error:
            if kind is ORT:
                raise
            lost = error.failure if error.failure in _GONE else None
            return Missing(provider, "", error.reason, error.hint, lost)
        return [Runtime(**row) for row in rows]

    def _host_of(self, runtime: Runtime) -> Host:
        return self._host(next(kind for kind in KINDS if kind.name == runtime.kind))

    def _host(self, kind: Kind) -> Host:
        if kind.name not in self._hosts:
            spec = EngineSpec(kind.name, kind.target, self.pythons.get(kind.name))
            self._hosts[kind.name] = Host(spec, limits=self.limits, log_dir=self.log_dir)
        return self._hosts[kind.name]
