"""A record of an onboarding, and the folder that it tells of, without a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.onboard import folder as files
from flows.onboard.coverage import Effort, Probe
from flows.onboard.folder import Package, Record, listed, put
from flows.onboard.goals import GOALS, Tier
from flows.onboard.goals import Verdict as Ended
from flows.onboard.report import markdown
from matrix.coverage import Coverage, Verdict

ENTRY = '[[model]]\nid = "our/model"\ntask = "fill-mask"\nfolder = "nowhere"\n'
EVIDENCE = "evidence/numbers.json"


def record() -> Record:
    """All tiers pass."""
    probe = Probe(Coverage(Verdict.BUILDS, "bert", "fill-mask"), Effort.ENTRY, "it is known")
    tiers = tuple(Tier(goal, Ended.PASS, "so", (EVIDENCE,), {"p50": 1.0}) for goal in GOALS)
    package = Package("mlas_cpu", "our/model:fill-mask@mlas_cpu", "packages/mlas_cpu", "0" * 64,
                      "logs/mlas_cpu.log", "loads holds")  # fmt: skip
    return Record(
        model="our/model", task="fill-mask", architecture="bert", engine="optimum",
        targets=("mlas_cpu",), began="2026-01-01T00:00:00+00:00", machine={}, tools={},
        entry=ENTRY, needless="", row={"model": "our/model"}, packages=(package,), finding="",
        probe=probe, effort=Effort.ENTRY, goal="L3", tiers=tiers, method=("none",),
    )  # fmt: skip


def written(folder: Path, made: Record) -> Record:
    """A folder with all that the record names."""
    contents = {files.CATALOG: made.entry, files.PROBE: "{}", EVIDENCE: "{}",
                "packages/mlas_cpu/model.onnx": "onnx", "logs/mlas_cpu.log": ""}  # fmt: skip
    if made.finding:
        contents[files.FINDING] = made.finding
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    made = replace(made, files=listed(folder))
    (folder / files.REPORT).write_text(markdown(made))
    put(folder, files.RECORD, made)
    return made
