"""Tunings as text: what is told of each trial, within the width of the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.tune.decision import Decision
from flows.tune.document import trial_line, tuning_lines
from flows.tune.record import Recorded, Trial, Tuning
from matrix.trials import Phase, TuningStatus, Verdict
from tests.measuring.runtimes import CPU, NPU
from tests.tunings.fakes import NAME, PROTOCOL, cell

LONG = "npu-opset-21+npu-conv-fusions+npu-burst+npu-per-tensor"


def gained(verdict: Verdict, gain: float) -> Decision:
    return Decision(verdict, "all 3 sessions agree", gain, gain - 1.5, gain + 1.5, 0.8)


def trial(key: str, verdict: Verdict, gain: float | None = None, **values: Any) -> Trial:
    decision = None if gain is None else gained(verdict, gain)
    told: dict[str, Any] = {"why": "all 3 sessions agree, and the noise floor is 0.8%", **values}
    return Trial(key=key, settings=("opset=21",), verdict=verdict, decision=decision, **told)


@pytest.fixture
def found(tmp_path: Path) -> Recorded:
    tuning = Tuning(
        name=NAME, model="demo/bert-tiny:text-classification", target="mlas_cpu",
        cell=cell(tmp_path), engine="optimum", space="0" * 64, protocol=PROTOCOL, seed=1,
        min_gain=5.0, runtime=CPU, baseline_ms=1.234, spent=200.0, measuring=170.0,
        status=TuningStatus.DONE, champion="opset-21",
    )  # fmt: skip
    trials = (
        Trial(key="baseline", phase=Phase.BASELINE),
        trial("opset-21", Verdict.BETTER, 12.3),
        trial(LONG, Verdict.NO_DIFFERENCE, 0.4, phase=Phase.COMBINATION),
        trial("level", Verdict.BUILD_FAILED, why="optimize: no such pass " * 9),
        trial("gelu", Verdict.SKIPPED, why="the graph has no Gelu"),
    )
    return Recorded(tuning, trials)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_its_terminal_and_names_the_champion(found: Recorded, width: int) -> None:
    lines = list(tuning_lines(found, width))
    # On a narrow terminal the columns of numbers stay whole.
    assert max(map(len, lines)) <= max(width, 80)
    text = "\n".join(lines)
    assert "* opset-21" in text
    assert "+12.3 %" in text
    assert "+10.8 to +13.8" in text
    assert "1 hypothesis skipped" in text
    assert "champion: opset-21 +12.3 % (opset=21)" in text
    assert "baseline 1.23 ms; 3m20s, 85% of it measuring" in text
    assert "gelu" not in text
    assert ("optimize: no such pass" in text) == (width > 80)


def test_an_emulators_times_are_told_as_that(found: Recorded) -> None:
    tuning = replace(found.tuning, runtime=NPU, champion="")
    text = "\n".join(tuning_lines(replace(found, tuning=tuning), 80))
    assert "measured on an emulator" in text
    assert "no champion, because an emulator proves nothing: 1 better" in text


def test_what_went_wrong_with_all_of_it_is_told(found: Recorded) -> None:
    failed = replace(
        found.tuning, status=TuningStatus.FAILED, message="export: no such model", champion="",
        runtime=None, baseline_ms=None, spent=0.0,
    )  # fmt: skip
    lines = list(tuning_lines(Recorded(failed, ()), 80))
    assert lines[-1] == "  FAILED: export: no such model"
    late = replace(found.tuning, status=TuningStatus.OUT_OF_TIME, message="level was not begun")
    assert list(tuning_lines(replace(found, tuning=late), 80))[-1].endswith("; level was not begun")


def test_a_line_of_a_trial_has_numbers_or_a_reason(found: Recorded) -> None:
    _, won, together, failed, _ = found.trials
    assert trial_line(won, "1/3", 80) == "  1/3  opset-21  better  +12.3 % (+10.8 to +13.8)"
    assert len(trial_line(together, "together", 80)) <= 80
    line = trial_line(failed, "3/3", 80)
    assert line.startswith("  3/3  level  build failed: optimize: no such pass")
    assert len(line) <= 80
