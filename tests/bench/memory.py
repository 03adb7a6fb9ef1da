"""What a stage takes of memory for a large model: `python -m tests.bench.memory [--gigabytes 2.3]`.

A seeded language model is built stage by stage, each in a process of its own, and the same with
tiny layers, which shows what the libraries take. Printed is the peak less that, in sizes of the
model: everything resident (mapped files too, which the system takes back when it needs memory), and
what the process alone holds. Needs about seven times the size on disk and twice in memory; Linux.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.command import table
from tests.engines.optimum import plan_catalog
from workers import composition
from workers.build.request import request_for
from workers.engine import StageJob
from workers.optimum_engine import OptimumEngine

TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
LARGE = {"hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 32000}
LAYER = 4 * (4 * 2048 * 2048 + 3 * 2048 * 8192)
ENDS = 4 * 2 * 32000 * 2048
"""Bytes of a layer, and of the tables at both ends."""
CELLS = {
    "w8": "mlas_cpu:w8", "w4": "mlas_cpu:w4", "w4 plain": "ov_cpu:w4", "w4a16": "mlas_cpu:w4a16",
    "fp16": "mlas_cpu:fp16", "w8a16": "qnn_npu", "fp32": "mlas_cpu",
}  # fmt: skip
TASK = "text-generation"
WITH_PAST = f"{TASK}-with-past"


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a process held, in bytes."""

    resident: int
    own: int
    seconds: float


