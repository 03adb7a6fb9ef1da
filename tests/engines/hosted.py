"""Engines in a process of their own: the fake one with a builder, and hosts that are shared."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.engine import fake_spec
from workers.build.builder import Builder, BuildOptions
from workers.host.client import EngineHost
from workers.host.watch import HostLimits
from workers.store import Store


class SharedHost(EngineHost):
    """One that outlives its builders."""

    def close(self) -> None:
        """Others want it too."""

    def end(self) -> None:
        """Nobody wants it any more."""
        super().close()


def make_builder(root: Path, limits: HostLimits | None = None) -> Builder:
    host = EngineHost(fake_spec(), limits=limits, log_dir=root / "logs")
    return Builder(Store(root / "store"), host, root / "work", BuildOptions(stamp="20260609"))
