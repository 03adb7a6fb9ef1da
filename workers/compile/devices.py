"""Which runtime of this machine compiles for a profile, and what the result depends on."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrix.errors import UsageError
from matrix.model import Profile, Target
from matrix.targets import Targets
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import KINDS, ORT, Kind, Missing, Runtime, kind_named, kinds_for


def runtime_for(
    runtimes: Runtimes, profile: Profile, target: Target, *, emulated: bool
) -> Runtime | Missing:
    """The runtime that compiles for a profile here, with the profile's options; or why there is
    none."""
    name, _at, virtual = profile.runtime.partition("@")
    kind = kind_named(name)
    if kind is None:
        raise UsageError(
            f"profile {profile.label} names an unknown runtime '{name}'",
            hint=f"there are {', '.join(one.name for one in KINDS)}",
        )
    others = [] if virtual or kind is ORT else [*kinds_for(target.provider)]
    asked = [kind, *(one for one in others if one.compiles and one is not kind and one is not ORT)]
    found = _first(runtimes, asked, target, virtual)
    if isinstance(found, Missing):
        return found
    if found.emulated and not profile.emulator:
        why = f"profile {profile.label} needs the device itself, and here it is emulated"
        return Missing(target.provider, target.device, why)
    if found.emulated and not emulated:
        why = f"{target.provider} {target.device} is emulated here"
        return Missing(target.provider, target.device, why, "allow it with --emulated")
    return replace(found, options={**found.options, **profile.options})


def _first(
    runtimes: Runtimes, kinds: Sequence[Kind], target: Target, virtual: str
) -> Runtime | Missing:
    """The first kind's that has the device, else an emulator of it, else why the very first of them
    has neither."""
    answers: dict[str, Runtime | Missing] = {}
    for kind in sorted(kinds, key=lambda one: one.last):
        found = runtimes.provider_on(kind, target.provider, target.device, virtual)
        if isinstance(found, Runtime) and not found.emulated:
            return found
        answers[kind.name] = found
    emulated = [one for one in answers.values() if isinstance(one, Runtime)]
    return emulated[0] if emulated else answers[kinds[0].name]


def parameters(runtime: Runtime, profile: Profile, base: Path = Path()) -> dict[str, Any]:
    """Everything beside the models that can change a byte of what is compiled, for stage keys.

    Not the label of the profile: two profiles that ask for the same give the same. Options that
    name a file count by its content, `backend_path` of our own not at all: the version says it.
    """
    options = {name: value for name, value in runtime.options.items() if name != "backend_path"}
    for name in profile.file_options:
        options[name] = _content(name, options[name], base)
    return {
        "provider": runtime.provider,
        "version": runtime.version,
        "options": options,
        "backend": profile.backend,
        "embed": profile.embed,
        "system": f"{sys.platform}-{platform.machine().lower()}",
        "emulated": runtime.emulated,
        "device": runtime.detail if profile.asks_device else "",
        **({"virtual": runtime.virtual} if runtime.virtual else {}),
    }


def _content(name: str, value: str, base: Path) -> str:
    path = base / value
    try:
        return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"option {name}: {path} cannot be read: {error.strerror}") from None


def available(
    runtimes: Runtimes, profiles: Iterable[Profile], targets: Targets, *, emulated: bool = True
) -> list[tuple[Profile, Runtime | Missing]]:
    """Every profile with the runtime of this machine that compiles for it and opens the result."""
    return [
        (one, runtime_for(runtimes, one, targets.get(one.target), emulated=emulated))
        for one in profiles
    ]
