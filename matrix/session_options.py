"""What a session may be given when a model is opened: for hypotheses about the runtime.

Only options that change how fast a model runs. One that changes what is computed (half precision,
for instance) would go past the accuracy gate, which opens models in the plain way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix.nearest import hint, quote
from matrix.reader import Entry

LEVELS = ("disabled", "basic", "extended", "all")
"""ONNX Runtime's graph optimization level while it opens a model."""

Values = tuple[str, ...]
_FLAG: Values = ("0", "1")
OF_PROVIDERS: Mapping[str, Mapping[str, Values]] = {
    "CPUExecutionProvider": {},
    "DmlExecutionProvider": {"disable_metacommands": ("true", "false")},
    "QNNExecutionProvider": {
        "htp_performance_mode": (
            "default", "burst", "high_performance", "sustained_high_performance", "balanced",
            "low_balanced", "high_power_saver", "power_saver", "low_power_saver",
        ),
        "htp_graph_finalization_optimization_mode": ("0", "1", "2", "3"),
        "offload_graph_io_quantization": _FLAG,
        "qnn_context_priority": ("low", "normal", "normal_high", "high"),
        "rpc_control_latency": (),
        "vtcm_mb": (),
    },
    "OpenVINOExecutionProvider": {
        "ENABLE_CPU_PINNING": ("YES", "NO"),
        "ENABLE_HYPER_THREADING": ("YES", "NO"),
        "NUM_STREAMS": (),
        "PERFORMANCE_HINT": ("LATENCY", "THROUGHPUT"),
        "SCHEDULING_CORE_TYPE": ("ANY_CORE", "PCORE_ONLY", "ECORE_ONLY"),
    },
}  # fmt: skip
"""The options of each provider with their values; no values: a whole number."""
WITHOUT_LEVEL = frozenset({"OpenVINOExecutionProvider"})
"""Providers that this product opens without ONNX Runtime."""


def read_session(entry: Entry, providers: Mapping[str, str]) -> dict[str, str]:
    """The table `runtime` of a hypothesis: `level`, and options of the provider.

    `providers`: what its targets run on, by label. An option must exist on all of them.
    """
    table = entry.table("runtime")
    if table is None:
        return {}
    inner = Entry(table, f"{entry.where}: runtime", entry.problems)
    found: dict[str, str] = {}
    if level := inner.choice("level", LEVELS):
        found["level"] = level
    known = ["level", *_common(providers.values())]
    for name, value in table.items():
        if name == "level":
            continue
        if name not in known:
            inner.bad(_unknown(name, providers), hint(name, known))
        elif text := _value(inner, name, value, providers):
            found[name] = text
    if "level" in found and (bare := _without_level(providers)):
        inner.bad(f"{bare} is opened without ONNX Runtime, so it has no level")
    return found


def _common(providers: Any) -> list[str]:
    tables = [OF_PROVIDERS.get(one, {}) for one in providers]
    return [name for name in (tables[0] if tables else ()) if all(name in one for one in tables)]


def _unknown(name: str, providers: Mapping[str, str]) -> str:
    without = sorted(
        label for label, one in providers.items() if name not in OF_PROVIDERS.get(one, {})
    )
    return f"{without[0] if without else 'the runtime'} has no option {quote(name)}"


def _value(inner: Entry, name: str, value: object, providers: Mapping[str, str]) -> str:
    """The value as text; empty and a problem if the option does not take it."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    valid = next(table[name] for one in providers.values() if name in (table := OF_PROVIDERS[one]))
    if valid and text not in valid:
        inner.bad(f"{name} cannot be {quote(value)}", hint(text, valid))
        return ""
    if not valid and not (text.isascii() and text.isdigit()):
        inner.bad(f"{name} must be a whole number, not {quote(value)}")
        return ""
    return text


def _without_level(providers: Mapping[str, str]) -> str:
    return next((label for label, one in providers.items() if one in WITHOUT_LEVEL), "")
