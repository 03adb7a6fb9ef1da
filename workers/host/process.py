"""One child process: what it serves, its command and environment, and its pipe.

The environment is quiet, deterministic, and without the credentials of the sweep.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.children import ProcessTree
from matrix.codec import parse_json
from matrix.credentials import without_credentials

CHILD = Path(__file__).with_name("child.py")
ROOMS = CHILD.parents[2]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The object to serve and its interpreter (None: ours)."""

    name: str
    target: str
    """MODULE:ATTR."""
    python: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command that starts the child; it names every package that the child needs."""
        packages = {name: ROOMS / name for name in ("matrix", "machine", "workers")}
        top = self.target.partition(":")[0].partition(".")[0]
        if top not in packages and (origin := _origin(top)) is not None:
            packages[top] = origin
        named = [f"--package={name}={path}" for name, path in packages.items()]
        python = str(self.python or sys.executable)
        return [python, "-X", "utf8", str(CHILD), "--serve", self.target, *named]


def _origin(package: str) -> Path | None:
    """Where a top-level module of ours is, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and Path(spec.origin).exists() else None


NEEDED_CREDENTIAL = "HF_TOKEN"
"""Gated models need it; it is masked in everything the child leaves behind."""

OTHER_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that would lead another interpreter to our packages."""

SETTINGS = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # read when ONNX Runtime is imported
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",  # the order of a set must not change a byte of an artifact
    "PYTHONUTF8": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
}

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def child_environment(
    parent: Mapping[str, str], extra: Mapping[str, str], *, foreign: bool, threads: int = 0
) -> dict[str, str]:
    """The allowed part of `parent`, then our settings, then `extra`; later ones win."""
    passed = without_credentials(parent, lambda name: name == NEEDED_CREDENTIAL)
    if foreign:
        passed = {name: text for name, text in passed.items() if name not in OTHER_INTERPRETER}
    limits = dict.fromkeys(THREADS, str(threads)) if threads else {}
    return {**passed, **SETTINGS, **limits, **extra}


def mask(text: str, secret: str | None) -> str:
    """`text` with the secret masked, unless that is too short to be one."""
    return text.replace(secret, "*" * len(secret)) if secret and len(secret) >= 8 else text


LONGEST_LINE = 64 * 1024 * 1024
"""The limit of a reply."""

Message = dict[str, Any]


class HostProcess:
    """A running child."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, own_log: Path
    ) -> None:
        with own_log.open("ab") as stderr:
            self.tree = ProcessTree(command, env, cwd, stderr=stderr)
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._ended = False
        self.closed = False
        """Whether we ended it."""
        threading.Thread(target=self._read, name=f"host-{self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.tree.popen.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.tree.popen.poll()

    @property
    def alive(self) -> bool:
        """Whether it can still take requests."""
        return not self._ended and self.exit_code is None

    def send(self, message: Message) -> bool:
        """Write one request; False if the child has ended."""
        pipe = self.tree.popen.stdin
        try:
            if pipe is None or self._ended:
                return False
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
        except (OSError, ValueError):  # ValueError: closed by `end` in another thread
            return False
        return True

    def receive(self, timeout: float) -> Message | None:
        """The next line of the child; None after its last one.

        Raises `queue.Empty` if none comes in time.
        """
        if self._ended:
            return None
        message = self._inbox.get(timeout=timeout)
        self._ended = message is None
        return message

    def wait(self, timeout: float) -> None:
        """Wait for the exit code of a dying child."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.tree.popen.wait(timeout)

    def end(self) -> int | None:
        """Kill the tree, close the pipe; returns the exit code. Safe to call again."""
        self._ended = self.closed = True
        self.tree.kill()
        if self.tree.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.tree.popen.stdin.close()
        self._inbox.put(None)
        return self.exit_code

    def _read(self) -> None:
        pipe = self.tree.popen.stdout
        if pipe is None:
            return
        with pipe, contextlib.suppress(OSError, ValueError):
            while line := pipe.readline(LONGEST_LINE):
                message = parse_json(line)
                if not isinstance(message, dict):
                    break
                self._inbox.put(message)
        self._inbox.put(None)
