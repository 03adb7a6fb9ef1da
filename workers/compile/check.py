"""Checking a compiled model: it opens on its provider and answers as the portable model does.

Both run on samples that the package is judged on, or on seeded values if there is no package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matrix.digest import SAMPLES, is_reference
from matrix.verification import Limit
from workers.host.watch import Watching
from workers.numerics.compare import fault
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

SAME = Limit(snr=37.0)
"""Compiling changes numbers only through the order of operations."""
SETS = 3
SHARED = "this emulator cannot open a context that holds several graphs"


VIRTUAL = "the device that it is compiled for is not here"


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
    inputs: Sequence[Any] = ()
    """As the compiled model declares them: name, type and shape of each."""
    outputs: Sequence[Any] = ()


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
    if runtime.virtual:
        return Checked(None, VIRTUAL)
    if shared and not runtime.shared_contexts:
        return Checked(None, SHARED)
    reference = scratch / "reference.npz"
    samples = samples_of(portable)
    told = runtimes.measure(runtime, _request(portable, samples, save=reference), watching)
    if told.get("error"):
        return Checked(None, f"the portable model does not run: {told['error']}")
    found = runtimes.measure(runtime, _request(compiled, samples, reference=reference), watching)
    problem = found.get("error") or next(_differences(told, found), "")
    return Checked(
        passed=not problem,
        detail=str(problem or f"answers as the portable model does on {runtime.name}"),
        portable=_opening(told),
        compiled=_opening(found),
        inputs=found.get("inputs", ()),
        outputs=found.get("outputs", ()),
    )


def samples_of(model: Path) -> list[str]:
    """Judged samples of the package that a model is in; none: it is in no package."""
    beside = model.parent
    for folder in (
        beside / SAMPLES / model.stem,
        beside / SAMPLES,
        beside.parent / SAMPLES / beside.name,
    ):
        names = [one for one in folder.glob("*.npz") if not is_reference(f"{SAMPLES}/{one.name}")]
        if names:
            return [str(one.absolute()) for one in sorted(names)[:SETS]]
    return []


def _request(file: Path, samples: Sequence[str], **more: Path) -> dict[str, Any]:
    files = {key: str(one) for key, one in more.items()}
    given = {"samples": list(samples)} if samples else {"sets": SETS}
    return {"file": str(file.absolute()), "limit": asdict(SAME), **given, **files}


def _opening(told: Mapping[str, Any]) -> Opening | None:
    if "open_seconds" not in told:
        return None
    return Opening(float(told["open_seconds"]), int(told["open_memory"]))


def _differences(told: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for side in ("inputs", "outputs"):
        if told[side] != found[side]:
            yield f"its {side} are not those of the portable model"
    for name, one in found["parity"].items():
        if text := one.get("absent") or fault(one, SAME, "the portable model"):
            yield f"output {name}: {text}"
