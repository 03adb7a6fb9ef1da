"""What `modelmill trace` takes, and what it does with profiles that were made elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli.main import main
from tests.tracing.profiles import CONV2D, TWO, Execution, qhas, qnn_csv, resnet
from workers.measure.trace.result import Trace


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to trace is given"),
        (["x.onnx", "--iterations", "0"], "--iterations: 0 is out of range"),
        (["x.onnx", "--warmup", "-1"], "--warmup: -1 is out of range"),
        (["x.onnx", "--top-k", "0"], "--top-k: 0 is out of range"),
        (["x.onnx", "--level", "deep"], "--level: there is no 'deep'"),
        (["x.onnx", "--parse", "p.csv"], "--parse reads a profile, and runs no model"),
        (["x.onnx", "--qhas", "q.json"], "--qhas goes with --parse"),
        (["x.onnx", "--model", "m.onnx"], "--model goes with --parse"),
        (["--parse", "missing.csv"], "there is no file"),
    ],
)
def test_bad_usage_is_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", *words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def parsed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Trace:
    assert main(["trace", "--parse", *words, "--json"]) == code
    (told,) = json.loads(capsys.readouterr().out)
    return Trace.from_json(told)


def test_a_profile_made_elsewhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    qnn_csv(here / "p.csv", resnet())
    found = parsed(capsys, "p.csv")
    assert (found.status, found.metadata.num_samples, found.error) == ("ok", 5, None)
    assert found.operators[0].avg_us == pytest.approx(197.872, abs=0.001)
    assert found.statistics.inference is not None
    assert found.statistics.inference.mean_us == pytest.approx(1041)
    assert not found.metadata.emulated
    assert found.artifacts == {}, "nothing is kept without -o"


def test_detail_with_the_summary_of_the_viewer(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qnn_csv(here / "p.csv", resnet())
    (here / "sub").mkdir()
    qhas(here / "sub" / "q.json", [CONV2D])
    found = parsed(capsys, "p.csv", "--qhas", "sub/q.json", "-o", "out")
    assert (found.status, found.metadata.tracing_level) == ("ok", "detail")
    assert found.operators[0].avg_us == pytest.approx(569.688, abs=0.001)
    assert found.summary.vtcm_peak_bytes == 6619136
    assert found.artifacts == {"profile": "p.csv", "qhas": "q.json"}
    kept = sorted(path.name for path in (here / "out").iterdir())
    assert kept == ["p.csv", "q.json", "trace.json"]
    assert Trace.from_json(json.loads((here / "out" / "trace.json").read_text())) == found


def test_a_damaged_summary_leaves_the_basic_level(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qnn_csv(here / "p.csv", TWO)
    (here / "q.json").write_text("{}")
    found = parsed(capsys, "p.csv", "--qhas", "q.json")
    assert (found.status, found.fallback_reason) == ("basic_fallback", "qhas_parse_failed")
    assert found.operators[0].avg_us == pytest.approx(12.5)


@pytest.mark.parametrize(("text", "status"), [("", "no_data"), ("a,b\n", "parse_failed")])
def test_what_cannot_be_read_fails(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, status: str
) -> None:
    (here / "p.csv").write_text(text)
    found = parsed(capsys, "p.csv", "-o", "out", code=1)
    assert found.status == status
    assert found.error
    assert found.operators == ()
    assert main(["trace", "--parse", "p.csv"]) == 1
    assert f"{status}: p.csv" in capsys.readouterr().out


def test_an_emulator_is_known_by_its_threads(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qnn_csv(here / "p.csv", [Execution(100, 10, {"a:OpId_1": 50}, threads=0)])
    assert parsed(capsys, "p.csv").metadata.emulated
    main(["trace", "--parse", "p.csv"])
    out = capsys.readouterr().out
    assert "measured on an emulator" in out
    assert "inference  10.0 us (emulated)" in out


def test_a_folder_with_something_in_it_is_not_used(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qnn_csv(here / "p.csv", TWO)
    assert main(["trace", "--parse", "p.csv", "-o", "."]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert not (here / "trace.json").exists()
