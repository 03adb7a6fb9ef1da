"""The knowledge base: one's own findings, evidence that is appended, and damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli.main import main
from flows.tune.knowledge import EVIDENCE, load_knowledge
from matrix.codec import to_json
from matrix.errors import MillError
from matrix.findings import Evidence

FOR = Evidence(
    supports=True,
    model="facebook/dinov2-large",
    architecture="dinov2",
    target="qnn_npu",
    device="Snapdragon X Plus",
    protocol="interleaved",
    gain=12.0,
    low=8.0,
    high=16.0,
    floor=3.0,
)
AGAINST = Evidence(
    supports=False, model="m", architecture="dinov2", target="qnn_npu", device="d", gain=0.1
)
OWN = """
[[finding]]
id = "own-1"
kind = "family"
title = "<ours>"
observation = "o"
status = "draft"
confidence = "low"
falsified_by = "f"
"""


def add(folder: Path, name: str, evidence: Evidence) -> None:
    folder.mkdir(exist_ok=True)
    said = {key: value for key, value in to_json(evidence).items() if value not in (None, "")}
    with (folder / EVIDENCE).open("a") as file:
        file.write(json.dumps({"finding": name, **said}) + "\n")


def test_evidence_of_ones_own_is_kept_beside_the_shipped_findings(tmp_path: Path) -> None:
    before = load_knowledge(tmp_path / "none").get("npu-001")
    add(tmp_path / "own", "npu-001", FOR)
    add(tmp_path / "own", "npu-001", AGAINST)
    after = load_knowledge(tmp_path / "own").get("npu-001")
    assert after.evidence == (*before.evidence, FOR, AGAINST)
    assert (before.level, after.level) == (1, 2)
    assert AGAINST in after.contradicted


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: is not valid JSON"),
        ("[]", "line 2: finding is missing"),
        ('{"finding": "npu-001", "supports": true}', "line 2: model is missing"),
        ('{"finding": "npu-01", "supports": true, "model": "m", "architecture": "a"}',
         "there is no finding 'npu-01'"),
    ],
)  # fmt: skip
def test_a_damaged_line_costs_only_itself(tmp_path: Path, line: str, problem: str) -> None:
    add(tmp_path, "npu-001", FOR)
    with (tmp_path / EVIDENCE).open("a") as file:
        file.write(line + "\n\n")
    add(tmp_path, "npu-001", AGAINST)
    known = load_knowledge(tmp_path)
    assert problem in str(known.problems[0])
    assert known.get("npu-001").evidence[-2:] == (FOR, AGAINST)


def test_an_unknown_finding_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(MillError, match=r"there is no finding 'npu-0001' \(did you mean npu-001"):
        load_knowledge(tmp_path).get("npu-0001")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    place = ["--knowledge", str(tmp_path)]
    assert main(["knowledge", "ls", "--kind", "family", *place]) == 0
    shown = capsys.readouterr().out
    assert "own-1" in shown
    assert "npu-001" not in shown
    assert main(["knowledge", "ls", "--about", "dinov2", "--json", *place]) == 0
    ids = {one["id"] for one in json.loads(capsys.readouterr().out)}
    assert {"npu-001", "cpu-001"} <= ids
    assert "own-1" not in ids
    assert main(["knowledge", "ls", "--about", "nothing", *place]) == 0
    assert "no finding matches" in capsys.readouterr().out
    assert main(["knowledge", "show", "npu-006", *place]) == 0
    shown = capsys.readouterr().out
    assert "from level 3 on, uncontradicted, leave it out" in shown
    assert (
        "for     microsoft/resnet-18 -13700.0 % qnn_npu on Snapdragon X Elite, sequential" in shown
    )
    assert main(["knowledge", "show", "npu-001", "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out)["prunes"] is False


def test_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--knowledge", str(tmp_path)]
    assert main(["knowledge", "check", *place]) == 0
    assert "no problem" in capsys.readouterr().out
    (tmp_path / EVIDENCE).write_text("x\n")
    assert main(["knowledge", "check", *place]) == 2
    assert "1 problem in the evidence" in capsys.readouterr().err
    (tmp_path / "other" / EVIDENCE).mkdir(parents=True)
    assert main(["knowledge", "check", "--knowledge", str(tmp_path / "other")]) == 2
    assert "1 problem in the evidence" in capsys.readouterr().err
    assert main(["knowledge", "check", str(tmp_path / EVIDENCE)]) == 2
    assert "evidence.jsonl: line 1: is not valid JSON" in capsys.readouterr().err
    line = {"finding": "npu-001", "supports": False, "model": "a/b", "architecture": "bert"}
    (tmp_path / EVIDENCE).write_text(json.dumps(line))
    assert main(["knowledge", "check", str(tmp_path / EVIDENCE)]) == 0
    assert "0 findings with 1 observations, no problem" in capsys.readouterr().out
    bad = tmp_path / "bad.toml"
    bad.write_text(OWN.replace("draft", "sure"))
    assert main(["knowledge", "check", str(bad)]) == 2
    assert "unknown status 'sure'" in capsys.readouterr().err
    assert main(["knowledge", "check", str(tmp_path / "missing.toml")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["knowledge", "ls", "--knowledge", str(tmp_path / "missing")]) == 2
    assert "there is no folder" in capsys.readouterr().err
