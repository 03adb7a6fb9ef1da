"""What a catalog may change about how an engine builds: the table `build` of a model or a target.

An option that the engine does not have is a problem with the nearest name; none is ever ignored.
What both engines have is one option with one name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from matrix.nearest import hint, quote
from matrix.reader import Entry
from matrix.vocabulary import BASIC_PASSES, EXTENDED_PASSES, FLAGS

LEVELS = ("disabled", "basic", "extended")
CALIBRATIONS = ("minmax", "average", "percentile", "mse", "entropy")
MOST_SAMPLES = 4096
BLOCK_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: how it is read, and its line in the reference."""

    read: Callable[[Entry, str], Any]
    help: str
    values: tuple[str, ...] = ()
    """Of a choice of which this engine has only a part."""


def _choice(values: tuple[str, ...]) -> Callable[[Entry, str], Any]:
    return lambda entry, key: entry.choice(key, values)


def _some(values: tuple[str, ...]) -> Callable[[Entry, str], Any]:
    def read(entry: Entry, key: str) -> Any:
        given = entry.several(key, values)
        return None if given is None else sorted(set(given))

    return read


def _operators(entry: Entry, key: str) -> Any:
    given = entry.texts(key)
    for name in given or ():
        if not name.isidentifier():
            entry.bad(f"{quote(name)} in {key} is not the name of an operator", "e.g. Softmax")
    return None if given is None else sorted(set(given))


def _block_size(entry: Entry, key: str) -> Any:
    given = entry.integer(key, BLOCK_SIZES[0], BLOCK_SIZES[-1])
    if given is not None and given not in BLOCK_SIZES:
        entry.bad(f"{key} must be a power of two, not {given}", "32 and 128 are usual")
        return None
    return given


_SAMPLES = Option(
    lambda entry, key: entry.integer(key, 1, MOST_SAMPLES),
    "calibration samples; default 64, fewer for large models (winml: what winml-cli sets)",
)
_PER_CHANNEL = Option(
    Entry.flag,
    "a scale for each channel of a weight; default true (winml: what winml-cli sets)",
)
_SYMMETRIC = Option(
    Entry.flag,
    "ranges symmetric around 0 for activations and 4-bit weights, with winml for all weights; "
    "default false",
)
_BLOCK_SIZE = Option(
    _block_size,
    "how many 4-bit weights share a scale, 16 to 256; default 32",
)
_FLOAT_OPS = Option(_operators, "operators that stay in floating point")
_REQUANTIZE = Option(
    Entry.flag,
    "whether a graph that misses parity is quantized again in other ways; default true",
)
_CALIBRATION = Option(
    _choice(CALIBRATIONS),
    "activation ranges: `minmax` (default), `percentile` (without the outermost 0.01 %); with"
    " optimum also `average` (of the ends in each sample) and `mse` (the smallest squared error),"
    " with winml also `entropy`",
)

OPTIMUM: Mapping[str, Option] = {
    "optimization": Option(
        _choice(LEVELS), "ONNX Runtime's offline level: `disabled`, `basic` or `extended`"
    ),
    "passes": Option(
        _some(EXTENDED_PASSES), "passes of the level `extended` that run beside the basic ones"
    ),
    "without_passes": Option(
        _some((*BASIC_PASSES, *EXTENDED_PASSES)), "passes of ONNX Runtime that do not run"
    ),
    "calibration": replace(_CALIBRATION, values=("minmax", "average", "percentile", "mse")),
    "samples": _SAMPLES,
    "per_channel": _PER_CHANNEL,
    "symmetric": _SYMMETRIC,
    "block_size": _BLOCK_SIZE,
    "float_ops": _FLOAT_OPS,
    "requantize": _REQUANTIZE,
}
WINML: Mapping[str, Option] = {
    "flags": Option(_some(FLAGS), "winml: switches of its optimizer that are on"),
    "without_flags": Option(_some(FLAGS), "winml: switches of its optimizer that are off"),
    "analyzer": Option(
        Entry.flag,
        "winml: whether its analyzer looks for further switches; default true",
    ),
    "calibration": replace(_CALIBRATION, values=("minmax", "percentile", "entropy")),
    "samples": _SAMPLES,
    "per_channel": _PER_CHANNEL,
    "symmetric": _SYMMETRIC,
    "float_ops": _FLOAT_OPS,
}
TABULAR = {name: OPTIMUM[name] for name in ("optimization", "passes", "without_passes", "samples")}
OF_ENGINES: Mapping[str, Mapping[str, Option]] = {
    "optimum": OPTIMUM,
    "tabular": TABULAR,
    "winml": WINML,
}
ALL: Mapping[str, Option] = {**WINML, **OPTIMUM}
"""Of any engine."""


def read_build(entry: Entry, key: str = "build") -> dict[str, Any] | None:
    """The table `build` of an entry; a problem for every option that no engine has."""
    inner = entry.inner(key)
    if key not in entry.data:
        return None
    found = {}
    for name, option in ALL.items():
        value = option.read(inner, name)
        if value is not None:
            found[name] = value
    inner.close()
    if problem := contradiction(found):
        inner.bad(problem, "remove one of the two")
    return found


def contradiction(build: Mapping[str, Any]) -> str:
    """Which options exclude each other; empty: none."""
    if "passes" in build and build.get("optimization") in {"disabled", "extended"}:
        return "passes goes with optimization basic"
    if twice := sorted({*build.get("flags", ())} & {*build.get("without_flags", ())}):
        return f"{twice[0]} is in flags and in without_flags"
    return ""


def fault(engine: str, build: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why an engine cannot take these options, and what to do about it."""
    options = OF_ENGINES.get(engine, {})
    for name, value in build.items():
        if name not in options:
            able = ", ".join(one for one, known in OF_ENGINES.items() if name in known)
            return f"the engine {engine} has no build option {name}", f"it is one of: {able}"
        if (valid := options[name].values) and value not in valid:
            return f"the engine {engine} has no {name} {quote(value)}", hint(str(value), valid)
    return None
