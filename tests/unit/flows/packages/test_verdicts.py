"""What the verdicts of a package on the versions of its provider come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.packages.verdicts import History, Trend, Verdict, history_of, keep_verdict
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace

TREE = "a" * 64


def evidence(version: str = "", fault: str = "", *, waived: str = "") -> dict[str, Any]:
    own = {"provider": "P", "device": "npu", "name": "P npu", "version": version, "own": True}
    cpu = {"provider": "C", "device": "cpu", "name": "C cpu", "version": "1", "own": False}
    rung = {"name": "parity", "passed": not fault, "detail": fault or "fine", "waived": waived}
    return {"runtimes": [cpu, own] if version else [cpu], "verification": [rung]}


def trend(*rows: tuple[str, str]) -> Trend:
    return History(tuple(Verdict(n, "P npu", *row) for n, row in enumerate(rows))).trend


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("1", "")], Trend.HOLDS),
        ([("1", "bad")], Trend.NEW),
        ([("1", ""), ("2", "")], Trend.HOLDS),
        ([("1", ""), ("2", "bad")], Trend.NEW),
        ([("1", ""), ("2", "bad"), ("3", "bad")], Trend.SUSTAINED),
        ([("1", ""), ("2", "bad"), ("2", "bad")], Trend.SUSTAINED),
        ([("1", ""), ("2", "bad"), ("3", "")], Trend.RECOVERED),
        ([("1", ""), ("2", "bad"), ("3", ""), ("3", "")], Trend.HOLDS),
        ([("1", ""), ("1", "bad")], Trend.FLAKY),
        ([("1", "bad"), ("2", ""), ("1", "")], Trend.FLAKY),
    ],
)
def test_the_last_verdict_is_told_by_those_before_it(
    rows: list[tuple[str, str]], expected: Trend
) -> None:
    assert trend(*rows) is expected


def test_the_build_gives_the_first_verdict_and_each_version_has_its_evidence(
    tmp_path: Path,
) -> None:
    settings = Settings(cwd=tmp_path)
    built = {**evidence("1.0"), "host": "elsewhere"}
    found = keep_verdict(settings, TREE, evidence("2.0, driver 7", "2 dB"), built)
    assert found
    assert str(found) == "fails now on P npu: 2.0, driver 7 (before: held on 1.0); parity: 2 dB"
    again = keep_verdict(settings, TREE, evidence("2.0, driver 8"), built)
    assert again
    assert (again.trend, len(again.verdicts)) == (Trend.RECOVERED, 3)
    assert history_of(settings, TREE) == again
    files = sorted(Workspace(settings).evidence_of(TREE).with_suffix("").iterdir())
    assert len(files) == 3
    assert not any("elsewhere" in file.read_text("utf-8") for file in files)
    # A file that cannot be read costs its verdicts; verifying again makes new ones.
    files[0].write_text("{", "utf-8")
    left = history_of(settings, TREE)
    assert left
    assert len(left.verdicts) == 2


def test_only_runs_on_its_own_provider_count(tmp_path: Path) -> None:
    settings = Settings(cwd=tmp_path)
    assert keep_verdict(settings, TREE, evidence(), evidence("1.0")) is None
    assert history_of(settings, TREE) is None
    waived = keep_verdict(settings, TREE, evidence("1.0", "bad", waived="known"), {})
    assert waived
    assert waived.trend is Trend.HOLDS
