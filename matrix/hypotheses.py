"""Hypotheses: what a tuning tries, as data.

A hypothesis names settings of a build or of a session that could be faster. `changes` is what a
catalog may say of a target (opset, precision, the table `build`), `runtime` the options that the
session is given, `compiled` the device profile that the model is compiled for. An engine that has
other names for the same options has a table of its own in `changes`. Guards leave a hypothesis out
for models that it does not suit. `missing` is the reason why an engine without such a table cannot
try it: a tuning lists it with that reason and never drops it silently.

`settings` is all of this as texts, `AXIS=VALUE`, by which findings name hypotheses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from matrix import build_options
from matrix.globs import matches
from matrix.model import Target
from matrix.vocabulary import pass_name

AXES = (
    "opset", "level", "pass", "layout", "quantization", "precision", "runtime", "compiled",
)  # fmt: skip
LAYOUTS = ("nhwc", "nchwc")
"""Passes that change the order of dimensions and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What a model must be like; an empty guard asks nothing."""

    needs: tuple[str, ...] = ()
    """Operators that must all be in the graph."""
    not_with: tuple[str, ...] = ()
    """Operators of which none may be in it."""
    candidates: tuple[str, ...] = ()
    """Fusion candidates of which one must be in it (`matrix.vocabulary`)."""
    share: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The least and the greatest share of all nodes, by operator."""
    architectures: tuple[str, ...] = ()
    not_for: tuple[str, ...] = ()
    """Globs over architectures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One thing to try."""

    id: str
    title: str
    targets: tuple[str, ...]
    """Globs over labels."""
    axis: str
    opset: int | None = None
    precision: str | None = None
    build: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further build options by engine, and engines that are not named cannot try it; empty: all
    can."""
    runtime: Mapping[str, str] = field(default_factory=dict)
    """`level` of ONNX Runtime when it opens the model, and options of the provider."""
    compiled: str = ""
    """A glob over device profiles; empty: the portable model."""
    guards: Guards = field(default_factory=Guards)
    combine: bool = True
    """Whether it may be combined with others that were confirmed."""
    missing: str = ""
    """Why it cannot be tried; with `engines`: by the others."""
    file: str = ""

    def applies(self, target: Target) -> bool:
        """Whether it is about this target."""
        return matches(target.label, self.targets)

    @property
    def settings(self) -> tuple[str, ...]:
        """As findings name it: `opset=21`, `pass=gelu`."""
        return tuple(dict.fromkeys(_settings(self)))

    def for_engine(self, engine: str) -> Hypothesis:
        """With the build options of one engine; `missing` says whether it has them."""
        if self.engines and engine not in self.engines:
            told = self.missing or f"the engine {engine} has no such option"
            return replace(self, engines={}, missing=told)
        build = {**self.build, **self.engines.get(engine, {})}
        fault = build_options.fault(engine, build) if build else None
        missing = fault[0] if fault else "" if self.engines else self.missing
        return replace(self, build=build, engines={}, missing=missing)


def _settings(one: Hypothesis) -> Iterator[str]:
    if one.opset is not None:
        yield f"opset={one.opset}"
    if one.precision is not None:
        yield f"precision={one.precision}"
    for options in (one.build, *one.engines.values()):
        for name, value in options.items():
            yield from _build_settings(name, value)
    for name, value in one.runtime.items():
        yield f"runtime={name}:{value}"
    if one.compiled:
        yield f"compiled={one.compiled}"


def _build_settings(name: str, value: Any) -> Iterator[str]:
    match name:
        case "optimization":
            yield f"level={value}"
        case "passes" | "flags":
            yield from (_pass_setting(item, "") for item in value)
        case "without_passes" | "without_flags":
            yield from (_pass_setting(item, "no_") for item in value)
        case "analyzer":
            yield f"pass={'' if value else 'no_'}analyzer"
        case "float_ops":
            yield from (f"quantization=float:{item}" for item in value)
        case _:
            text = str(value).lower() if isinstance(value, bool) else value
            yield f"quantization={name}:{text}"


def _pass_setting(name: str, prefix: str) -> str:
    short = pass_name(name)
    axis = "layout" if short in LAYOUTS else "pass"
    return f"{axis}={prefix}{short}"
