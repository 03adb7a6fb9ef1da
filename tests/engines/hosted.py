"""A builder whose fake engine runs in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.engine import fake_spec
from workers.build.builder import Builder, BuildOptions
from workers.host.client import EngineHost
from workers.host.watch import HostLimits
from workers.store import Store


def make_builder(root: Path, limits: HostLimits | None = None) -> Builder:
    host = EngineHost(fake_spec(), limits=limits, log_dir=root / "logs")
    return Builder(Store(root / "store"), host, root / "work", BuildOptions(stamp="20260609"))
