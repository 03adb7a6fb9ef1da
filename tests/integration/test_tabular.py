"""Models of scikit-learn and XGBoost through the stages of their engine, and bad files of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.engines.stages import digests, run_stages
from tests.engines.tabular import request
from tests.services import hub
from tests.services.installing import lacking
from tests.sweeps.command import Project
from workers.engine import Request, StageError
from workers.samples import files, parts
from workers.sources import model_file, runtime
from workers.tabular_engine import TabularEngine

CLASSIFY, REGRESS = "tabular-classification", "tabular-regression"
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(3, 2, (120, 4)).astype(np.float32)
CLASS = np.digitize(ROWS[:, 0] + ROWS[:, 1], [5, 8])
VALUE = 2 * ROWS[:, 0] - ROWS[:, 3]


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    for package in ("skl2onnx", "skops", "sklearn"):
        if find_spec(package) is None:
            lacking("skops")


def dump(folder: Path, model: Any, name: str = "model.skops") -> Path:
    import skops.io

    skops.io.dump(model, folder / name)
    return folder / name


def estimators() -> dict[str, tuple[str, Any]]:
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import BaggingRegressor, RandomForestClassifier, StackingRegressor
    from sklearn.linear_model import LinearRegression as Line
    from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
    from sklearn.tree import DecisionTreeRegressor as Tree

    columns = ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), [2, 3])])
    forest = RandomForestClassifier(7, random_state=0)
    return {
        "columns": (CLASSIFY, make_pipeline(columns, LogisticRegression())),
        "forest": (CLASSIFY, make_pipeline(StandardScaler(), forest)),
        "ridge": (CLASSIFY, RidgeClassifier()),
        "sgd": (CLASSIFY, SGDClassifier(random_state=0)),
        "bagged": (REGRESS, BaggingRegressor(Tree(max_depth=4), 3, random_state=0)),
        "stacked": (REGRESS, StackingRegressor([("t", Tree(max_depth=3))], Line())),
        "powers": (REGRESS, make_pipeline(PolynomialFeatures(2), Tree(max_depth=5))),
        "network": (REGRESS, MLPRegressor(hidden_layer_sizes=(8,), max_iter=20, random_state=0)),
    }


@pytest.mark.parametrize(
    "wanted",
    [
        ("columns", "bagged"),
        pytest.param(
            ("forest", "network", "powers", "ridge", "sgd", "stacked"), marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_compute_what_they_did(tmp_path: Path, wanted: tuple[str, ...]) -> None:
    known = estimators()
    for name in wanted:
        task, model = known[name]
        folder = tmp_path / name
        folder.mkdir()
        model.fit(ROWS, CLASS if task == CLASSIFY else VALUE)
        dump(folder, model)
        told = run_stages(request(folder, task=task), folder / "out", TabularEngine())
        found = outputs(folder / "out" / "optimize", ROWS)
        if task == CLASSIFY:
            assert told["export"]["classes"] == [0, 1, 2]
            assert (found["label"] == model.predict(ROWS)).mean() > 0.99, name
            assert found["label"].dtype == np.int64
            if hasattr(model, "predict_proba"):
                assert np.allclose(found["probabilities"], model.predict_proba(ROWS), atol=1e-5)
        else:
            assert np.allclose(found["prediction"][:, 0], model.predict(ROWS), atol=1e-3), name


def outputs(folder: Path, rows: Any) -> dict[str, Any]:
    return runtime.run(runtime.session(folder / "model.onnx"), {"features": rows})


def forest(folder: Path, labels: Any = CLASS) -> Request:
    from sklearn.ensemble import RandomForestClassifier

    dump(folder, RandomForestClassifier(3, random_state=0).fit(ROWS, labels))
    return request(folder, shapes={"batch_size": 5})


def test_the_same_bytes_again_and_rows_that_reach_many_leaves(tmp_path: Path) -> None:
    wanted = forest(tmp_path)
    told = run_stages(wanted, tmp_path / "one", TabularEngine())
    run_stages(wanted, tmp_path / "two", TabularEngine())
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    made = files.load(tmp_path / "one" / "inputs", "", parts.JUDGE)
    assert [one["features"].shape for one in made] == [(5, 4)] * 16
    assert told["inputs"]["samples"]["parts"] == {"fit": 64, "choose": 8, "judge": 16}
    rows = np.concatenate([one["features"] for one in made])
    labels = outputs(tmp_path / "one" / "export", rows)["label"]
    assert set(labels.tolist()) == {0, 1, 2}


def test_the_oldest_opset_and_one_that_is_too_new(tmp_path: Path) -> None:
    forest(tmp_path)
    run_stages(request(tmp_path, opset=13), tmp_path / "13", TabularEngine())
    found = onnx.load(str(tmp_path / "13" / "optimize" / "model.onnx")).opset_import
    versions = {one.domain: one.version for one in found}
    assert versions.keys() == {"", "ai.onnx.ml"}
    assert versions[""] == 13
    assert "opsets up to 21, not 22" in failure(request(tmp_path, opset=22), tmp_path / "22")


def test_a_dataset_is_taken_in_place_of_seeded_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", features=ROWS[:40].reshape(20, 2, 4))
    dataset = {"path": str(tmp_path / "rows.npz"), "samples": 16}
    forest(tmp_path)
    told = run_stages(request(tmp_path, dataset=dataset), tmp_path / "out", TabularEngine())
    assert told["inputs"]["samples"]["kind"] == "dataset"
    assert told["inputs"]["samples"]["parts"] == {"fit": 10, "choose": 2, "judge": 4}
    made = files.load(tmp_path / "out" / "inputs", "", parts.FIT)
    assert all(any(np.array_equal(one["features"], ROWS[at : at + 2]) for at in range(0, 40, 2))
               for one in made)  # fmt: skip


def test_a_table_has_a_column_for_each_feature(tmp_path: Path) -> None:
    lines = ["a,b,c,d,label", *(",".join(map(str, [*row, "yes"])) for row in ROWS[:40])]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    forest(tmp_path)
    own = request(tmp_path, dataset={"path": str(tmp_path / "rows.csv")})
    told = run_stages(own, tmp_path / "out", TabularEngine())
    assert told["inputs"]["samples"]["kind"] == "dataset"
    made = files.load(tmp_path / "out" / "inputs", "", parts.JUDGE)
    assert made[0]["features"].shape == (5, 4)
    assert all((ROWS.astype(np.float32) == row).all(1).any() for row in made[0]["features"])
    fewer = [line.partition(",")[2] for line in lines]
    (tmp_path / "rows.csv").write_text("\n".join(fewer), encoding="utf-8")
    with pytest.raises(StageError, match="columns, the model 4 features"):
        run_stages(own, tmp_path / "bad", TabularEngine())


def test_the_export_is_compared_with_the_original(tmp_path: Path) -> None:
    wanted = forest(tmp_path, np.array(["no", "maybe", "yes"])[CLASS])
    told = run_stages(wanted, tmp_path / "out", TabularEngine())
    assert told["export"]["compared"] == {
        "with": "scikit-learn", "samples": 512, "kind": "synthetic", "snr": ">= 47",
    }  # fmt: skip


def failure(wanted: Request, root: Path) -> str:
    with pytest.raises(StageError) as caught:
        run_stages(wanted, root, TabularEngine())
    assert caught.value.hint
    return str(caught.value)


def test_models_that_are_not_what_the_entry_says(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import StandardScaler

    dump(tmp_path, LinearRegression().fit(ROWS, VALUE), "line.skops")
    text = failure(request(tmp_path, "line.skops"), tmp_path / "1")
    assert text == f"line.skops is for {REGRESS}, not for {CLASSIFY}"
    dump(tmp_path, StandardScaler().fit(ROWS), "scaler.skops")
    text = failure(request(tmp_path, "scaler.skops"), tmp_path / "2")
    assert "holds a StandardScaler, neither a classifier nor a regressor" in text
    dump(tmp_path, LinearRegression(), "empty.skops")
    text = failure(request(tmp_path, "empty.skops", task=REGRESS), tmp_path / "3")
    assert "contains a model that is not fitted" in text


def test_a_graph_that_computes_something_else_is_no_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.tabular_engine import export

    wanted = forest(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    forest(other, (CLASS + 1) % 3)
    run_stages(request(other), other / "out", TabularEngine())
    graph = model_file.load(other / "out" / "export" / "model.onnx")
    monkeypatch.setattr(export, "_converted", lambda _model, _opset: graph)
    text = failure(wanted, tmp_path / "out")
    assert "does not compute what scikit-learn predicts: label: " in text


@pytest.mark.parametrize(("field", "value"), [("left_child", 9999), ("right_child", 0),
                                              ("feature", 4), ("feature", -7)])  # fmt: skip
def test_a_tree_that_leads_nowhere_is_never_run(tmp_path: Path, field: str, value: int) -> None:
    """scikit-learn would read whatever lies there, or go round in circles."""
    from sklearn.tree import DecisionTreeClassifier

    file = dump(tmp_path, DecisionTreeClassifier(max_depth=3).fit(ROWS, CLASS))
    change_nodes(file, {field: value})
    assert failure(request(tmp_path), tmp_path / "out") == (
        "model.skops is damaged: a tree in it leads nowhere"
    )


def change_nodes(file: Path, changes: Mapping[str, int]) -> None:
    """Change the first node of the tree in a skops file."""
    import io

    with zipfile.ZipFile(file) as members:
        raw = {name: members.read(name) for name in members.namelist()}
    for name, data in raw.items():
        array: Any = np.load(io.BytesIO(data)) if name.endswith(".npy") else np.empty(0)
        if array.dtype.names and "left_child" in array.dtype.names:
            for field, value in changes.items():
                array[field][0] = value
            stream = io.BytesIO()
            np.save(stream, array)
            raw[name] = stream.getvalue()
    with zipfile.ZipFile(file, "w") as members:
        for name, data in raw.items():
            members.writestr(name, data)


@pytest.mark.slow
def test_a_sweep_of_models_on_the_hub(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression

    found = dump(tmp_path, LinearRegression().fit(ROWS, VALUE)).read_bytes()
    repositories = {
        "org/line": {"model.skops": found, "README.md": b""},
        "org/deep": {"a/one.skops": found, "two.skops": b""},
        "org/pickled": {"model.pkl": b"cos\nsystem\n", "README.md": b""},
    }
    entry = '[[model]]\nid = "{0}"\ntask = "tabular-regression"\n{1}\n'
    keys = {"org/deep": 'hub = "org/deep"\nfile = "a/one.skops"'}
    text = "".join(entry.format(name, keys.get(name, "")) for name in repositories)
    (tmp_path / "catalog.toml").write_text(text, "utf-8")
    with hub.serve(repositories) as served:
        home = str(tmp_path / "cache")
        env = {"MODELMILL_ENGINE": "tabular", "HF_ENDPOINT": served.url, "HF_HOME": home}
        project = Project(tmp_path, {**env, "MODELMILL_JOBS": "1"})
        project.run("sweep", "catalog.toml", "--stamp", "s1")
    assert project.statuses("s1") == {"published": 2, "build_failed": 1, "skipped": 21}
    told = str(project.outcomes("s1")["org/pickled:tabular-regression@mlas_cpu"].message)
    why = "org/pickled has none of *.skops, model.json, *.ubj; pickles are never loaded"
    assert told.startswith(why)


@pytest.mark.parametrize("kind", ["synthetic", "dataset"])
def test_the_verdict_elsewhere_is_the_same_to_the_digit(tmp_path: Path, kind: str) -> None:
    """Another home without store and export: the judged rows are in the package."""
    (tmp_path / "own").mkdir()
    forest(tmp_path / "own")
    lines = ["a,b,c,d", *(",".join(map(str, row)) for row in ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    given = 'dataset = { path = "rows.csv" }\n' if kind == "dataset" else ""
    entry = f'[[model]]\nid = "own/rows"\ntask = "{CLASSIFY}"\nfolder = "own"\n{given}'
    project = Project(tmp_path, {"MODELMILL_ENGINE": "tabular", "MODELMILL_JOBS": "1"})
    (tmp_path / "catalog.toml").write_text(entry, encoding="utf-8")
    project.ok("sweep", "catalog.toml", "--stamp", "one", "--target", "mlas_cpu")
    name, version = next(one for one in project.published() if "-mlas-cpu-" in one[1])
    listed = {
        one["version"]: one["samples"] for one in project.ok("feed", "ls", name, "--json").json()
    }
    assert listed[version] == kind
    assert {told for other, told in listed.items() if other != version} <= {None}
    told = project.ok("feed", "show", name, version).out
    project.ok("feed", "pull", name, version, "--dest", "pulled")
    record = json.loads((tmp_path / "pulled" / "build.json").read_bytes())
    built = {one["name"]: one for one in record["verification"]}
    assert built["parity"]["passed"]
    judged = sorted(path.name for path in (tmp_path / "pulled" / "samples").iterdir())
    assert len(judged) == 2 * built["samples"]["evidence"]["judged"] > 2
    assert f"verified on {len(judged) // 2} {kind} samples" in told
    rows = np.concatenate([
        np.load(tmp_path / "pulled" / "samples" / one)["features"]
        for one in judged if not one.endswith(".out.npz")
    ])  # fmt: skip
    if kind == "dataset":
        assert all((row == ROWS).all(1).any() for row in rows)
    there = ("--home", str(tmp_path / "elsewhere"))
    found = project.ok("verify", "pulled", "--json", *there).json()["verification"]
    assert {one["name"]: one for one in found} == built


def test_models_of_xgboost(tmp_path: Path) -> None:
    if find_spec("xgboost") is None or find_spec("onnxmltools") is None:
        lacking("xgboost")
    import xgboost

    two = xgboost.XGBClassifier(n_estimators=4).fit(ROWS, CLASS > 0)
    three = xgboost.XGBClassifier(n_estimators=4).fit(ROWS, CLASS)
    value = xgboost.XGBRegressor(n_estimators=4).fit(ROWS, VALUE)
    two.get_booster().feature_names = ["width", "height", "age", "price"]
    several = {"two.json": two, "three.ubj": three, "value.ubj": value}
    for name, model in several.items():
        model.save_model(tmp_path / name)
        task = REGRESS if model is value else CLASSIFY
        out, wanted = tmp_path / task / name, request(tmp_path, name, task=task)
        told = run_stages(wanted, out, TabularEngine())["export"]
        assert told["feature_names"][:1] == ["width"] * (model is two)
        found = outputs(out / "optimize", ROWS)
        if model is value:
            assert np.allclose(found["prediction"][:, 0], model.predict(ROWS), atol=1e-4)
        else:
            model.get_booster().feature_names = None
            assert np.allclose(found["probabilities"], model.predict_proba(ROWS), atol=1e-5)
    unlike = xgboost.XGBRegressor(n_estimators=4, booster="gblinear").fit(ROWS, VALUE)
    unlike.save_model(tmp_path / "line.json")
    text = failure(request(tmp_path, "line.json", task=REGRESS), tmp_path / "1")
    assert text == "line.json is a model of gblinear, which onnxmltools does not convert"
    shares = xgboost.XGBRegressor(n_estimators=4, objective="reg:logistic").fit(ROWS, CLASS / 2)
    shares.save_model(tmp_path / "shares.json")
    text = failure(request(tmp_path, "shares.json", task=REGRESS), tmp_path / "2")
    assert "does not compute what xgboost predicts" in text
    (tmp_path / "no.json").write_text(json.dumps({"some": "json"}), "utf-8")
    assert "is not a model of XGBoost" in failure(request(tmp_path, "no.json"), tmp_path / "3")
