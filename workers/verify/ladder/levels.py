"""The sum of a package's rungs: what it was judged on and how well it agrees, the level that it
reaches, and whether a view accepts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrix.codec import from_json
from matrix.datasets import SYNTHETIC
from matrix.errors import UsageError
from matrix.nearest import hint, quote
from matrix.verification import EP, RUNGS, TAKEN, Rung

Json = Mapping[str, Any]
OLD = "synthetic samples, before samples were recorded"


@dataclass(frozen=True, slots=True)
class Proof:
    """The samples, and the worst figures of all outputs on all runtimes."""

    kind: str
    """`dataset`, `processor` or `synthetic`."""
    judged: int = 0
    """Samples of the verdict."""
    origin: str = ""
    trained: bool = True
    needs_real: bool = False
    """Synthetic samples prove nothing of it."""
    accepted: str = ""
    """Why the catalog accepts synthetic samples all the same."""
    snr: float | None = None
    """Decibels between what varies and the error."""
    agreement: float | None = None
    """The share of the decisions that are those of the export."""
    old: bool = False
    """Verified before samples were recorded: those were synthetic."""

    @property
    def unproven(self) -> bool:
        """Whether its samples say nothing of how it answers its users."""
        return self.old or (self.kind == SYNTHETIC and self.needs_real)

    @property
    def samples(self) -> str:
        """The samples for people, without numbers."""
        if self.old:
            return OLD
        why = self.accepted and f"accepted: {self.accepted}"
        if self.kind == SYNTHETIC and not self.trained:
            why = "random weights"
        return f"{self.kind} samples" + (f" ({why})" if why else "")

    def __str__(self) -> str:
        if self.old:
            return OLD
        told = [f"{self.judged} {self.samples}"]
        if self.snr is not None:
            told.append(f"{self.snr:g} dB")
        if self.agreement is not None:
            told.append(f"{self.agreement:.1%} agree")
        return ", ".join(told)


def proof_of(rungs: Sequence[Json]) -> Proof | None:
    """What these rungs say; None: the package was never compared."""
    named = {one.get("name"): _table(one.get("evidence")) for one in rungs}
    parity = named.get("parity")
    if "samples" not in named:
        judged = any(one.get("name") == "parity" and one.get("passed") is not None for one in rungs)
        return Proof(SYNTHETIC, old=True) if judged else None
    told = named["samples"]
    made = [one for one in _list(told.get("samples")) if isinstance(one, Mapping)]
    kinds = {str(one.get("kind", "")) for one in made} - {""}
    if not kinds:
        return None
    rows = [*_rows(parity or {})]
    judged_on = told.get("judged")
    return Proof(
        kind=SYNTHETIC if SYNTHETIC in kinds else min(kinds),
        judged=judged_on if isinstance(judged_on, int) else 0,
        origin=", ".join(dict.fromkeys(str(one.get("origin", "")) for one in made)),
        trained=told.get("trained") is not False,
        needs_real=told.get("needs_real") is True,
        accepted=str(told.get("reason", "")),
        snr=min(_numbers(rows, "snr"), default=None),
        agreement=min(_numbers(rows, "agreement"), default=None),
    )


def _rows(parity: Json) -> Iterator[Json]:
    """The figures of every output on every runtime."""
    for name, found in parity.items():
        if name not in {"limits", "samples", "generation"}:
            yield from (one for one in _table(found).values() if isinstance(one, Mapping))


def _numbers(rows: Sequence[Json], name: str) -> Iterator[float]:
    for one in rows:
        if isinstance(one.get(name), int | float):
            yield float(one[name])


def _table(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def took(run: Json) -> str:
    """How much the provider has taken, from the record of a run."""
    mine, every = run.get("taken") or (0, 0)
    weights, all_weights = run.get("weights") or (0, 0)
    told = f"took {mine} of {every} nodes"
    return told + (f" and {weights / all_weights:.1%} of the weights" if all_weights else "")


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
