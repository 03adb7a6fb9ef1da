"""What `modelmill compile` says of each result."""

from __future__ import annotations

from pathlib import Path

from flows.compile.written import Written, result_lines, result_to_json
from flows.observe.evidence import opening_of
from matrix.verification import Rung
from workers.compile.files import Checked, Compiled, Opening

RUNTIME = {"name": "X npu (emulated)", "own": True, "ran": True, "emulated": True}
SIDES = {
    "portable": {"seconds": 2.0, "memory": 3_000_000},
    "compiled": {"seconds": 0.1, "memory": 1_000_000},
}


def test_each_file_has_its_own_lines_and_failures_are_counted(tmp_path: Path) -> None:
    binary = tmp_path / "a.bin"
    binary.write_bytes(bytes(1000))
    shared = {"output": tmp_path / "a_ctx.onnx", "binaries": (binary,), "seconds": 2.0}
    shared |= {"sharing": {"graphs": 2, "together": 1200}}
    checked = Checked(True, "answers", Opening(2.0, 2_000_000), Opening(0.1, 1_000_000))
    done = [
        Compiled(Path("a.onnx"), **shared, checked=checked),  # type: ignore[arg-type]
        Compiled(Path("b.onnx"), **shared),  # type: ignore[arg-type]
        Compiled(Path("c.onnx"), error="the compiler has crashed"),
        Compiled(Path("d.onnx"), error="X takes no operator of it"),
    ]
    text = "\n".join(result_lines(done))
    for part in (
        "compiled a.onnx -> ", "checked: answers", "opens in 0.1s", "not checked",
        "FAILED   c.onnx: the compiler has crashed", "FAILED   d.onnx: X takes no",
        "a.bin (1.0 kB) holds 2 graphs",
        "2 of 4 models failed",
    ):  # fmt: skip
        assert part in text, text
    assert result_to_json(done[2])["error"] == "the compiler has crashed"


def test_a_package_says_whether_it_was_opened_and_on_what(tmp_path: Path) -> None:
    good = tuple(Rung(name, True, "") for name in ("integrity", "loads"))
    record = {"opening": {"model.onnx": SIDES}, "runtimes": [RUNTIME]}
    checked = Written("m@x+p", tmp_path, "t", 1.5, (), good, opening_of(record))
    unsure = Written("m@x+p", tmp_path, verification=(*good, Rung("parity", None, "no export")))
    closed = Written("m@x+p", tmp_path, verification=good[:1])
    lines = [" | ".join(result_lines([one])) for one in (checked, unsure, closed)]
    assert "checked: integrity, loads" in lines[0]
    assert "model.onnx opens in 0.1s and " in lines[0]
    assert "; the portable model in 2.0s and " in lines[0]
    assert "say nothing about the device" in lines[0]
    assert "not checked: parity: no export" in lines[1]
    assert "not checked: it was not opened" in lines[2]
    assert [one.checked for one in (checked, unsure, closed)] == [True, None, True]
    assert result_to_json(checked)["opening"] is not None
