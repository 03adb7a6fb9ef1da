"""What a catalog says about verification: thresholds of its own, waivers, a task metric.

    verify.parity.w8a16 = { snr = 15, reason = "a head that nobody reads" }
    verify.waive        = { ep = "no NPU in the lab yet" }
    verify.task         = { dataset = "eval.npz", metric = "accuracy", within = 0.02 }

An exception to the rules needs a reason, which every record of the cell shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matrix.codec import from_json
from matrix.model import Cell
from matrix.nearest import hint, quote
from matrix.policy import PRECISIONS, canonical, overrides_of
from matrix.reader import Entry

RUNGS = ("integrity", "policy", "loads", "shapes", "samples", "parity", "task")
"""The ladder, lowest first: a level demands its rung and all below it."""
EP = "ep"
"""Stands for `was run on the target's own EP` where a view demands that."""
SNR = {
    "fp32": 57.0, "fp16": 30.0, "w8a16": 15.0, "w8a8": 12.0, "w8": 20.0, "w4": 10.0,
    "w4a16": 10.0,
}  # fmt: skip
"""How many decibels the signal of an output (what varies between samples) must be above its error.

20 dB: the error is a tenth of the signal, which is a cosine of 0.995 for values around zero. Of
trained models in w8a16 (`tests.bench.truth`), those that lose their task have 12.5 dB or less, and
the worst output of all-MiniLM-L6-v2, which loses nothing, has 19.
"""
AGREEMENT = {
    "fp32": 1.0, "fp16": 0.99, "w8a16": 0.97, "w8a8": 0.9, "w8": 0.97, "w4": 0.9, "w4a16": 0.9,
}  # fmt: skip
"""The least share of decisions (classes, tokens, spans, ...) that are those of the export."""
FLOOR = {
    "fp32": 0.005, "fp16": 0.01, "w8a16": 0.002, "w8a8": 0.03, "w8": 0.0005, "w4": 0.0005,
    "w4a16": 0.002,
}  # fmt: skip
"""How much of its size an output must vary between samples: less than that is so near to a step of
the precision that the error it may have could not be told from rounding."""
TAKEN = 0.9
"""The share of the nodes that a provider must take for parity to be parity on it."""
MORE_BITS = 0.5
"""The largest share of weights that may have more bits than the precision says."""
IN_FLOAT = 0.25
"""The largest share of multiplications that a w8a16 or w8a8 graph may do in floating point."""
METRICS = ("accuracy", "agreement")
WITHIN = 0.02


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the verification ladder with its evidence; `passed` None: could not be run."""

    name: str
    passed: bool | None
    detail: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    waived: str = ""
    """Why the catalog accepts its failure."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What parity requires of every output."""

    snr: float
    """Decibels."""
    agreement: float = 1.0
    floor: float = FLOOR["fp32"]
    max_abs: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float:
        """The largest error as a share of the signal."""
        return float(10 ** (-self.snr / 20))

    @classmethod
    def usual(cls, precision: str) -> Limit:
        """Of a precision."""
        return cls(SNR[precision], AGREEMENT[precision], FLOOR[precision])


EXPORT = Limit(snr=47.0)
"""Of an export, against the model that it is made from: a cosine of 0.99999 in values around zero.
"""


@dataclass(frozen=True, slots=True)
class Task:
    """A metric on a dataset, compared with the source model's."""

    dataset: str
    metric: str
    within: float = WITHIN


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one cell."""

    parity: Mapping[str, Limit] = field(default_factory=dict)
    """By precision, where the catalog sets one."""
    waive: Mapping[str, str] = field(default_factory=dict)
    """Rung -> the reason for which its failure is accepted."""
    task: Task | None = None

    def limit(self, precision: str) -> Limit:
        """The catalog's, or the default."""
        return self.parity.get(precision) or Limit.usual(precision)


def rules_of(cell: Cell) -> Rules:
    """The rules of a cell."""
    return rules_from(overrides_of(cell.model, cell.target).verify)


def rules_from(value: Mapping[str, Any] | None) -> Rules:
    """The rules of a table that `read_rules` has accepted, or of a package's build record."""
    return from_json(value or {}, Rules)


def read_rules(entry: Entry, folder: Path) -> dict[str, Any] | None:
    """The table `verify` of a catalog entry, checked; paths in it start at `folder`."""
    inner = entry.inner("verify")
    if "verify" not in entry.data:
        return None
    found = {
        "parity": _parity(inner),
        "waive": _waive(inner),
        "task": _task(inner, folder),
    }
    if "inputs" in inner.data:
        inner.known.append("inputs")
        inner.bad(
            "inputs are no longer read", "the judged samples are a part of the model's dataset"
        )
    inner.close()
    return {name: value for name, value in found.items() if value}


def _parity(entry: Entry) -> dict[str, Any]:
    found = {}
    for name, row in (entry.table("parity") or {}).items():
        inner = Entry(
            row if isinstance(row, dict) else {}, f"{entry.where}: parity.{name}", entry.problems
        )
        precision = canonical(name)
        if precision is None or precision not in PRECISIONS:
            inner.bad(f"unknown precision {quote(name)}", hint(name, PRECISIONS))
            continue
        if "cosine" in inner.data:
            inner.known.append("cosine")
            inner.bad("cosine is no longer judged", "give snr in decibels, and agreement")
        given = {
            "snr": inner.number("snr", 0.0, 150.0),
            "agreement": inner.number("agreement", 0.0, 1.0),
            "max_abs": inner.number("max_abs", 0.0),
        }
        reason = inner.text("reason", empty=False)
        inner.close()
        if reason is None:
            inner.bad("a threshold needs a reason", 'reason = "..."')
        usual = asdict(Limit.usual(precision)) | {"reason": reason or ""}
        found[precision] = usual | {name: one for name, one in given.items() if one is not None}
    return found


def _waive(entry: Entry) -> dict[str, str]:
    found = {}
    for name, reason in (entry.table("waive") or {}).items():
        if name not in (*RUNGS, EP):
            entry.bad(f"waive: unknown rung {quote(name)}", hint(name, (*RUNGS, EP)))
        elif not isinstance(reason, str) or not reason.strip():
            entry.bad(f"waive.{name} needs a reason as text")
        else:
            found[name] = reason
    return found


def _task(entry: Entry, folder: Path) -> dict[str, Any] | None:
    inner = entry.inner("task")
    if "task" not in entry.data:
        return None
    dataset = _file(inner, "dataset", folder)
    metric = inner.choice("metric", METRICS, required=True)
    within = inner.number("within", 0.0)
    if "dataset" not in inner.data:
        inner.bad("dataset is missing")
    inner.close()
    if dataset is None or metric is None:
        return None
    return {"dataset": dataset, "metric": metric, "within": WITHIN if within is None else within}


def _file(entry: Entry, key: str, folder: Path) -> str | None:
    name = entry.text(key, empty=False)
    if name is None:
        return None
    path = entry.existing(key, name, folder)
    if path is None:
        return None
    if path.suffix not in {".npz", ".jsonl"}:
        entry.bad(f"{key} {quote(name)} is neither .npz nor .jsonl")
        return None
    return str(path)
