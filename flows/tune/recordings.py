"""Reads recordings of sessions that other tools measured, in the formats of those tools.

`results.json` of a sweep on an NPU or a GPU holds one model with the sessions of its hypotheses;
`results.tsv` of the loop for one model holds a median per experiment. Times are milliseconds.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.errors import PlanError, Problem
from matrix.nearest import quote
from matrix.reader import parse_json, read_text

MOST_SESSIONS = 10_000
LONGEST = 120
COLUMNS = ("label", "median_p50_ms", "baseline_p50_ms", "status")


@dataclass(frozen=True, slots=True)
class Trial:
    """One build of a recording."""

    name: str
    label: str
    status: str
    first: tuple[float, ...]
    """The medians of its first sessions."""
    confirmed: tuple[float, ...] = ()
    """Those of its confirmation."""
    claim: str = ""
    """The verdict that the recording holds."""
    accuracy: float | None = None
    settings: tuple[str, ...] = ()
    """`AXIS=VALUE`, as far as the recording gives them."""

    @property
    def sessions(self) -> tuple[float, ...]:
        """All medians, in the order in which they were measured."""
        return (*self.first, *self.confirmed)


@dataclass(frozen=True, slots=True)
class Recording:
    """One model on one device."""

    file: str
    kind: str
    """`npu`, `gpu` or `loop`: whose rules it was judged by."""
    model: str
    device: str
    baseline: str
    """The name of the trial that the others are compared with; empty: none has a session."""
    trials: tuple[Trial, ...]
    architecture: str = "unknown"

    @property
    def target(self) -> str:
        """The name of our target; empty: not recorded."""
        return {"npu": "qnn_npu", "gpu": "qnn_gpu"}.get(self.kind, "")

    @property
    def noise(self) -> float:
        """The largest ratio between two sessions of one build."""
        ratios = [max(one.sessions) / min(one.sessions) for one in self.trials if one.sessions]
        return max(ratios, default=1.0)

    def trial(self, name: str) -> Trial:
        """By name."""
        return next(one for one in self.trials if one.name == name)


class Refused(Exception):
    """A recording is of another shape; with the reason."""


def read_recordings(paths: list[Path]) -> list[Recording]:
    """The recordings of files, and of all files in folders. Raises `PlanError` with every fault."""
    problems: list[Problem] = []
    found: list[Recording] = []
    for path in _files(paths, problems):
        try:
            found += _recordings(path)
        except PlanError as error:
            problems += error.problems
        except Refused as error:
            problems.append(Problem(path.name, str(error)))
    if problems:
        raise PlanError(problems, "the recordings")
    return found


def _files(paths: list[Path], problems: list[Problem]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(one for one in path.rglob("results*") if one.suffix in {".json", ".tsv"})
        if not inside:
            problems.append(Problem(str(path), "holds no results*.json and no results.tsv"))
        yield from inside


def _recordings(path: Path) -> list[Recording]:
    text = read_text(path)
    if path.suffix == ".tsv":
        return [_loop(path, text)]
    data = parse_json(text, path.name)
    rows = data if isinstance(data, list) else [data]
    if not rows:
        raise Refused("holds no model")
    return [_sweep(path, row) for row in rows]


def _sweep(path: Path, data: object) -> Recording:
    if not isinstance(data, dict) or not isinstance(data.get("hypotheses"), dict):
        raise Refused("has no 'hypotheses'; is it the results.json of a sweep?")
    model = _word(data.get("model_id") or path.absolute().parent.name)
    hypotheses: dict[str, Any] = data["hypotheses"]
    flat = any(isinstance(one, dict) and "full_p50s_ms" in one for one in hypotheses.values())
    trials = tuple(_trial(_word(name), one) for name, one in hypotheses.items())
    named = {one.name for one in trials if one.sessions}
    baseline = next((name for name in ("h0", "h1") if name in named), "")
    kind = "gpu" if flat or str(data.get("device", "")).casefold() == "gpu" else "npu"
    device, family = _word(data.get("device") or kind), _word(data.get("model_type") or "unknown")
    return Recording(path.name, kind, model, device, baseline, trials, family)


def _trial(name: str, data: object) -> Trial:
    if not isinstance(data, dict):
        raise Refused(f"hypothesis {quote(name)} is not a table but {quote(data)}")
    nested = data.get("full")
    first = nested.get("p50s_ms") if isinstance(nested, dict) else data.get("full_p50s_ms")
    claim = data.get("confirm_verdict") or data.get("verdict") or ""
    accuracy = data.get("accuracy")
    return Trial(
        name=name,
        label=_word(data.get("label") or name),
        status=_word(data.get("status") or ""),
        first=_sessions(name, first),
        confirmed=_sessions(name, data.get("confirm_p50s_ms")),
        claim=_word(claim),
        accuracy=min(max(accuracy, 0.0), 1.0) if isinstance(accuracy, int | float) else None,
        settings=tuple(_settings(data)),
    )


def _settings(data: dict[str, Any]) -> Iterator[str]:
    """The opset and the passes that a hypothesis adds."""
    if isinstance(opset := data.get("opset"), int):
        yield f"opset={opset}"
    extra = data.get("extra_optim")
    for name in extra if isinstance(extra, dict | list) else ():
        yield f"pass={_word(name)}"


def _word(value: object) -> str:
    """Text of a recording, fit for a terminal."""
    text = str(value)
    return text[:LONGEST] if text.isprintable() else quote(text)


def _sessions(name: str, values: object) -> tuple[float, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) > MOST_SESSIONS:
        raise Refused(f"the sessions of {quote(name)} are not a list of times")
    return tuple(_time(name, value) for value in values)


def _time(name: str, value: object) -> float:
    """Milliseconds; a time of nothing or of no end is a fault of the recording."""
    try:
        time = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        time = math.nan
    if isinstance(value, bool) or not 0 < time < math.inf:
        raise Refused(f"{quote(name)} has a session of {quote(value)}, not a time in ms")
    return time


def _loop(path: Path, text: str) -> Recording:
    try:
        rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    except csv.Error as error:
        raise Refused(f"is not a table: {error}") from None
    if not rows or any(column not in rows[0] for column in COLUMNS):
        raise Refused(f"has no rows with the columns {', '.join(COLUMNS)}")
    trials = [_experiment(row) for row in rows if row["median_p50_ms"]]
    given = next((row["baseline_p50_ms"] for row in rows if row["baseline_p50_ms"]), None)
    if given:
        trials.insert(0, Trial("baseline", "baseline", "OK", (_time("baseline", given),)))
    baseline = "baseline" if given else ""
    return Recording(path.name, "loop", path.absolute().parent.name, "cpu", baseline, tuple(trials))


def _experiment(row: Mapping[str, str | None]) -> Trial:
    name = _word(f"{row.get('iter') or ''} {row['label']}".strip())
    measured = (_time(name, row["median_p50_ms"]),)
    return Trial(name, _word(row["label"]), "OK", measured, claim=_word(row["status"]))
