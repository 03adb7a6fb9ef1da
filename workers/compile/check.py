"""Checking a compiled model: it opens on its provider and answers as the portable model does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.verification import Threshold
from workers.host.watch import Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime
from workers.verify.ladder.parity import too_far

SAME = Threshold(cosine=0.9999)
"""Compiling changes numbers only through the order of operations."""
SETS = 3
SHARED = "this emulator cannot open a context that holds several graphs"


Declared = tuple[str, str, tuple[int | str | None, ...]]
"""Name, type and shape of an input or output."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What opening a model took."""

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. `passed` is None where it could not be run."""

    passed: bool | None
    detail: str
    portable: Opening | None = None
    compiled: Opening | None = None
    inputs: tuple[Declared, ...] = ()
    """As the compiled model declares them."""
    outputs: tuple[Declared, ...] = ()


def check_compiled(
    runtimes: Runtimes,
    runtime: Runtime,
    portable: Path,
    compiled: Path,
    scratch: Path,
    watching: Watching,
    *,
    shared: bool,
) -> Checked:
    """Open and run the portable model, then the compiled one, on the provider that compiled."""
    if shared and not runtime.shared_contexts:
        return Checked(None, SHARED)
    reference = scratch / "reference.npz"
    told = runtimes.measure(runtime, _request(portable, save=reference), watching)
    if told.get("error"):
        return Checked(None, f"the portable model does not run: {told['error']}")
    found = runtimes.measure(runtime, _request(compiled, reference=reference), watching)
    problem = found.get("error") or _other_ports(told, found) or _too_far(found)
    return Checked(
        passed=not problem,
        detail=str(problem or f"answers as the portable model does on {runtime.name}"),
        portable=_opening(told),
        compiled=_opening(found),
        inputs=_ports(found, "inputs"),
        outputs=_ports(found, "outputs"),
    )


def _request(file: Path, **more: Path) -> dict[str, Any]:
    files = {key: str(one) for key, one in more.items()}
    return {"file": str(file.absolute()), "sets": SETS, **files}


def _opening(told: Mapping[str, Any]) -> Opening | None:
    if "open_seconds" not in told:
        return None
    return Opening(float(told["open_seconds"]), int(told["open_memory"]))


def _ports(found: Mapping[str, Any], side: str) -> tuple[Declared, ...]:
    return tuple((name, kind, tuple(shape)) for name, kind, shape in found.get(side, ()))


def _other_ports(told: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    for side in ("inputs", "outputs"):
        if told[side] != found[side]:
            return f"its {side} are not those of the portable model"
    return ""


def _too_far(found: Mapping[str, Any]) -> str:
    for name, one in found["parity"].items():
        if text := one.get("absent") or too_far(one, SAME, "the portable model"):
            return f"output {name}: {text}"
    return ""
