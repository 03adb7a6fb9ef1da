"""Attested packages from the real builder on the fake engine, without a child process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from feed.interface import Feed
from feed.publisher import Publisher
from matrix.digest import BUILD_RECORD, MANIFEST, tree_digest
from matrix.model import Cell
from tests.fakes.in_process import InProcessHost
from workers.attest.attester import Attester
from workers.build.builder import Builder, BuildOptions, Built
from workers.build.package import compact_bytes, write_record
from workers.store import Store


class AttestationHarness:
    """A builder on a store of its own, with its attester."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root / "store")
        self.host = InProcessHost(root / "logs")
        self.builder = Builder(self.store, self.host, root / "work", BuildOptions(stamp="20260609"))

    def attested(self, cell: Cell, **how: Any) -> Built:
        return Attester(self.host, **how).attest(self.builder.build(cell), cell)

    def publish(self, feed: Feed, cell: Cell, **how: Any) -> Built:
        """Build, attest, publish under the cell's name."""
        built = self.attested(cell, **how)
        publish(feed, built, cell.package, cell.version)
        return built

    def close(self) -> None:
        self.builder.close()
        self.store.close()


def rewritten(built: Built) -> Built:
    """The same with the manifest and the build record that it says it has."""
    own = {MANIFEST: built.manifest, BUILD_RECORD: built.build_record}
    files = [file for file in built.files if file.entry.path not in own]
    files += [
        write_record(built.folder, name, compact_bytes(dict(one))) for name, one in own.items()
    ]
    return replace(built, files=tuple(files), tree=tree_digest(file.entry for file in files))


def publish(feed: Feed, built: Built, package: str, version: str) -> None:
    files = built.files
    Publisher(feed, tries=1).publish(package, version, files, tree=built.tree)
