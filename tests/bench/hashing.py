"""How often the bytes of a stage's outputs are read on their way into the store and the feed.

    python -m tests.bench.hashing [MEGABYTES]       default: 512

Bytes that this process has read (the kernel counts them) over bytes of the files, step by step,
and the time next to that of one plain SHA-256 over the same bytes. The goal: storing is one pass.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from feed.directory import DirectoryFeed
from feed.interface import LocalFile
from matrix.digest import tree_digest
from tests.bench.command import table
from workers.store import Action, Store

CHUNK = 1 << 20
FILES = 4
PACKAGE, VERSION = "bench", "0.0.0-bench"


class Meter:
    """Reads and seconds of a few steps, as ratios."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._process = psutil.Process()
        self.rows: list[tuple[object, ...]] = [("step", "reads of the bytes", "seconds", "of SHA")]
        self._plain = 0.0

    def step(self, name: str, work: Callable[[], object]) -> None:
        """Do it and write down what it took; the first step is what the others are measured by."""
        before, began = self._read(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        self._plain = self._plain or seconds
        passes = (self._read() - before) / self._size
        self.rows.append((name, f"{passes:.2f}", f"{seconds:.2f}", f"{seconds / self._plain:.2f}"))

    def _read(self) -> int:
        return int(self._process.io_counters().read_chars)


def make(folder: Path, size: int) -> None:
    """Files that no file system can make smaller."""
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"part-{number}.bin").open("wb") as stream:
            for _chunk in range(size // FILES // CHUNK):
                stream.write(os.urandom(CHUNK))


def digest(folder: Path) -> None:
    """One plain pass."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as stream:
            hashlib.file_digest(stream, "sha256")


def main(megabytes: int) -> None:
    """Store, take out, publish."""
    size = megabytes * CHUNK // (FILES * CHUNK) * FILES * CHUNK
    meter = Meter(size)
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        home = Path(name)
        feed = DirectoryFeed(home / "feed")
        feed.preflight()
        store = Store(home / "store")
        with store.scratch.borrow() as folder:
            out = folder / "out"
            make(out, size)
            meter.step("plain SHA-256", lambda: digest(out))
            made: list[Action] = []
            action = Action("0" * 64, {}, (), {}, {}, 0.0, 0)
            meter.step("into the store", lambda: made.append(store.ingest(out, action)))
        files, package = made[0].files, home / "package"
        meter.step("into a package", lambda: store.materialize(files, package))
        local = [LocalFile(file, package / file.path) for file in files]
        tree = tree_digest(files)
        meter.step(
            "into the feed", lambda: feed.publish(PACKAGE, VERSION, local, f"tree=sha256:{tree}")
        )
        meter.step("read back", lambda: feed.files(PACKAGE, VERSION))
        store.close()
    table(meter.rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
