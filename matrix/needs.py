"""What a cell needs of a machine and what a machine offers, in the same words.

`engine:NAME`, `os:NAME`, `arch:NAME`, `ep:NAME`, `compile:PROFILE`, `remote-code`, `pickle`, or any
word of a catalog's own. `memory:GB` is served by a machine that has as much or more.
`compile-emulated:PROFILE` is what a cell needs whose sweep lets an emulator compile: machines with
the device offer it too. `bench:EP/DEVICE` is what measuring a cell needs; a machine of a fleet
offers it if it has the device and announces that it measures. `bench-emulated:EP/DEVICE` is the
same where an emulator may be measured.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

Words = frozenset[str]

MEMORY = "memory"
MEASURES = ("bench:", "bench-emulated:")
"""How the needs of measuring begin."""


def compiling(profile: str, *, emulated: bool) -> str:
    """What a machine must offer to compile for a profile; `emulated`: an emulator may do it."""
    return f"compile-emulated:{profile}" if emulated else f"compile:{profile}"


def measuring(ep: str, device: str, *, emulated: bool) -> str:
    """What a machine must offer to measure on a device; `emulated`: an emulator may do it."""
    return f"bench-emulated:{ep}/{device}" if emulated else f"bench:{ep}/{device}"


def is_measuring(needs: Collection[str]) -> bool:
    """Whether work with these needs is to measure what is published, and not to build."""
    return any(word.startswith(MEASURES) for word in needs)


def serves(offers: Collection[str], needs: Collection[str]) -> bool:
    """Whether a machine that offers these words can do what needs those."""
    memory = max((_gigabytes(word) for word in offers), default=0.0)
    return all(
        _gigabytes(word) <= memory if word.startswith(f"{MEMORY}:") else word in offers
        for word in needs
    )


def emulates(offers: Collection[str], missing: Collection[str]) -> bool:
    """Whether an emulator of a machine would compile what it lacks the devices for."""
    devices = {word for word in missing if word.startswith("compile:")}
    profiles = [word.partition(":")[2] for word in devices]
    return (
        bool(devices)
        and set(missing) - devices <= {"remote-code", "pickle"}
        and all(compiling(profile, emulated=True) in offers for profile in profiles)
    )


def lacking(machines: Iterable[Words], needs: Collection[str]) -> list[str]:
    """What the machine that comes nearest does not offer; without a machine, every need."""
    lacks = [sorted(need for need in needs if not serves(offers, {need})) for offers in machines]
    return min(lacks, key=len, default=sorted(needs))


def to_text(words: Collection[str]) -> str:
    """Words as a column, an environment variable or a description holds them."""
    return json.dumps(sorted(set(words)))


def from_text(text: str | None) -> Words:
    """The words of such a text; none if it is anything else."""
    try:
        read = json.loads(text or "[]")
    except ValueError:
        return frozenset()
    return frozenset(map(str, read)) if isinstance(read, list) else frozenset()


def _gigabytes(word: str) -> float:
    kind, _, number = word.partition(":")
    return float(number) if kind == MEMORY and number.isdigit() else 0.0
