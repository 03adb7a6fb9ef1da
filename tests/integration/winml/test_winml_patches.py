"""What replaces functions of winml-cli answers as they do, on its own rule data and at random."""

from __future__ import annotations

import json

import pytest

from tests.engines.winml import ROOT, run, winml_python

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

PROLOGUE = f"""
import importlib.util, json, random, sys
from pathlib import Path
for name in ("matrix", "machine", "workers"):
    spec = importlib.util.spec_from_file_location(
        name, f"{ROOT.as_posix()}/{{name}}/__init__.py",
        submodule_search_locations=[f"{ROOT.as_posix()}/{{name}}"])
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
from workers.winml_engine import patches
from winml.modelkit.analyze.core import pattern_extractor, runtime_checker_query as query
random.seed(7)
"""

TREES = """
original = query._build_condition_tree
patches.install("0.4.0")
rules = Path(query.__file__).parents[1] / "rules" / "runtime_check_rules"
files = random.sample(sorted(rules.rglob("*.parquet")), 30)
rows = different = 0
for file in files:
    table = query._get_or_load_parquet_table_global(file)
    one, two = original(table), query._build_condition_tree(table)
    rows += len(table)
    same = (one.condition_columns, one.root, one.default_row_position) == (
        two.condition_columns, two.root, two.default_row_position)
    different += not same
    different += query._build_condition_tree(table) is not two
    for position in random.sample(range(len(table)), min(3, len(table))):
        row = {name: table.iloc[position][name] for name in one.condition_columns}
        found = query._lookup_row_position_in_condition_tree
        different += found(one, row) != found(two, row)
empty = table.iloc[:0]
different += original(empty) != query._build_condition_tree(empty)
different += query._build_condition_tree(None) is not None
bare = table[[]].assign(compile_run_success=[(True, True)] * len(table))
different += original(bare) != query._build_condition_tree(bare)
twice = __import__("pandas").concat([table.head(2), table.head(2)])
different += original(twice) != query._build_condition_tree(twice)
print(json.dumps([len(files), rows, different]))
"""

HASHABLE = """
import numpy as np
original = query.make_hashable
patches.install("0.4.0")
fast = query.make_hashable
assert fast is pattern_extractor.make_hashable is not original
kinds = ["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u2", "bool", "U3", "O", "c8"]
shapes = [(), (0,), (1,), (5,), (2, 3), (0, 4), (4, 0), (2, 1, 3), (1, 1, 1, 1)]
values = [np.ones(shape).astype(kind) for kind in kinds for shape in shapes]
values += [np.float32(1), np.int64(2), 1.5, 3, "x", None, [1.0, np.ones(2)], (1, 2.0),
           {"b": np.ones((2, 2)), "a": 1}, [np.zeros(3), [np.float16(1)]]]
different = [repr(v) for v in values for flag in (True, False)
             if repr(original(v, flag)) != repr(fast(v, flag))]
print(json.dumps([len(values), 0, len(different)]))
"""


@pytest.mark.parametrize("code", [TREES, HASHABLE], ids=["trees", "hashable"])
def test_replacements_answer_as_the_originals(code: str) -> None:
    answer = run([str(winml_python()), "-c", PROLOGUE + code])
    cases, _rows, different = json.loads(answer.strip().splitlines()[-1])
    assert cases >= 30
    assert different == 0


def test_another_version_is_not_touched() -> None:
    code = """
before = query._build_condition_tree
try:
    patches.install("0.4.1")
except RuntimeError as error:
    print(json.dumps([str(error), query._build_condition_tree is before]))
"""
    answer = run([str(winml_python()), "-c", PROLOGUE + code])
    assert json.loads(answer) == ["made for winml-cli 0.4.0, not 0.4.1", True]
