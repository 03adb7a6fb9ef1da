"""What cells of a plan need from a machine, and what this one offers; see `matrix.needs`."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from flows.settings.engines import runtimes_of
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.memory import total
from matrix.model import Cell, Profile, Target
from matrix.needs import MEMORY, Words, compiling, measuring
from workers.compile.devices import available
from workers.runtimes.runtime import KINDS, ORT, Missing, Runtime

_SAFETY = 1.25
_WORTH_SAYING = 2.0
"""GB; less than this every machine has."""


def needs_of(cell: Cell, engine: str, values: Mapping[str, Any], memory: float = 0.0) -> Words:
    """The words that a machine must offer to be given this cell.

    `values`: the settings of the sweep; `memory`: the bytes that its model took at its peak.
    """
    words = {*cell.needs, *values.get("needs", ())}
    if cell.origin is not None:  # nothing of it comes from the source
        return frozenset(words)
    words.add(f"engine:{engine}")
    if cell.model.remote_code and values.get("allow_remote_code"):
        words.add("remote-code")
    if cell.model.pickle and values.get("allow_pickle"):
        words.add("pickle")
    if (wanted := memory * _SAFETY / 1e9) >= _WORTH_SAYING:
        words.add(f"{MEMORY}:{math.ceil(wanted)}")
    return frozenset(words)


def bench_needs_of(cell: Cell, *, emulated: bool) -> Words:
    """The words that a machine must offer to measure this cell."""
    words = {measuring(cell.target.ep, cell.target.device, emulated=emulated)}
    if cell.profile is not None:
        words.add(compiling(cell.profile.label, emulated=emulated))
    return frozenset(words)


def words_here(
    settings: Settings,
    engines: Iterable[str],
    more: Iterable[str] = (),
    profiles: Iterable[Profile] = (),
    benches: Iterable[Target] = (),
) -> Words:
    """What this machine offers. Memory in powers of two, so that like machines are alike.

    `profiles` and `benches`: those to compile for and to measure on that are asked about; finding
    out starts their runtimes.
    """
    ceiling = settings.memory or total()
    words = {
        f"os:{platform.system().lower()}",
        f"arch:{platform.machine().lower()}",
        f"{MEMORY}:{2 ** int(math.log2(max(ceiling / 1e9, 1.0)))}",
        *(f"engine:{name}" for name in engines),
        *(f"ep:{name}" for name in _runtimes(settings)),
        *more,
        *_devices_here(settings, tuple(profiles), tuple(benches)),
    }
    if settings.allow_remote_code:
        words.add("remote-code")
    if settings.allow_pickle:
        words.add("pickle")
    return frozenset(words)


def _devices_here(
    settings: Settings, profiles: Collection[Profile], benches: Collection[Target]
) -> Iterator[str]:
    """The words about compiling for devices and measuring on them."""
    if not profiles and not benches:
        return
    with closing(runtimes_of(settings)) as runtimes:
        found: dict[Callable[..., str], Runtime | Missing] = {}
        for profile, here in available(runtimes, profiles, Workspace(settings).targets()):
            found[partial(compiling, profile.label)] = here
        for target in benches:
            found[partial(measuring, target.ep, target.device)] = runtimes.for_target(target)
        for word, runtime in found.items():
            if isinstance(runtime, Runtime):
                yield word(emulated=True)
                if not runtime.emulated:
                    yield word(emulated=False)


def _runtimes(settings: Settings) -> list[str]:
    """The providers besides ONNX Runtime's CPU on which cells can be run here."""
    allowed = settings.runtimes
    return [
        kind.name
        for kind in KINDS
        if kind is not ORT
        and (kind.installed or kind.name in settings.engine_pythons)
        and (not allowed or kind.name in allowed)
    ]
