"""Entries that name files of scikit-learn and XGBoost, and which engine builds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix.catalog import load_catalog
from matrix.coverage import Verdict, cover
from matrix.errors import PlanError
from matrix.model import Model, Source, SourceKind
from tests.plans.models import TARGETS, plan_of, plan_options, write

ENTRY = '[[model]]\nid = "a/trees"\ntask = "tabular-classification"\n'


def entry(file: str | None = None, task: str = "tabular-regression", **more: Any) -> Model:
    return Model("a/b", task, Source(SourceKind.HUB, "a/b", file=file), **more)


def test_a_file_lies_beside_the_catalog_in_a_folder_or_on_the_hub(tmp_path: Path) -> None:
    for name in ("x.skops", "sub/y.JSON"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}", "utf-8")
    keys = ['file = "x.skops"', 'folder = "sub"\nfile = "y.JSON"', 'hub = "o/n"\nfile = "d/z.ubj"']
    text = "".join(ENTRY.replace("trees", str(n)) + key + "\n" for n, key in enumerate(keys))
    found = load_catalog(write(tmp_path, text), base=tmp_path, targets=TARGETS, engine="tabular")
    assert [(one.source.ref, one.source.file, one.overrides.skip) for one in found.models] == [
        (str(tmp_path), "x.skops", None), (str(tmp_path / "sub"), "y.JSON", None),
        ("o/n", "d/z.ubj", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ('file = "gone.skops"', "file 'gone.skops' does not exist"),
        ('file = "model.pkl"', "file 'model.pkl' is a pickle, which can run code"),
        ('hub = "a/b"\nfile = "m.joblib"', "file 'm.joblib' is a pickle, which can run code"),
        ('file = "model.onnx"', "file 'model.onnx' is not the path of a .skops or .json or .ubj"),
        ('folder = "."\nfile = "../x.skops"', "file '../x.skops' leads out of its source"),
        ('file = "x.skops"\nonnx = "x.onnx"', "onnx and file exclude each other"),
        ('file = "x.skops"\nrandom = { architecture = "bert" }', "random and file exclude"),
    ],
)
def test_faults_of_files(tmp_path: Path, keys: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_catalog(write(tmp_path, ENTRY + keys), base=tmp_path, targets=TARGETS)
    assert says in str(caught.value)


def test_what_the_engine_says_of_entries() -> None:
    several = {
        Verdict.BUILDS: [entry("m.skops"), entry("m.json", model_type="xgboost")],
        Verdict.UNKNOWN: [entry(), entry(model_type="sklearn")],
        Verdict.IMPOSSIBLE: [
            entry("model.onnx"), entry(model_type="bert"), entry("m.skops", "fill-mask"),
            entry(model_type="lightgbm"),
            Model("r", "tabular-regression", Source(SourceKind.RANDOM, "sklearn")),
        ],
    }  # fmt: skip
    for verdict, models in several.items():
        for model in models:
            found = cover(model, "tabular")
            assert found.verdict is verdict, model
            assert found.why
            assert found.hint or verdict is Verdict.BUILDS


def test_another_engine_names_this_one() -> None:
    found = cover(entry("m.skops"), "optimum")
    assert found.verdict is Verdict.IMPOSSIBLE
    assert found.why == "the engine optimum cannot read m.skops, the engine tabular can"
    assert "--engine tabular" in cover(entry(model_type="xgboost"), "optimum").hint
    assert "tabular" not in cover(entry(model_type="catboost"), "optimum").hint


def test_a_plan_skips_what_an_engine_cannot_read_and_says_why(tmp_path: Path) -> None:
    path = write(tmp_path, ENTRY + 'hub = "a/b"\nfile = "m.skops"')
    (model,) = load_catalog(path, base=tmp_path, targets=TARGETS, engine="optimum").models
    assert model.overrides.skip == (
        "cannot be built: the engine optimum cannot read m.skops, the engine tabular can"
    )
    path = write(tmp_path, ENTRY.replace("tabular-c", "image-c"))
    with pytest.raises(PlanError, match="tabular does not build 'image-classification'"):
        load_catalog(path, base=tmp_path, targets=TARGETS, engine="tabular")


def test_a_plan_skips_the_targets_that_run_no_tabular_models() -> None:
    plan = plan_of([entry("m.skops")], options=plan_options(engine="tabular"))
    able = [cell for cell in plan.cells() if not cell.skip]
    assert [cell.target.label for cell in able] == ["mlas_cpu"]
    reasons = {cell.skip for cell in plan.cells() if cell.skip}
    assert len(reasons) == 1
    assert "unsupported by the engine tabular: trees and linear models" in reasons.pop()
    assert [one.cell for one in plan.models[0].exports] == able
