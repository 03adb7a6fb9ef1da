"""The child process: `python child.py --serve MODULE:ATTR --package NAME=PATH ...`.

Started by path, so that it also runs in an interpreter without modelmill: the packages it needs are
named one by one and imported from where they are, without our site-packages, so the child uses the
other interpreter's numpy and onnx. Standard library only, Python 3.10 or newer.

One JSON object per line. In: `{id, op, args, log}`. Out: `{ready}` once, then for each request
any number of `{id, progress}` and one `{id, ok, result, peak}` or `{id, ok: false, error}`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol


class Service(Protocol):
    """What a child can serve: an engine through `EngineService`, a runtime, the verifier."""

    def call(self, op: str, args: Any, progress: Any) -> Any:
        """Answer one request with a JSON value, or raise."""


class Channel:
    """The private pipe to the owner; nothing that prints can reach it."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests = requests
        self._replies = replies
        self._lock = threading.Lock()
        self.inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    @classmethod
    def take_over(cls) -> Channel:
        """Move the pipe away from fds 0 and 1 and point those at nothing and at the log (fd 2).

        The duplicates are not inheritable: a grandchild cannot hold the pipe open.
        """
        channel = cls(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        return channel

    def send(self, message: dict[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            while line:
                line = line[self._replies.write(line) :]

    def listen(self) -> None:
        """Read requests in a thread for ever; the end of the pipe is the end of this process."""
        threading.Thread(target=self._listen, name="requests", daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._requests:
                self.inbox.put(json.loads(line))
        end_process_tree()


def end_process_tree() -> None:
    """End this process and all its children at once, even during a request.

    Windows ends the tree by itself: the owner held the only handle of its Job Object.
    """
    if sys.platform != "win32":
        for pid in descendants(os.getpid()):  # some may have left our process group
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def descendants(pid: int) -> list[int]:
    """All descendants, where the system lists them cheaply (Linux)."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, listing.read_text().split()):
                found += [*descendants(child), child]
    return found


def provide_package(name: str, path: Path) -> None:
    """Make one package importable from where it is, and nothing beside it."""
    folder = path.is_dir()
    init = path / "__init__.py" if folder else path
    spec = importlib.util.spec_from_file_location(
        name, init, submodule_search_locations=[str(path)] if folder else None
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be loaded from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if init.exists():
        spec.loader.exec_module(module)


def load_service(target: str) -> Service:
    """Import MODULE:ATTR and call it; what has no `call` is an engine."""
    module, _, attribute = target.partition(":")
    served = getattr(importlib.import_module(module), attribute)()
    if hasattr(served, "call"):
        service: Service = served
        return service
    wrapper = importlib.import_module("workers.host.service")
    wrapped: Service = wrapper.EngineService(served)
    return wrapped


def flush_everything() -> None:
    """Python's and C's buffers, so that no output of this request lands in the next one's log."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).fflush(None)


@contextlib.contextmanager
def output_to(log: str | None) -> Iterator[None]:
    """Let fds 1 and 2 be the cell's log for one request."""
    if not log:
        yield
        return
    own = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for fd in (1, 2):
            os.dup2(target, fd)
        os.close(target)
        yield
    finally:
        flush_everything()
        for fd in (1, 2):
            os.dup2(own, fd)
        os.close(own)


def reset_peak() -> None:
    """Start a new high-water mark of memory, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def memory(what: str = "VmHWM") -> int:
    """The memory of this process in bytes: its high-water mark since `reset_peak`, or what it has
    now (`VmRSS`); 0 where the system has no cheap answer."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text()
        return int(status.split(f"{what}:", 1)[1].split(None, 1)[0]) * 1024
    return 0


def give_back() -> None:
    """Return the memory that a closed session has freed to the system.

    The allocator would keep it: a process that waits for its next model would hold the memory of
    the last one, while another process of the same slot opens that model too.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without it
            ctypes.CDLL(None).malloc_trim(0)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the owner gets it; a `StageError` has a class, a hint and more."""
    kind = type(error).__name__
    text = str(error).strip()
    known = hasattr(error, "failure") and hasattr(error, "retryable")
    failure = str(getattr(error, "failure", ""))
    if isinstance(error, MemoryError):
        failure = "MEMORY"
    elif isinstance(error, OSError) and not known:
        disk = importlib.import_module("machine.disk")  # on the path only once it was provided
        failure = "DISK" if disk.is_full(error) else ""
    return {
        "type": kind,
        "message": text if known else (f"{kind}: {text}" if text else kind),
        "failure": failure,
        "hint": str(getattr(error, "hint", "")) if known else "",
        "retryable": bool(getattr(error, "retryable", False)) if known else False,
    }


def answer(service: Service, channel: Channel, request: dict[str, Any]) -> dict[str, Any]:
    """Serve one request; anything it raises becomes its reply."""

    def progress(text: str) -> None:
        channel.send({"id": request["id"], "progress": str(text)})

    try:
        with output_to(request.get("log")):
            reset_peak()
            try:
                result = service.call(request["op"], request["args"], progress)
            except BaseException:
                traceback.print_exc()
                raise
    # Anything an engine raises, SystemExit included, belongs to its request: it is reported.
    except BaseException as error:  # noqa: BLE001
        return {"ok": False, "error": describe(error), "peak": memory()}
    return {"ok": True, "result": result, "peak": memory()}


def serve(service: Service, channel: Channel) -> None:
    """Answer requests until the owner goes away."""
    while True:
        request = channel.inbox.get()
        reply = answer(service, channel, request)
        try:
            channel.send({"id": request["id"], **reply})
        except (TypeError, ValueError) as error:
            channel.send({"id": request["id"], "ok": False, "error": describe(error)})


def main() -> None:
    """Set up the process, load the service, serve it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", required=True)
    parser.add_argument("--package", action="append", default=[])
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    channel = Channel.take_over()
    channel.listen()
    faulthandler.enable()  # a native crash leaves its Python stack in the log
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    try:
        for package in options.package:
            name, _, path = package.partition("=")
            provide_package(name, Path(path))
        service = load_service(options.serve)
    # The owner gets one line about a service that cannot be loaded; the log has the rest.
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        channel.send({"ready": False, "error": describe(error)})
        return
    channel.send({"ready": True, "pid": os.getpid(), "python": sys.version.split()[0]})
    serve(service, channel)


if __name__ == "__main__":
    main()
