"""A record of an onboarding, and the folder that it tells of, without a build."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from flows.onboard import folder as files
from flows.onboard.climb import latencies, success_of, weights_of
from flows.onboard.coverage import Effort, Probe
from flows.onboard.folder import Package, Record, listed, markdown, put, row_of
from flows.onboard.goals import Tier
from flows.onboard.goals import Verdict as Ended
from matrix.coverage import Coverage, Verdict
from matrix.digest import FileEntry, tree_digest
from matrix.verification import Rung
from workers.measure.result import Benchmark, GraphResult, Latency, Machine, Protocol
from workers.measure.subject import Artifact
from workers.runtimes.runtime import Runtime

ENTRY = """\
[[model]]
id = "our/model"
task = "fill-mask"
folder = "nowhere"
verify = { task = { dataset = "eval.npz", metric = "accuracy" } }
"""
BUILD = "evidence/build-mlas_cpu.json"
BENCH = "evidence/bench-mlas_cpu.json"
PLACE = "packages/mlas_cpu"
COMPARED = {"samples": 8, "kind": "synthetic", "snr": ">= 47"}
MANIFEST = {"stages": [{"stage": "export", "facts": {"compared": COMPARED}}]}
RUNGS = tuple(
    Rung(name, True, "so", {"models": {"model.onnx": {"bytes": {"float": 4}}}})
    for name in ("integrity", "policy", "loads", "shapes", "samples", "parity", "task")
)
MODEL = b"onnx"
TREE = tree_digest([FileEntry("model.onnx", len(MODEL), hashlib.sha256(MODEL).hexdigest())])


def bench(tree: str = TREE, p50: float = 1.0, *, emulated: bool = False) -> Benchmark:
    """A benchmark of the package."""
    times = Latency(10, p50, 2.0, 2.0, 2.0, 1.0, 0.1, 1.0, 2.0, 0.1, 1000.0)
    return Benchmark(
        artifact=Artifact("packages/mlas_cpu", tree),
        runtime=Runtime("ort", "CPUExecutionProvider", "cpu", "1", emulated=emulated),
        machine=Machine("here", "Linux x86_64", "some", 2, 2**30),
        protocol=Protocol(),
        began=0.0,
        seconds=1.0,
        graphs=(GraphResult("", latency=times),),
    )


def built(**changed: object) -> dict[str, object]:
    """What its build left as evidence."""
    cell = "our/model:fill-mask@mlas_cpu"
    told = {"cell": cell, "tree": TREE, "manifest": MANIFEST, "verification": RUNGS}
    return {**told, **changed}


def record() -> Record:
    """All tiers pass, and the evidence shows it."""
    coverage = Coverage(Verdict.BUILDS, "bert", "fill-mask")
    probe = Probe(coverage, Effort.ENTRY, "it is known", ("family-bert",))
    tiers = (
        Tier("L0", Ended.PASS, "so", (BUILD,)),
        Tier("L1", Ended.PASS, "so", (BENCH,), {"mlas_cpu": latencies(bench())}),
        Tier("L2", Ended.PASS, "so", (BUILD,), {"source": COMPARED}),
        Tier("L3", Ended.PASS, "so", (BUILD,), {"mlas_cpu": "so"}),
    )
    package = Package("mlas_cpu", "our/model:fill-mask@mlas_cpu", PLACE, TREE,
                      "logs/mlas_cpu.log", success_of(RUNGS), weights_of(RUNGS))  # fmt: skip
    made = Record(
        model="our/model", task="fill-mask", architecture="bert", engine="optimum",
        targets=("mlas_cpu",), began="2026-01-01T00:00:00+00:00", machine={}, tools={},
        entry=ENTRY, needless="", row={}, packages=(package,), finding="",
        probe=probe, effort=Effort.ENTRY, goal="L3", tiers=tiers, method=("none",),
    )  # fmt: skip
    return replace(made, row=row_of(made))


def written(folder: Path, made: Record, **changed: object) -> Record:
    """A folder with all that the record names; `changed`: other contents of its evidence, by the
    name of the file without its ending."""
    evidence: dict[str, object] = {
        files.PROBE: made.probe,
        BUILD: built(),
        BENCH: bench(),
    }
    for name, content in evidence.items():
        put(folder, name, changed.get(Path(name).stem.replace("-", "_"), content))
    contents = {files.CATALOG: made.entry, f"{PLACE}/model.onnx": MODEL.decode(),
                "logs/mlas_cpu.log": ""}  # fmt: skip
    if made.finding:
        contents[files.FINDING] = made.finding
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    made = replace(made, files=listed(folder))
    (folder / files.REPORT).write_text(markdown(made))
    put(folder, files.RECORD, made)
    return made
