"""Disks that lose what was not synced, and rot; their files have the times of the world."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import machine.files
import workers.store.actions
import workers.store.blobs
from tests.simulation.world import Machine, World


@contextmanager
def watched_disks(world: World) -> Iterator[None]:
    """Note what is synced, and give files the times of the world."""
    flush_file, touch = machine.files.flush_file, workers.store.actions.Actions.touch
    write = workers.store.actions.Actions.write
    path_touch = Path.touch

    def flush(path: Path) -> None:
        flush_file(path)
        if world.here is not None:
            world.here.machine.durable.add(_identity(path))

    def mark(path: Path) -> None:
        with suppress(OSError):
            os.utime(path, (world.mark(),) * 2)

    def touched(actions: workers.store.actions.Actions, key: str) -> None:
        touch(actions, key)
        mark(actions.path(key))

    def written(actions: workers.store.actions.Actions, key: str, value: Any) -> None:
        write(actions, key, value)
        mark(actions.path(key))

    def pinned(path: Path, *given: Any, **named: Any) -> None:
        path_touch(path, *given, **named)
        if world.here is not None:
            mark(path)

    patches: list[tuple[Any, str, Any]] = [
        (os, "fsync", lambda _descriptor: None),  # a crash of the world is none of this machine
        (machine.files, "flush_file", flush),
        (workers.store.blobs, "flush_file", flush),
        (workers.store.actions.Actions, "touch", touched),
        (workers.store.actions.Actions, "write", written),
        (Path, "touch", pinned),
    ]
    with ExitStack() as stack:
        for where, name, new in patches:
            stack.enter_context(mock.patch.object(where, name, new))
        yield


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _blobs(machine_: Machine) -> list[Path]:
    return sorted(path for path in (machine_.disk / "store/blobs").glob("*/*") if path.is_file())


def lose_unsynced(machine_: Machine, chance: random.Random) -> None:
    """The power fails: what was not synced is empty, or as long as it was and full of zeros."""
    machine_.intact = False
    records = sorted((machine_.disk / "store/actions").glob("*/*.json"))
    for path in [*_blobs(machine_), *records]:
        if _identity(path) in machine_.durable or chance.random() < 0.5:
            continue
        size = path.stat().st_size if chance.random() < 0.5 else 0
        _replace(path, b"\0" * size)


def rot(machine_: Machine, chance: random.Random) -> None:
    """One blob holds other bytes of the same length."""
    if found := _blobs(machine_):
        path = chance.choice(found)
        machine_.intact = False
        _replace(path, b"r" * path.stat().st_size)


def _replace(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)
