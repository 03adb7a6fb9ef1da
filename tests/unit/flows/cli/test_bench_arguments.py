"""What `modelmill bench` takes, before it opens anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.main import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x.onnx", "--shape", "x=0x3"], "'x=0x3' is not INPUT=SIZES"),
        (["x.onnx", "--shape", "3x3"], "'3x3' is not INPUT=SIZES"),
        (["x.onnx", "--iterations", "0"], "'0' is not a whole number above zero"),
        (["x.onnx", "--sessions", "5000"], "--sessions: 5000 is out of range"),
        (["x.onnx", "--against", "a", "b", "c"], "--against takes one OTHER"),
        (["x.onnx", "--target", "a", "--profile", "b"], "not allowed with"),
        ([], "no model is given (or --stamp for all of a batch)"),
    ],
)
def test_bad_usage_is_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
