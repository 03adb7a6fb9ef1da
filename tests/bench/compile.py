"""What compiling ahead of time buys and costs: `python -m tests.bench.compile [FOLDER ...]`.

Needs the extra qnn. Builds three models of the demo catalog, and each FOLDER with a Transformers
model (of the task feature-extraction), for the HTP of a Snapdragon X Elite, and prints, all from
one run: the time to open each model portable and compiled; the size of one binary for two graphs
with the same weights against two binaries; the stages that a second sweep runs; and the processor
time of a compilation against the bare calls of ONNX Runtime, each with the start of a process: in
turns, as medians, so that other work on the machine decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from datetime import date
from pathlib import Path
from statistics import median

import psutil

from flows.packages.builder import open_builder
from flows.plan.planning import plan_of
from flows.settings.engines import runtimes_of
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from matrix.model import Plan, Profile
from tests.bench.command import table
from tests.engines.shared_weights import quantized
from workers.compile.devices import runtime_for
from workers.compile.group import Graph, Job, compile_group
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime
from workers.verify.verifier import Verifier

DEMO = ("demo/bert-tiny", "demo/vit-tiny", "demo/resnet-tiny")
ROUNDS = 5
BARE = """
import sys, onnxruntime, onnxruntime_qnn
source, output, arch, soc = sys.argv[1:]
name = "QNNExecutionProvider"
onnxruntime.register_execution_provider_library(name, onnxruntime_qnn.get_library_path())
devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name == name]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices[:1], {
    "backend_path": onnxruntime_qnn.get_qnn_htp_path(), "htp_arch": arch, "soc_model": soc})
onnxruntime.ModelCompiler(options, source).compile_to_file(output)
"""


def main() -> None:
    """Measure everything once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="*")
    parser.add_argument("--no-models", action="store_true", help="leave opening times out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = {"home": str(folder / "home"), "compile": ("htp73",), "emulated": True}
        demo = resolve({**flags, "model": DEMO, "target": ("qnn_npu",)}, {}, folder, None)
        if not options.no_models:
            opening(demo, plan_of(demo, "demo", date(2026, 6, 9)))
        for number, path in enumerate(options.model):
            catalog = folder / f"catalog-{number}.toml"
            catalog.write_text(
                f'[[model]]\nid = "bench/{path.name.lower()}"\ntask = "feature-extraction"\n'
                f"folder = {json.dumps(str(path.absolute()))}\n",
                "utf-8",
            )
            given = resolve({**flags, "target": ("qnn_npu",)}, {}, folder, None)
            opening(given, plan_of(given, str(catalog), date(2026, 6, 9)))
        with closing(runtimes_of(demo)) as runtimes:
            runtime = _runtime(demo, runtimes)
            sharing(runtimes, runtime, folder)
            overhead(runtimes, runtime, folder)


def opening(settings: Settings, plan: Plan) -> None:
    """Open portable and compiled, one after the other in one process; then build again."""
    rows: list[tuple[object, ...]] = [("compiled cell", "portable s", "compiled s", "times")]
    stages = 0
    with open_builder(plan, settings) as builder:
        verifier = Verifier(runtimes_of(settings), settings.verify)
        compiled = [cell for cell in plan.cells() if cell.profile]
        for cell in compiled:
            proven = verifier.verify(builder.build(cell))
            for told in proven.build_record["opening"].values():
                before, after = told["portable"]["seconds"], told["compiled"]["seconds"]
                ratio = before / max(after, 0.001)
                rows.append((cell.id, f"{before:.3f}", f"{after:.3f}", f"{ratio:.1f}"))
            proven.release()
        for cell in compiled:
            again = builder.build(cell)
            stages += sum(not run.reused for run in again.stages)
            again.release()
        verifier.close()
    table(rows)
    print(f"building all of it again ran {stages} stages\n")


def sharing(runtimes: Runtimes, runtime: Runtime, folder: Path) -> None:
    """Two graphs with the same weights, apart and in one context."""
    models = [quantized(rows, folder / f"rows-{rows}.onnx") for rows in (4, 1)]
    apart = sum(sum(_compiled(runtimes, runtime, [model], folder)) for model in models)
    together = _compiled(runtimes, runtime, models, folder)
    print(
        f"two graphs in {len(together)} binary: {sum(together) / apart:.2f} of the size of two "
        f"({sum(together):,} and {apart:,} bytes)\n"
    )


def overhead(runtimes: Runtimes, runtime: Runtime, folder: Path) -> None:
    """Processor seconds of both sides with the start of their compiler's process; the first round
    warms the caches of the disk."""
    model = quantized(256, folder / "large.onnx", depth=1000)  # takes as long as a MiniLM
    arch, soc = runtime.options["htp_arch"], runtime.options["soc_model"]
    ours, bare = [], []
    for number in range(ROUNDS + 1):
        before = _processor_seconds()
        _compiled(runtimes, runtime, [model], folder)
        after = _processor_seconds()
        ours.append(sum(used - before.get(pid, 0.0) for pid, used in after.items()))
        output = folder / f"bare-{number}.onnx"
        command = [sys.executable, "-c", BARE, str(model), str(output), arch, soc]
        began = _ended_children()
        subprocess.run(command, check=True, capture_output=True)
        bare.append(_ended_children() - began)
    own, least = median(ours[1:]), median(bare[1:])
    print(
        f"a compilation takes {own / least:.2f} times the processor time of the bare calls "
        f"({own:.2f} s and {least:.2f} s)"
    )


def _ended_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _processor_seconds() -> dict[int, float]:
    """Of this process and its living children, by id: each compiler is a new one."""
    found = {}
    me = psutil.Process()
    for one in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            times = one.cpu_times()
            found[one.pid] = times.user + times.system
    return found


def _compiled(runtimes: Runtimes, runtime: Runtime, models: list[Path], folder: Path) -> list[int]:
    """Bytes of the binaries; schematics, which some compilers add, are none."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        graphs = [Graph(model.stem, model.name, model) for model in models]
        job = Job(runtimes, runtime, Profile("p", "t", "r"), Path(work))
        result = compile_group(graphs, "0", job)
        binaries = [one for one in result.folder.glob("*.bin") if "_schematic" not in one.name]
        return [path.stat().st_size for path in binaries]


def _runtime(settings: Settings, runtimes: Runtimes) -> Runtime:
    work = Workspace(settings)
    profile = work.profiles().get("htp73")
    found = runtime_for(runtimes, profile, work.targets().get(profile.target), emulated=True)
    if isinstance(found, Missing):
        raise SystemExit(f"{found.why} ({found.hint})")
    return found


if __name__ == "__main__":
    main()
