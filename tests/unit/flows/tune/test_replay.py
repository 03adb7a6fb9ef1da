"""Recordings of other sweeps: read, graded both ways, and refused with a line where damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from flows.tune.recordings import read_recordings
from flows.tune.replay import Agreement, Graded, replay
from matrix.errors import PlanError
from matrix.trials import Verdict


def npu(**hypotheses: Any) -> dict[str, Any]:
    return {"model_id": "facebook/dinov2-small", "device": "NPU", "hypotheses": hypotheses}


def ran(*sessions: float, confirm: tuple[float, ...] = (), **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"status": "OK", "label": "x", "full": {"p50s_ms": list(sessions)}}
    if confirm:
        found["confirm_p50s_ms"] = list(confirm)
    return found | more


def graded(tmp_path: Path, data: object, name: str = "results.json") -> dict[str, Graded]:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
    return {row.trial: row for one in read_recordings([path]) for row in replay(one)}


def test_a_published_win_that_its_own_rule_does_not_support(tmp_path: Path) -> None:
    rows = graded(
        tmp_path,
        npu(
            h1=ran(7.176, 6.392, 9.436),
            h3=ran(4.977, 4.876, 6.884, confirm_verdict="CONFIRMED"),
        ),
    )
    row = rows["h3"]
    assert list(rows) == ["h3"]
    assert row.gain == pytest.approx(30.64, abs=0.005)
    assert (row.rule, row.verdict) == ("median_only", Verdict.TOO_NOISY)
    assert row.agreement is Agreement.OWN_RULE


def test_a_win_by_its_own_rule_is_none_by_ours(tmp_path: Path) -> None:
    h12 = {
        "status": "OK",
        "full_p50s_ms": [22.323, 21.709, 21.977],
        "confirm_p50s_ms": [21.667, 23.431],
        "verdict": "KEEP_CONFIRMED",
    }
    rows = graded(
        tmp_path,
        {"model_id": "m", "device": "gpu", "hypotheses": {
            "h0": {"status": "OK", "full_p50s_ms": [26.372]}, "h12": h12}},
    )  # fmt: skip
    row = rows["h12"]
    assert (row.rule, row.verdict) == ("KEEP_CONFIRMED", Verdict.TOO_NOISY)
    assert row.gain == pytest.approx(16.67, abs=0.005)
    assert row.agreement is Agreement.OURS


def test_a_build_that_is_far_slower_is_worse(tmp_path: Path) -> None:
    rows = graded(tmp_path, npu(h0=ran(1.311, 0.952, 0.964), h4=ran(132.3, 134.97, 130.669)))
    assert (rows["h4"].rule, rows["h4"].verdict) == ("regression", Verdict.WORSE)
    assert rows["h4"].agreement is Agreement.SUPPORTED


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("BUILD_FAIL", Verdict.BUILD_FAILED),
        ("BUILD_TIMEOUT", Verdict.TIMED_OUT),
        ("BENCH_FAIL", Verdict.CRASHED),
        ("PREBUILD_NOOP_SKIP", Verdict.SAME),
        ("", Verdict.SKIPPED),
    ],
)
def test_trials_without_sessions(tmp_path: Path, status: str, verdict: Verdict) -> None:
    rows = graded(tmp_path, npu(h0=ran(1.0), h2={"status": status}))
    assert rows["h2"].verdict is verdict
    assert rows["h2"].gain is None


def test_an_inaccurate_trial_is_no_gain(tmp_path: Path) -> None:
    rows = graded(tmp_path, npu(h0=ran(2.0, 2.0, 2.0), h2=ran(1.0, 1.0, 1.0, accuracy=0.2)))
    assert rows["h2"].verdict is Verdict.INACCURATE


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    rows = graded(tmp_path, npu(h0={"status": "BUILD_FAIL"}, h3=ran(1.0)))
    assert "baseline has no sessions" in rows["h3"].why


def test_the_experiments_of_the_loop(tmp_path: Path) -> None:
    table = (
        "iter\tlabel\tdimension\tmedian_p50_ms\tbaseline_p50_ms\tstatus\n"
        "1\tgelu\tgraph_pass\t9.0\t10.0\tKEEP\n2\tbroken\tgraph_pass\t\t10.0\tBUILD_FAIL\n"
    )
    rows = graded(tmp_path, table, "results.tsv")
    assert list(rows) == ["1 gelu"]
    assert (rows["1 gelu"].rule, rows["1 gelu"].verdict) == ("KEEP", Verdict.TOO_NOISY)
    assert "1 against 1 sessions can never rule out chance" in rows["1 gelu"].why


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("{", "is not valid JSON"),
        ([], "holds no model"),
        ({}, "has no 'hypotheses'"),
        ([3], "has no 'hypotheses'"),
        (npu(h0=3), "'h0' is not a table but 3"),
        (npu(h0=ran(0.0)), "'h0' has a session of 0.0, not a time in ms"),
        (npu(h0={"full": {"p50s_ms": ["NaN"]}}), "has a session of 'NaN'"),
        (npu(h0={"full": {"p50s_ms": [True]}}), "has a session of True"),
        (npu(h0={"full": {"p50s_ms": [10**400]}}), "has a session of 1000"),
        (npu(h0={"full": {"p50s_ms": 3}}), "are not a list of times"),
        (npu(h0={"full": {"p50s_ms": [1.0] * 10_001}}), "are not a list of times"),
    ],
)
def test_a_damaged_recording_is_refused_with_its_name(
    tmp_path: Path, data: object, problem: str
) -> None:
    with pytest.raises(PlanError) as caught:
        graded(tmp_path, data)
    assert problem in str(caught.value)
    assert "results.json" in str(caught.value)


def test_an_accuracy_of_any_size_is_read(tmp_path: Path) -> None:
    rows = graded(tmp_path, npu(h0=ran(1.0), h1=ran(1.0, accuracy=-(10**400))))
    assert rows["h1"].verdict is Verdict.INACCURATE


def test_an_export_is_not_made_of_recordings(tmp_path: Path) -> None:
    told = ["tune", "--replay", str(tmp_path), "--export", str(tmp_path / "x.json")]
    assert main(told) == 2


def test_text_of_a_recording_cannot_steer_a_terminal(tmp_path: Path) -> None:
    data = npu(h0=ran(1.0), **{"h\x1b[2J": ran(1.0, label="\x1b[31m", verdict="\n")})
    rows = graded(tmp_path, data | {"model_id": "a\x1bb"})
    assert all(
        text.isprintable() for row in rows.values() for text in (row.model, row.trial, row.claim)
    )


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not a table"):
        graded(tmp_path, "label\n" + "x" * 200_000, "results.tsv")


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dinov2-small").mkdir()
    data = npu(
        h1=ran(7.176, 6.392, 9.436), h3=ran(4.977, 4.876, 6.884, confirm_verdict="CONFIRMED")
    )
    (tmp_path / "dinov2-small" / "results.json").write_text(json.dumps(data))
    assert main(["tune", "--replay", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "h3     +30.6 %  CONFIRMED  median_only  too noisy" in shown
    assert "1 trial; 1 claim that the data do not support" in shown
    assert main(["tune", "--replay", str(tmp_path), "--json", "--min-gain", "50%"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "no difference"
    del data["model_id"]
    (tmp_path / "results.json").write_text(json.dumps(data))
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "--replay", "results.json"]) == 0
    assert capsys.readouterr().out.startswith(tmp_path.name)
    (tmp_path / "results.json").unlink()
    assert main(["tune", "--replay", str(tmp_path), "--min-gain", "much"]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["tune", "--replay", str(tmp_path / "empty"), str(tmp_path / "none.json")]) == 2
    told = capsys.readouterr().err
    assert "2 problems in the recordings" in told
    assert "holds no results" in told
    assert "no such file" in told
    assert "catalog" not in told
