"""Part of the rung `parity`: a decoder generates what PyTorch does.

Every step was given PyTorch's token. The export, and an fp32 package on ONNX Runtime's CPU, must
find PyTorch's next token at every step. A coarser precision may prefer a token that is nearly as
likely: there the logits of all steps are compared with the export's, like any other output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.runtimes.runtime import CPU
from workers.verify.ladder.observed import Json, RuntimeRun

EXACT = "fp32"
LOGITS = "logits"
ROW = "generated logits"


def rows(run: RuntimeRun) -> dict[str, Json]:
    """The distance of the logits from the export's, over all steps."""
    found = dict(run.generated.get("parity", {}))
    return {ROW: found[LOGITS]} if found else {}


def problems(run: RuntimeRun, precision: str) -> list[str]:
    """Why a run does not generate what PyTorch does; empty: it does, or it is no decoder."""
    told: list[str] = []
    exported = run.generated.get("export", {})
    for who, one in (("the export", exported), (run.runtime.name, run.generated)):
        if "error" in one:
            told.append(f"{who} cannot generate: {one['error']}")
    told += _other("the export", exported)
    if precision == EXACT and run.runtime.provider == CPU and not told:
        told += _other(run.runtime.name, run.generated)
    return told


def evidence(runs: Sequence[RuntimeRun]) -> dict[str, Any]:
    """PyTorch's tokens, and how many of them every runtime finds."""
    found = {run.runtime.name: run.generated for run in runs if "tokens" in run.generated}
    if not found:
        return {}
    told = {name: {"tokens": one["tokens"], "same": _same(one)} for name, one in found.items()}
    return {"generation": {"pytorch": next(iter(found.values()))["wanted"], **told}}


def summary(run: RuntimeRun) -> str:
    """For people: how many tokens are PyTorch's; empty: nothing was generated."""
    one = run.generated
    if "tokens" not in one:
        return ""
    return f"{_same(one)} of {len(one['wanted'])} generated tokens are PyTorch's"


def _same(one: Json) -> int:
    return sum(a == b for a, b in zip(one["tokens"], one["wanted"], strict=True))


def _other(who: str, one: Json) -> list[str]:
    pairs = zip(one.get("tokens", ()), one.get("wanted", ()), strict=True)
    for number, (found, wanted) in enumerate(pairs, 1):
        if found != wanted:
            return [f"token {number} that {who} generates is {found}, PyTorch's is {wanted}"]
    return []
