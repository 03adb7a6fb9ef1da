"""`modelmill compile` on plain files, with the real QNN compiler and its emulated HTP."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tests.engines.shared_weights import quantized
from tests.machine.timing import patient
from tests.sweeps.command import CLI

pytestmark = [pytest.mark.vendor, pytest.mark.engine]


def unsupported(path: Path) -> Path:
    """A model of which the HTP takes no operator."""
    node = helper.make_node("NonZero", ["x"], ["y"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, None])],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *CLI, "compile", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patient(280))


def compiled(folder: Path, *words: str | Path) -> list[dict[str, Any]]:
    done = run(folder, *words, "--profile", "htp73", "--emulated", "--json")
    assert done.stderr == ""
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == int(any(row["error"] for row in rows))
    return rows


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_two_models_each_with_its_binary_checked_and_the_same_again_elsewhere(
    tmp_path: Path,
) -> None:
    quantized(4, tmp_path / "a.onnx")
    quantized(1, tmp_path / "b.onnx")
    rows = compiled(tmp_path, "a.onnx", "b.onnx", "-o", "out")
    for row in rows:
        assert (row["error"], row["checked"]["passed"]) == (None, True)
        binary = tmp_path / row["binaries"][0]
        assert binary.stat().st_size > 200_000
        assert row["checked"]["compiled"]["seconds"] < row["checked"]["portable"]["seconds"]
    assert [row["output"] for row in rows] == ["out/a_ctx.onnx", "out/b_ctx.onnx"]
    assert len(names(tmp_path / "out")) == 4
    # Equal inputs give equal bytes, wherever they lie.
    other = tmp_path / "some" / "where"
    other.mkdir(parents=True)
    for name in ("a.onnx", "b.onnx"):
        shutil.copyfile(tmp_path / name, other / name)
    compiled(other, "a.onnx", "b.onnx", "-o", "out", "--no-check")
    assert {path.name: path.read_bytes() for path in (other / "out").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()
    }


@pytest.mark.parametrize("backend", ["api", "session"])
def test_graphs_that_share_their_weights_share_one_binary(tmp_path: Path, backend: str) -> None:
    quantized(4, tmp_path / "a.onnx")
    quantized(1, tmp_path / "b.onnx")
    alone = compiled(tmp_path, "a.onnx", "b.onnx", "-o", "alone", "--no-check")
    shared = compiled(tmp_path, "a.onnx", "b.onnx", "-o", "shared", "--share", "--backend", backend)
    binaries = {name for row in shared for name in row["binaries"]}
    assert len(binaries) == 1
    size = (tmp_path / binaries.pop()).stat().st_size
    apart = sum((tmp_path / row["binaries"][0]).stat().st_size for row in alone)
    assert size < 0.6 * apart
    for row in shared:
        assert size < row["sharing"]["together"] < 0.7 * apart
    assert (
        names(tmp_path / "shared")[-2:] == ["a_ctx.onnx", "b_ctx.onnx"]
        or len(names(tmp_path / "shared")) == 3
    )
    for row in shared:
        assert row["error"] is None
        assert row["checked"]["passed"] is None
        assert "cannot open a context that holds several graphs" in row["checked"]["detail"]


def test_a_member_that_cannot_be_compiled_leaves_the_others_their_context(tmp_path: Path) -> None:
    quantized(4, tmp_path / "a.onnx")
    (tmp_path / "broken.onnx").write_bytes((tmp_path / "a.onnx").read_bytes())
    model = onnx.load(tmp_path / "broken.onnx")
    model.graph.node[3].op_type = "MatMool"
    onnx.save(model, tmp_path / "broken.onnx")
    quantized(1, tmp_path / "b.onnx")
    rows = compiled(tmp_path, "a.onnx", "broken.onnx", "b.onnx", "--share", "-o", "out")
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    assert "MatMool" in rows[1]["error"]
    assert rows[0]["binaries"] == rows[2]["binaries"]
    assert [row["sharing"] and row["sharing"]["graphs"] for row in rows] == [2, None, 2]
    assert len(names(tmp_path / "out")) == 3


def test_an_embedded_context_is_one_file(tmp_path: Path) -> None:
    quantized(4, tmp_path / "a.onnx")
    (row,) = compiled(tmp_path, "a.onnx", "-o", "out.v1", "--embed")  # a folder may have a dot
    assert (row["binaries"], row["checked"]["passed"]) == ([], True)
    assert names(tmp_path / "out.v1") == ["a_ctx.onnx"]
    assert [len(row["checked"][side]) for side in ("inputs", "outputs")] == [1, 1]


def test_a_model_of_which_the_device_takes_nothing_has_failed(tmp_path: Path) -> None:
    unsupported(tmp_path / "plain.onnx")
    done = run(tmp_path, "plain.onnx", "--profile", "htp73", "--emulated", "-o", "out")
    assert done.returncode == 1
    assert "FAILED   plain.onnx: QNNExecutionProvider takes no operator of it" in done.stdout
    assert names(tmp_path / "out") == []


def test_what_is_there_already_stays_unless_told_otherwise(tmp_path: Path) -> None:
    source = quantized(4, tmp_path / "a.onnx")
    before = source.read_bytes()
    compiled(tmp_path, "a.onnx", "a.onnx", "-o", "out", "--no-check")
    first = names(tmp_path / "out")
    assert "a_ctx.onnx" in first
    refused = run(tmp_path, "a.onnx", "--profile", "htp73", "--emulated", "-o", "out")
    assert refused.returncode == 2
    assert "out has a_ctx.onnx already (add --overwrite, or choose -o)" in refused.stderr
    compiled(tmp_path, "a.onnx", "-o", "out", "--no-check", "--overwrite")
    assert names(tmp_path / "out") == first
    again = run(tmp_path, "out/a_ctx.onnx", "--profile", "htp73", "--emulated", "-o", "more")
    assert again.returncode == 2
    assert "out/a_ctx.onnx is compiled already" in again.stderr
    assert source.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.onnx"], "no profile is given"),
        (["--profile", "htp73"], "no model is given"),
        (["a.onnx", "--profile", "htp73"], "no folder for the results is given"),
        (["a.onnx", "--profile", "htp37", "-o", "x"], "did you mean htp73"),
        (["a.onnx", "--profile", "cpu", "-o", "x"], "CPUExecutionProvider cannot compile ahead"),
        (["a.onnx", "--profile", "htp73", "-o", "x"], "allow it with --emulated"),
        (["a.onnx", "--profile", "ov_npu", "-o", "x"], "modelmill engine install openvino_ep"),
        (["b.onnx", "--profile", "htp73", "--emulated", "-o", "x"], "b.onnx is not a file"),
        (["text.onnx", "--profile", "htp73", "--emulated", "-o", "x"], "cannot be read as an ONNX"),
        (["a.onnx", "--profile", "htp73", "--emulated", "-o", "a.onnx"], "a.onnx is a file"),
        (["a.onnx", "--profile", "htp73", "--emulated", "-o", "x", "--ep-option", "vtcm"],
         "'vtcm' is not K=V"),
        (["a.onnx", "--profile", "htp73", "--emulated", "-o", "x", "--ep-option", "vtcm_md=8"],
         "QNNExecutionProvider has no option 'vtcm_md' (did you mean vtcm_mb?"),
    ],
)  # fmt: skip
def test_a_bad_command_line_is_one_line_and_makes_nothing(
    tmp_path: Path, words: list[str], message: str
) -> None:
    quantized(4, tmp_path / "a.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    before = names(tmp_path)
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert names(tmp_path) == before


def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in "ac":
        quantized(4, tmp_path / f"{name}.onnx")
    (tmp_path / "b.onnx").write_text("no model")
    aim = ["--profile", "htp73", "--emulated", "--no-check"]
    done = run(tmp_path, "a.onnx", "b.onnx", "c.onnx", "-o", "out", *aim)
    assert done.returncode == 1
    assert "FAILED   b.onnx: b.onnx cannot be read as an ONNX model" in done.stdout
    assert "1 of 3 models failed" in done.stdout
    assert {"a_ctx.onnx", "c_ctx.onnx"} <= set(names(tmp_path / "out"))


def test_the_list_says_what_this_machine_can_make(tmp_path: Path) -> None:
    done = run(tmp_path, "--list")
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "api, session" in rows["htp73"]
    assert "modelmill engine install openvino_ep" in rows["ov_cpu"]
    assert names(tmp_path) == []
