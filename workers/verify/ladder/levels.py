"""The sum of a package's rungs: the level it reaches, and whether a view accepts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrix.codec import from_json
from matrix.errors import UsageError
from matrix.nearest import hint, quote
from matrix.verification import EP, RUNGS, TAKEN, Rung
from workers.verify.ladder.observed import took
from workers.verify.ladder.proof import OLD, proof_of

DEFAULT_LEVEL = "parity"


def up_to(level: str) -> tuple[str, ...]:
    """The rungs of a level."""
    return RUNGS[: RUNGS.index(level) + 1]


def standing(rung: Rung) -> bool:
    """Whether a rung holds: passed, waived, or optional and not requested by the catalog."""
    return rung.passed is True or bool(rung.waived) or (rung.name == "task" and rung.passed is None)


def failing(rungs: Sequence[Rung]) -> list[Rung]:
    """The rungs that do not hold."""
    return [rung for rung in rungs if not standing(rung)]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a view demands: a level, and whether on the target's own EP."""

    level: str
    own: bool

    @classmethod
    def parse(cls, text: str) -> Demand:
        """`parity` or `parity@ep`."""
        level, _, where = text.strip().partition("@")
        if level not in RUNGS or where not in {"", EP}:
            raise UsageError(
                f"{quote(text)} is not a level of verification", hint=hint(level, RUNGS)
            )
        return cls(level, where == EP)

    def lacks(self, record: Mapping[str, Any]) -> str:
        """Why a build record does not meet the demand; empty if it does."""
        listed = record.get("verification", ())
        rungs = {one["name"]: from_json(one, Rung, exact=False) for one in listed}
        for name in up_to(self.level):
            rung = rungs.get(name)
            if rung is None and name == "samples" and "parity" in rungs:
                return f"it was verified on {OLD}"
            if rung is None:
                return f"the rung {name} was not judged"
            if not standing(rung):
                return f"the rung {name} does not hold: {rung.detail}"
        found = proof_of(record.get("verification", ()))
        if found and found.unproven and "parity" in up_to(self.level):
            return f"its {found.samples} say nothing of a trained model"
        return self._lacks_own(record) if self.own else ""

    def _lacks_own(self, record: Mapping[str, Any]) -> str:
        if record.get("rules", {}).get("waive", {}).get(EP):
            return ""
        why = "it was not run on the target's own execution provider"
        for one in record.get("runtimes", ()):
            if one.get("own") and one.get("ran"):
                taken, every = one.get("taken", (0, 0))
                if taken >= TAKEN * every:
                    return ""
                why = f"it is parity on a mixture: {one.get('name')} {took(one)}"
                continue
            if "not_run" in one:
                why = f"{why}: {one['not_run']}"
            elif one.get("own"):
                why = f"{why}: {one.get('why', 'it took no node of the graph')}"
        return why
