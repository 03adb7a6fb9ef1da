"""A builder on a store of its own, its engine in the same process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.in_process import InProcessHost
from workers.build.builder import Builder, BuildOptions
from workers.store import Store


class BuilderHarness:
    """A builder on a store of its own."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.host = InProcessHost(root / "logs")
        self.builder = Builder(
            self.store, self.host, root / "work", BuildOptions(stamp="20260609", **options)
        )

    def packages(self) -> list[Path]:
        return [path for path in (self.root / "work").glob("*/*") if path.is_dir()]