def main() -> None:
    """Measure every stage for a tiny and for a large model, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.3)
    parser.add_argument("--source", choices=("random", "folder"), default="folder")
    parser.add_argument("--precisions", default=",".join(CELLS))
    parser.add_argument("--task", choices=(TASK, WITH_PAST), default=TASK)
    parser.add_argument("--folder", type=Path, help="work here, and leave what is made")
    parser.add_argument("--stage", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(options.folder, *options.stage)
        return
    wanted = [CELLS[name] for name in options.precisions.split(",")]
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as scratch:
        root = options.folder or Path(scratch)
        bases = dict(measure(root / "tiny", TINY, options.source, wanted, options.task))
        config, size = large(options.gigabytes)
        rows: list[tuple[object, ...]] = [
            ("stage", "s", "peak GB", "base GB", "resident / size", "own / size")
        ]
        print(f"{size / 1e9:.2f} GB of float32, source: {options.source}", flush=True)
        for stage, peak in measure(root / "large", config, options.source, wanted, options.task):
            base = bases[stage]
            rows.append(
                (
                    stage,
                    f"{peak.seconds:.0f}",
                    f"{peak.resident / 1e9:.2f}",
                    f"{base.resident / 1e9:.2f}",
                    f"{(peak.resident - base.resident) / size:.2f}",
                    f"{(peak.own - base.own) / size:.2f}",
                )
            )
            print(*rows[-1], flush=True)
        table(rows)


def large(gigabytes: float) -> tuple[dict[str, Any], int]:
    """A configuration of about that many bytes in float32, and how many they are."""
    layers = max(1, round((gigabytes * 1e9 - ENDS) / LAYER))
    return {**LARGE, "num_hidden_layers": layers}, layers * LAYER + ENDS


def measure(
    root: Path, config: dict[str, Any], source: str, wanted: list[str], task: str = TASK
) -> Iterator[tuple[str, Peak]]:
    """The stages of these cells, each once, one after the other."""
    root.mkdir(parents=True, exist_ok=True)
    config = {"num_attention_heads": 16, "max_position_embeddings": 128, **config}
    random = f'random = {{ architecture = "llama", seed = 1, config = {_toml(config)} }}'
    catalog = root / "catalog.toml"
    head = f'[[model]]\nid = "bench/llama"\ntask = "{task}"\n'
    catalog.write_text(f"{head}{random}\n", "utf-8")
    if source == "folder":
        _child(root, "save", "", "")
        catalog.write_text(f'{head}folder = "checkpoint"\n', "utf-8")
    done: set[str] = set()
    for tail in wanted:
        request, specs = _planned(root, tail)
        for spec in specs:
            label = _label(request, spec)
            if label not in done:
                done.add(label)
                yield label, _child(root, spec.name, tail, label)
        for spec in specs:
            if spec.name in {"quantize", "share"}:
                shutil.rmtree(root / _label(request, spec))
    shutil.rmtree(root)


def _label(request: Any, spec: Any) -> str:
    """One name for equal work, so that it is done once."""
    policy = request.policy
    if spec.name == "export":
        return f"export opset {policy['opset']}"
    if spec.name == "inputs":
        return "inputs"
    if spec.name == "share":
        return f"share {policy['precision']} {policy['quantizer']}"
    own = "static" if policy["static_shapes"] else policy["optimization"]
    if spec.name == "optimize":
        few = " 4-bit" if policy["precision"].startswith("w4") else ""
        return f"optimize {own}{few} opset {policy['opset']}"
    if spec.name == "rewrites":
        return f"rewrites {policy['precision']}"
    form = f" {policy['quantizer']}" if policy["precision"].startswith("w4") else ""
    return f"quantize {policy['precision']}{form}"


def _planned(root: Path, tail: str) -> tuple[Any, list[Any]]:
    precision = ("fp32", "fp16", "w8", "w4", "w4a16", "w8a16")
    plan = plan_catalog(root / "catalog.toml", root, precision=precision)
    cell = next(cell for cell in plan.cells() if cell.id.endswith(f"@{tail}"))
    request = request_for(cell)
    return request, list(OptimumEngine().plan(request).stages)


def run_stage(root: Path, stage: str, tail: str, label: str) -> None:
    """In the child: run one stage of a cell."""
    if stage == "save":
        _save(root)
        return
    request, specs = _planned(root, tail)
    spec = next(spec for spec in specs if spec.name == stage)
    labels = {other.name: _label(request, other) for other in specs}
    inputs = {name: root / labels[name] for name in spec.inputs if name in labels}
    record = composition.read(root / labels["export"]) if spec.per_component else None
    names = [one.name for one in record.components] if record else [""]
    for name in names:
        out = root / label / name
        out.mkdir(parents=True)
        own = {one: path / name if (path / name).is_dir() else path for one, path in inputs.items()}
        OptimumEngine().run(StageJob(stage, spec.params, request, own, out, component=name))


def _save(root: Path) -> None:
    """The seeded model as a checkpoint."""
    from workers.sources import load

    plan = plan_catalog(root / "catalog.toml", root)
    model, _ = load.load(request_for(next(iter(plan.cells()))), None, "text-generation")
    model.save_pretrained(root / "checkpoint", max_shard_size="1GB")


def _child(root: Path, stage: str, tail: str, label: str) -> Peak:
    command = [sys.executable, "-m", "tests.bench.memory", "--folder", str(root), "--stage"]
    began = time.monotonic()
    log = root / "log.txt"
    with log.open("w") as stream:
        child = subprocess.Popen(
            [*command, stage, tail, label], stdout=stream, stderr=subprocess.STDOUT
        )
        resident = own = 0
        while child.poll() is None:
            held = _held(child.pid)
            own = max(own, held.get("RssAnon", 0) + held.get("RssShmem", 0))
            resident = max(resident, held.get("VmHWM", 0))
            time.sleep(0.02)
    if child.returncode:
        raise SystemExit(f"{label or stage} failed:\n{log.read_text()[-2000:]}")
    return Peak(resident, own, time.monotonic() - began)


def _held(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines)
    return {name: int(text.split()[0]) * 1024 for name, text in pairs if text.endswith("kB")}


def _toml(values: dict[str, Any]) -> str:
    return (
        "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + " }"
    )


if __name__ == "__main__":
    main()
