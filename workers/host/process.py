"""One child process and its pipe: start, send a line, take the next line, end."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine.children import ProcessTree
from matrix.codec import parse_json

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
