"""What inspection and the runtimes have observed of a package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workers.runtimes.runtime import Missing, Runtime
from workers.session import CPU

if TYPE_CHECKING:
    from workers.verify.ladder.reference import Reference

Json = Mapping[str, Any]
Judgement = tuple[bool | None, list[str], dict[str, Any]]
"""Passed (None: not judged), what is wrong or noteworthy, evidence."""
RAN_WRONG = ("open", "run", "crash")
"""Where a runtime or a model is at fault."""
MISFIT = "feed"
"""Where the input values do not fit the model: its ports differ from the export's."""


@dataclass(slots=True)
class RuntimeRun:
    """A package on one runtime."""

    runtime: Runtime
    own: bool
    """Whether it is the target's own execution provider and device."""
    models: dict[str, Json] = field(default_factory=dict)
    """Model file -> the answer of `measure`."""
    joined: Json = field(default_factory=dict)
    """Joined outputs of a composite -> their distance from the export's."""
    generated: Json = field(default_factory=dict)
    """Of a decoder: the tokens and logits that its components generate."""

    @property
    def well(self) -> bool:
        """Whether every model of the package ran."""
        return bool(self.models) and not self.problems(*RAN_WRONG, MISFIT)

    def problems(self, *points: str) -> list[str]:
        """What went wrong at these points (open, feed, run, crash), a line for each model."""
        return [
            f"{model} on {self.runtime.name}: {answer['error']}"
            for model, answer in self.models.items()
            if answer.get("at") in points
        ]

    def taken(self) -> tuple[int, int]:
        """The nodes that the provider itself took, and all: those that compute (`verify.taken`), or
        every node where the runtime does not list them."""
        mine = every = 0
        for answer in self.models.values():
            counts = dict(answer.get("taken") or {}).get("nodes") or self._counted(answer)
            mine, every = mine + counts[0], every + counts[1]
        return mine, every

    def weights(self) -> tuple[int, int]:
        """The bytes of weights that the nodes it took read, and those that any node reads; zeros:
        the runtime does not list its nodes."""
        counts = [one["taken"]["weights"] for one in self.models.values() if one.get("taken")]
        return sum(one[0] for one in counts), sum(one[1] for one in counts)

    def _counted(self, answer: Json) -> tuple[int, int]:
        nodes = dict(answer.get("nodes", {}))
        every = sum(nodes.values())
        return every - (nodes.get(CPU, 0) if self.runtime.provider != CPU else 0), every

    def to_json(self) -> dict[str, Any]:
        """For the build record."""
        counted = [*map(self._counted, self.models.values())]
        did = self.well and (any(mine for mine, _ in counted) or not any(n for _, n in counted))
        record = {
            **self.runtime.to_json(),
            "name": self.runtime.name,
            "own": self.own,
            "nodes": {model: dict(one.get("nodes", {})) for model, one in self.models.items()},
            "seconds": {
                model: {"open": one.get("open_seconds"), "run": one.get("run_seconds")}
                for model, one in self.models.items()
            },
            "ran": did,
            "taken": [*self.taken()],
            "weights": [*self.weights()],
        }
        if not did:
            broken = self.problems(*RAN_WRONG, MISFIT)
            record["why"] = broken[0] if broken else "it took no node of the graph"
        return record


@dataclass(slots=True)
class Observed:
    """Everything that the rungs judge."""

    files: list[str] = field(default_factory=list)
    """What is wrong with the package's files."""
    models: dict[str, Json] = field(default_factory=dict)
    """Model file -> the answer of `inspect`."""
    exported: dict[str, Json] = field(default_factory=dict)
    """The same for the export, where a rung needs it."""
    passes: tuple[str, ...] | None = None
    """The passes that the manifest lists as blocked; None: it does not say."""
    reference: dict[str, Json] = field(default_factory=dict)
    """Model file -> the export on ONNX Runtime's CPU."""
    no_reference: str = ""
    """Why there is nothing to compare with."""
    compared: Reference | None = None
    """What the package is compared with."""
    no_samples: str = ""
    """Why there is nothing to judge it on."""
    exercised: dict[str, Json] = field(default_factory=dict)
    """Component -> how far the outputs of the reference vary, and which values inputs take."""
    sampled: list[Json] = field(default_factory=list)
    """What the manifest says of the samples: kind, origin, parts."""
    calibrated: Mapping[str, Json] = field(default_factory=dict)
    """Component -> input -> the range of its values that calibration has seen."""
    samples: int = 0
    """The samples of the package."""
    stopped: str = ""
    """Why nothing was run at all."""
    runs: list[RuntimeRun] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    """Why the target's own provider could not be used."""
    opening: Json = field(default_factory=dict)
    """Model file -> time and memory for opening the portable and the compiled model."""

    def judged(
        self, problems: list[str], evidence: dict[str, Any], unseen: Sequence[str] = ()
    ) -> Judgement:
        """A rung over all runs: problems decide, then whether everything could be compared.

        `unseen`: why something could not be compared although the model ran.
        """
        if problems:
            return False, problems, evidence
        broken = [run for run in self.runs if not run.well]
        if len(broken) == len(self.runs):
            misfits = [text for run in broken for text in run.problems(MISFIT)]
            wrong = [text for run in broken for text in run.problems(*RAN_WRONG)]
            why = f"no input values fit: {misfits[0]}" if misfits and not wrong else "loads failed"
            return not_run(why, evidence)
        if unseen:
            return not_run(unseen[0], evidence)
        notes = [f"not run on {run.runtime.name}: because loads failed there" for run in broken]
        return True, notes, evidence


def not_run(why: str, evidence: dict[str, Any] | None = None) -> Judgement:
    """A rung that a lower one, or something missing, keeps from being judged: it has not failed."""
    return None, [f"not run: because {why}"], evidence or {}
