"""Replaces functions of winml-cli that repeat the same work for every cell.

About 95% of the time of a QNN or OpenVINO cell is its static analysis, most of which turns the same
rule data into the same tables for every analyzer instance. winml-cli has no place for a cache
there, so four of its functions are replaced, here and nowhere else. Each replacement returns
what the original returns (equal values, equal order); byte identity with the command line is
tested for every target. The replacements are for exactly the version that was read: `install`
refuses any other, and the engine reports it before that.

* `_build_condition_tree`: rows of a rule table into a tree, row by row through pandas; here once
  per table, column by column.
* `make_hashable`: a weight as nested tuples in which every float is replaced by one constant;
  here made from the shape alone.
* `PatternExtractor._load_pattern_rule_table`: a Parquet file read for every analysis.
* `DocConstraintChecker._load_constraints`: a JSON file made into data frames for every analysis.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

VERSION = "0.4.0"
"""The version of winml-cli whose source was read."""

_installed: list[str] = []
_unsettled: list[bool] = []


def install(version: str) -> None:
    """Replace the four functions, once. Raises for any other version."""
    if version != VERSION:
        raise RuntimeError(f"made for winml-cli {VERSION}, not {version}")
    if _installed:
        return
    from winml.modelkit.analyze.core import (
        doc_constraint_checker,
        pattern_extractor,
        runtime_checker_query,
    )
    from winml.modelkit.analyze.utils import model_utils

    query: Any = runtime_checker_query
    query._build_condition_tree = _Trees(query)
    fast = hashable(query.make_hashable)
    for module in (query, pattern_extractor, model_utils):
        module.make_hashable = fast
    extractor: Any = pattern_extractor.PatternExtractor
    extractor._load_pattern_rule_table = _pattern_tables(extractor._load_pattern_rule_table)
    checker: Any = doc_constraint_checker.DocConstraintChecker
    checker._load_constraints = _constraints(checker._load_constraints)
    _installed.append(version)


def forget_models() -> None:
    """Clear winml-cli's caches of graphs before another model."""
    if not _installed:
        return
    from winml.modelkit.analyze.core.pattern_extractor import PatternExtractor

    extractor: Any = PatternExtractor
    for name in ("_MATCH_CACHE", "_DEDUPED_MATCH_CACHE", "_MERGE_PREP_CACHE"):
        getattr(extractor, name).clear()
    gc.unfreeze()
    _unsettled.append(True)


def settle() -> None:
    """Exempt permanent tables from garbage collection, which takes half a second each time."""
    if _unsettled:
        _unsettled.clear()
        gc.collect()
        gc.freeze()


class _Trees:
    """`_build_condition_tree`, once per table; tables live as long as the process."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, table: Any) -> Any:
        known = self._known.get(id(table))
        if known is None or known[0] is not table:
            known = (table, self._build(table))
            self._known[id(table)] = known
            _unsettled.append(True)
        return known[1]

    def _build(self, table: Any) -> Any:
        module = self._module
        if table is None:
            return None
        columns = module._extract_condition_columns(table)
        if table.empty or not columns:
            position = 0 if not columns and not table.empty else None
            return module._ParquetConditionTree(columns, {}, position)
        root: dict[Any, Any] = {}
        leaf = module._TREE_ROW_POSITION
        rows = zip(*(table[name].tolist() for name in columns), strict=True)
        for position, row in enumerate(rows):
            node = root
            for value in row:
                node = node.setdefault(value, {})
            node.setdefault(leaf, position)
        return module._ParquetConditionTree(columns, root)


def hashable(original: Callable[..., Any]) -> Callable[..., Any]:
    """`make_hashable` with a shortcut for arrays."""
    import numpy as np
    from winml.modelkit.pattern.utils import DUMMY_FLOAT

    def make_hashable(value: Any, replace_float_with_dummy: bool = True) -> Any:
        if replace_float_with_dummy and isinstance(value, np.ndarray):
            if value.dtype.kind == "f" and value.ndim:
                return _filled(value.shape, DUMMY_FLOAT)
            if value.dtype.kind in "iub" and value.ndim == 1:
                return tuple(value.tolist())
        return original(value, replace_float_with_dummy)

    return make_hashable


def _filled(shape: tuple[int, ...], value: float) -> tuple[Any, ...]:
    """Nested tuples of one value in a shape; equal parts are one object."""
    filled: Any = value
    for length in reversed(shape):
        filled = tuple(repeat(filled, length))
    return tuple(filled)


def _pattern_tables(original: Callable[..., Any]) -> Callable[..., Any]:
    shared: dict[str, Any] = {}

    def load(self: Any, parquet_path: Path, _table_cache: dict[str, Any]) -> Any:
        return original(self, parquet_path, shared)

    return load


def _constraints(original: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[tuple[str, str], Any] = {}

    def load(self: Any) -> Any:
        key = (str(self.ep_name), str(self.device_type))
        if key not in known:
            known[key] = original(self)
        return known[key]

    return load
