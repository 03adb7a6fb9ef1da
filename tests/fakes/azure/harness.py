"""A stand-in with everything a test needs around it: settings, packages to publish, feeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from feed.azure.address import parse
from feed.azure.credentials import Credentials, from_environment
from feed.azure.feed import AzureFeed
from feed.azure.options import Options
from feed.azure.service import Service
from feed.checked import hash_file
from feed.interface import LocalFile
from feed.publisher import Publisher, Receipt
from matrix.digest import FileEntry, tree_digest
from tests.fakes.azure.server import AzureStandIn
from tests.fakes.azure.toolkit import install

NAME, VERSION = "modelmill-bert", "0.0.0-20260609-qnn-npu-bert"


class AzureHarness:
    """One stand-in and the folders of one test. A context manager."""

    def __init__(self, root: Path, **environ: str) -> None:
        self.root = root
        self.standin = AzureStandIn()
        self.pauses: list[float] = []
        self.environ = {
            "AZURE_DEVOPS_EXT_PAT": "good-token",
            "MODELMILL_AZURE_CACHE": str(root / "cache"),
            "MODELMILL_AZURE_TOOL": str(install(root / "tool")),
            "MODELMILL_AZURE_READ_TIMEOUT": "20",
            **environ,
        }

    def __enter__(self) -> Self:
        self.standin.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.standin.__exit__(kind, error, trace)

    def feed(
        self,
        url: str | None = None,
        *,
        credentials: Credentials | None = None,
        without: tuple[str, ...] = (),
        **environ: str,
    ) -> AzureFeed:
        """A feed that counts its pauses instead of making them."""
        merged = {k: v for k, v in {**self.environ, **environ}.items() if k not in without}
        address, options = parse(url or self.standin.url), Options.from_environment(merged)
        credentials = credentials or from_environment(merged)
        service = Service(address, credentials, options, sleep=self.pauses.append)
        return AzureFeed(address, credentials, options, merged, service=service)

    def package(
        self,
        name: str,
        files: Mapping[str, bytes] | None = None,
        *,
        records: Mapping[str, bytes] | None = None,
    ) -> list[LocalFile]:
        """A local package: its files, the `modelmill.json` that lists them, records of the run."""
        folder = self.root / "packages" / name
        default = {"model.onnx": name.encode() * 50, "sub/vocab.txt": b"words"}
        contents = default if files is None else files
        entries = [_write(folder, path, content) for path, content in contents.items()]
        own = [
            {"path": entry.path, "size": entry.size, "sha256": entry.sha256} for entry in entries
        ]
        manifest = json.dumps({"files": own}).encode()
        entries.append(_write(folder, "modelmill.json", manifest))
        entries.append(_write(folder, "build.json", json.dumps({"attempt": name}).encode()))
        entries += [_write(folder, path, content) for path, content in (records or {}).items()]
        return [LocalFile(entry, folder / entry.path) for entry in sorted(entries)]

    def leftovers(self) -> list[str]:
        """What is left of the working folders."""
        work = self.root / "cache" / "work"
        return sorted(path.name for path in work.iterdir()) if work.exists() else []


def publish(
    harness: AzureHarness,
    files: list[LocalFile],
    version: str = VERSION,
    *,
    feed: AzureFeed | None = None,
) -> Receipt:
    """Publish a package of `NAME` without ever sleeping."""
    publisher = Publisher(feed or harness.feed(), sleep=lambda event, _seconds: event.is_set())
    return publisher.publish(NAME, version, files, tree=tree(files))


def tree(files: list[LocalFile]) -> str:
    """The tree digest of a local package."""
    return tree_digest(file.entry for file in files)


def _write(folder: Path, path: str, content: bytes) -> FileEntry:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return hash_file(target, path)
