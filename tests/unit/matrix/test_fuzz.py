"""Hostile rubbish: whatever a file holds, the answer is a catalog or one of our errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.errors import MillError
from matrix.plan import make_plan
from matrix.plan_json import plan_to_json
from matrix.selector import Selection
from matrix.targets import load_targets
from tests.plans.models import EVERYTHING, OPTIONS, TARGETS, plan_options

OUR_KEYS = [
    *("id", "task", "hub", "folder", "random", "priority", "precision", "opset", "shapes", "skip"),
    *("target", "timeout", "dataset", "model_type", "group", "model", "defaults", "revision"),
    *("qnn_npu", "*_npu"),
]
KEYS = st.sampled_from(OUR_KEYS)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from(["a/b", "fill-mask", "P0", "w8a16", "17", "..", "*"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = ["hf_id", "task", "model_type", "group", "priority", "precision", "composite_onnx", "x"]
quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def survives(call: Callable[[], object]) -> None:
    try:
        call()
    except MillError as err:
        text = str(err)
        assert text.strip()
        assert all(line.isprintable() for line in text.splitlines()), text
        text.encode()


@quick
@given(st.binary(max_size=200), st.sampled_from(["c.toml", "c.json"]))
def test_any_bytes(tmp_path: Path, raw: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(raw)
    survives(lambda: load_catalog(name, base=tmp_path, targets=TARGETS))
    survives(lambda: load_targets(tmp_path / name))


@quick
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=8), max_size=3))
def test_any_json(tmp_path: Path, data: list[dict[str, Any]]) -> None:
    (tmp_path / "c.json").write_text(json.dumps(data))

    def plan() -> None:
        catalog = load_catalog("c.json", base=tmp_path, targets=TARGETS)
        json.dumps(plan_to_json(make_plan(catalog, TARGETS, EVERYTHING, OPTIONS)))

    survives(plan)


def toml(value: object) -> str:
    """A TOML spelling of a value, sound or not."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else str(value).lower()


@quick
@given(st.lists(st.dictionaries(KEYS, values, max_size=8), max_size=3), values)
def test_any_toml(tmp_path: Path, models: list[dict[str, Any]], defaults: object) -> None:
    lines = [f"defaults = {toml(defaults)}"] if isinstance(defaults, dict) else []
    for model in models:
        lines += ["[[model]]", *(f"{json.dumps(k)} = {toml(v)}" for k, v in model.items())]
    (tmp_path / "c.toml").write_text("\n".join(lines), encoding="utf-8", errors="replace")

    def plan() -> None:
        catalog = load_catalog("c.toml", base=tmp_path, targets=TARGETS)
        json.dumps(plan_to_json(make_plan(catalog, TARGETS, EVERYTHING, OPTIONS)))

    survives(plan)


words = st.lists(st.text(max_size=8) | st.sampled_from(["*", "{a,b", "[", "P1"]), max_size=3)


@quick
@given(
    st.builds(
        Selection,
        **{
            name: words.map(tuple)
            for name in ("models", "tasks", "priorities", "targets", "eps", "only", "skip")
        },
    ),
    st.text(max_size=12),
    st.text(alphabet="{}model:!-._aZ", max_size=12),
    words.map(tuple),
)
def test_any_settings(
    tmp_path: Path, selection: Selection, stamp: str, package: str, precision: tuple[str, ...]
) -> None:
    catalog = load_catalog("winml", base=tmp_path, targets=TARGETS)
    options = plan_options(stamp, STRICTEST, package=package, precision=precision)
    survives(lambda: make_plan(catalog, TARGETS, selection, options))


@pytest.mark.parametrize("depth", [30, 40, 900])
def test_deep_values_are_refused_before_they_can_hurt(tmp_path: Path, depth: int) -> None:
    deep: object = 1
    for _ in range(depth):
        deep = [deep]
    entry = {"hf_id": "a/b", "task": "t", "model_type": "x", "group": "g", "priority": "P0"}
    for extra in ({"new": deep}, {"group": deep}):
        (tmp_path / "c.json").write_text(json.dumps([entry | extra]))
        survives(lambda: load_catalog("c.json", base=tmp_path, targets=TARGETS))
