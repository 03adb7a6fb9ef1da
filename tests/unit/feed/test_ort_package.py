"""A model's packages as one folder in ONNX Runtime's model-package format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from feed.errors import Corrupt, NotFound
from feed.ort_package import OrtPackage
from matrix.errors import NothingSelected, UsageError
from tests.fakes.feed import Fault, FlakyFeed
from tests.feeds.variants import Sweep

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "ort-package.schema.json").read_text("utf-8"))


def manifest_of(made: OrtPackage) -> dict[str, Any]:
    """The manifest, checked against the schema, with every path that it names."""
    found: dict[str, Any] = json.loads((made.dest / "manifest.json").read_bytes())
    jsonschema.validate(found, SCHEMA)
    for component in found["components"].values():
        for variant in component["variants"].values():
            folder = made.dest / variant["variant_directory"]
            assert (folder / variant["executor_info"]["ort"]["model_file"]).is_file()
    return found


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "sources")


def test_cells_are_variants_and_compiled_ones_come_first(sweep: Sweep, tmp_path: Path) -> None:
    for right in ("mlas_cpu", "qnn_npu", "qnn_npu+htp73", "qnn_npu:w8a8+htp73"):
        sweep.cell(right)
    sweep.cell("qnn_npu", "c/d")
    made = sweep.pull(tmp_path / "out", models=["a/*"])
    manifest = manifest_of(made)
    assert manifest["package_name"] == "a/b:t"
    (component,) = manifest["components"].values()
    order = ["qnn_npu+htp73", "qnn_npu-w8a8+htp73", "mlas_cpu", "qnn_npu"]
    assert (list(component["variants"]), list(made.variants)) == (order, order)
    one = component["variants"]["qnn_npu+htp73"]
    assert (one["ep"], one["device"]) == ("QNNExecutionProvider", "npu")
    assert one["compatibility_string"] == "v2:6:73"
    assert one["executor_info"]["ort"]["provider_options"] == {"htp_arch": "73"}
    assert one["additional_metadata"]["emulated"] is True
    portable = component["variants"]["qnn_npu"]
    assert portable.keys().isdisjoint({"compatibility_string"})
    assert "device" not in component["variants"]["mlas_cpu"], "no session would get it"
    assert (made.dest / "qnn_npu+htp73" / "model.onnx").read_text() == "qnn_npu+htp73"


def test_a_composite_has_a_component_for_each_graph(sweep: Sweep, tmp_path: Path) -> None:
    parts = ("encoder", "decoder")
    sweep.cell("qnn_npu", components=parts)
    sweep.cell("qnn_npu+htp73", components=parts)
    components = manifest_of(sweep.pull(tmp_path / "out"))["components"]
    assert list(components) == ["encoder", "decoder"]
    folders = [one["variant_directory"] for one in components["decoder"]["variants"].values()]
    assert folders == ["qnn_npu+htp73/decoder", "qnn_npu/decoder"]


def test_it_holds_one_model_in_a_new_folder(sweep: Sweep, tmp_path: Path) -> None:
    sweep.cell("qnn_npu")
    sweep.cell("qnn_npu", "c/d")
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"--model selects 2 models: a/b:t, c/d:t"):
        sweep.pull(out)
    with pytest.raises(NothingSelected):
        sweep.pull(out, models=["x/*"])
    assert not out.exists()
    out.mkdir()
    made = sweep.pull(out, models=["c/d:t"])
    assert (made.model, made.variants) == ("c/d:t", ("qnn_npu",))
    with pytest.raises(UsageError, match="is not empty"):
        sweep.pull(out, models=["c/d"])


def test_a_package_that_is_not_whole_gets_no_name(sweep: Sweep, tmp_path: Path) -> None:
    sweep.cell("mlas_cpu")
    gone = sweep.cell("qnn_npu")
    out = tmp_path / "out" / "net"
    with pytest.raises(Exception, match="reset"):
        sweep.pull(out, FlakyFeed(sweep.feed).plan("fetch", None, None, Fault.HALFWAY))
    sweep.feed.delete(gone.package, gone.version)
    with pytest.raises(NotFound, match="was deleted"):
        sweep.pull(out)
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ({"target": 7}, "cannot be read"),
        ({"stages": []}, "no stage that compiled"),
        ({"profile": {"options": {}}}, "file_options"),
    ],
)
def test_records_that_make_no_sense_are_named(
    sweep: Sweep, tmp_path: Path, records: dict[str, Any], words: str
) -> None:
    cell = sweep.cell("qnn_npu+htp73", **records)
    with pytest.raises(Corrupt, match=words) as error:
        sweep.pull(tmp_path / "out")
    assert cell.version in error.value.message


@pytest.mark.parametrize("name", ["../secret", "/etc", "c:x", "elsewhere"])
def test_a_component_outside_the_package_is_refused(
    sweep: Sweep, tmp_path: Path, name: str
) -> None:
    cell = sweep.cell("qnn_npu")
    named = {"components": [{"name": "x", "model": f"{name}/model.onnx"}]}
    files = {"composition.json": json.dumps(named).encode(), "modelmill.json": b"{}"}
    tree = sweep.publish(cell.package, f"{cell.version}-2", files)
    sweep.cells = [replace(cell, version=f"{cell.version}-2", tree=tree)]
    with pytest.raises(Corrupt, match="not a file of the package"):
        sweep.pull(tmp_path / "out")


@pytest.mark.parametrize(
    "path", ["/a", "a/../b", "..", "../a", "a\\b", "C:/a", "", "a/.."]
)  # fmt: skip
def test_the_schema_refuses_paths_that_leave_the_package(path: str) -> None:
    executor = {"ort": {"model_file": "model.onnx"}}
    variant: dict[str, Any] = {"variant_directory": path, "ep": "CPUExecutionProvider"}
    variant["executor_info"] = executor
    value = {"schema_version": "1.0", "components": {"m": {"variants": {"v": variant}}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)
    variant["variant_directory"] = "a/..b/c"
    jsonschema.validate(value, SCHEMA)
