"""Which ranges of activations serve best: every method on every model of a catalog.

    python -m tests.bench.calibration [CATALOG] [PRECISION ...]      default: demo w8a16 w8a8

The catalog `truth` has the trained models of `tests.bench.truth`, with their data.

Each model is exported, gets its samples and is optimized as for the target qnn_npu; its graph is
then quantized with the ranges of each method from the part `fit` and compared with the float graph
on the part `judge`, without the margin that ranges have in w8a16. The table has the decibels of
the worst output of the worst component; ORT's entropy calibration is measured beside our own
methods (`-`: it failed).
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from matrix.model import Cell
from tests.bench.command import table
from tests.bench.truth.__main__ import SUBJECTS
from tests.bench.truth.packages import Missing
from tests.bench.truth.sweeping import BARE, write_catalog
from tests.engines.optimum import plan_catalog
from workers.build.request import request_for
from workers.engine import SOURCE, StageError, StageJob
from workers.optimum_engine import OptimumEngine, qdq, rewrites
from workers.optimum_engine.float_graph import FloatGraph
from workers.optimum_engine.histograms import METHODS
from workers.optimum_engine.losses import Judge
from workers.optimum_engine.qdq import Settings
from workers.samples import files
from workers.samples.parts import FIT, JUDGE
from workers.sources import model_file, onnx_graph, runtime

TARGET = "qnn_npu"
TRUTH = "truth"
ENTROPY = "entropy"


def stages(cell: Cell, root: Path) -> Iterator[tuple[str, Path, Path, Mapping[str, Any]]]:
    """Every component with the folders of its float graph and its samples, and the parameters of
    its quantization."""
    engine, request, folders = OptimumEngine(), request_for(cell), {SOURCE: root}
    components: Sequence[str] = [""]
    for spec in engine.plan(request).stages:
        if spec.name == "quantize":
            for name in components:
                needed = rewrites.read(folders["rewrites"] / name)
                params = {**spec.params, "rewrites": needed}
                yield name, folders["optimize"] / name, folders["inputs"] / name, params
            return
        folders[spec.name] = root / spec.name
        for name in components if spec.per_component else [""]:
            inputs = {one: _own(folders[one], name) for one in spec.inputs}
            if SOURCE in inputs and request.model["source"]["kind"] == "folder":
                inputs[SOURCE] = Path(request.model["source"]["ref"])
            out = folders[spec.name] / name
            out.mkdir(parents=True)
            report = engine.run(StageJob(spec.name, spec.params, request, inputs, out, name))
            if spec.name == "export":
                components = report.facts.get("components") or [""]


def _own(folder: Path, component: str) -> Path:
    return folder / component if (folder / component).is_dir() else folder


def figures(
    source: Path, inputs: Path, params: Mapping[str, Any], precision: str, temp: Path
) -> dict[str, float]:
    """The decibels of each method for one graph."""
    fit, judged = files.load(inputs, "", FIT), files.load(inputs, "", JUDGE)
    asked = Settings.asked(precision, (), params, params["rewrites"])
    graph = FloatGraph(source, fit, temp, asked, lambda _text: None)
    judge = Judge(source, judged, params["parity"])
    found = {}
    for method in (*METHODS, ENTROPY):
        settings = replace(asked, calibration=method)
        try:
            if method == ENTROPY:
                graph._ranges[method, False] = _entropy(graph, fit)
            with patch.dict(qdq.MARGIN, dict.fromkeys(qdq.MARGIN, 0.0)):
                model = graph.quantized(settings)
            onnx_graph.sort(model.graph)
            model_file.save(model, temp / method, graph.folder)
            found[method] = judge.distance(temp / method).snr
        except Exception as error:  # noqa: BLE001 - the table shows the others
            print(f"{source.parent.name} {method}: {error}", file=sys.stderr)
    return found


def _entropy(graph: FloatGraph, fit: Sequence[Any]) -> dict[str, tuple[float, float]]:
    """The ranges that ONNX Runtime's entropy calibration finds; masks as ours."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    usual = graph.ranges(Settings("w8a8"))
    collector = HistogramCollector("entropy", False, 128, 128, None, None)
    ready = model_file.load_graph(graph.folder)
    present = {value.name for value in ready.graph.output}
    ready.graph.output.extend(
        value for value in ready.graph.value_info if value.name in usual.keys() - present
    )
    names = [value.name for value in ready.graph.output if value.name in usual]
    session = runtime.session(model_file.save_graph(ready, graph.folder, graph.folder / "entropy"))
    taken = {item.name for item in session.get_inputs()}
    with redirect_stdout(StringIO()):  # it prints a line for every sample
        for sample in fit:
            feeds = {name: value for name, value in sample.items() if name in taken}
            values = session.run(names, feeds)
            collector.collect({name: [one] for name, one in zip(names, values, strict=True)})
        found = collector.compute_collection_result()
    return dict(usual) | {
        name: (float(found[name][0]), float(found[name][1]))
        for name in names
        if max(map(abs, usual[name])) < 50  # masks keep their depth
    }


def cells(catalog: str, temp: Path) -> Iterator[Cell]:
    """One of every model of a catalog, those of the truth bench with their data."""
    if catalog != TRUTH:
        for model in plan_catalog(catalog, Path.cwd()).models:
            yield from [one for one in model.cells if one.target.label == TARGET][:1]
        return
    for kind in SUBJECTS:
        folder = temp / kind.name
        folder.mkdir()
        try:
            write_catalog(kind(), folder)
        except Missing as missing:
            print(f"{kind.name}: {missing}", file=sys.stderr)
            continue
        for cell in cells(str(folder / "catalog.toml"), temp):
            if BARE not in cell.model.id:
                yield cell


def measured(cell: Cell, precisions: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """For each precision, the decibels of each method in the worst component."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        parts = list(stages(cell, root / "stages"))
        for precision in precisions:
            worst: dict[str, float] = {}
            for name, source, inputs, params in parts:
                temp = root / precision / (name or "graph")
                temp.mkdir(parents=True)
                for method, snr in figures(source, inputs, params, precision, temp).items():
                    worst[method] = min(worst.get(method, snr), snr)
            yield precision, worst


def main(catalog: str = "demo", *precisions: str) -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    rows: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as data:
        for cell in cells(catalog, Path(data)):
            try:
                for precision, worst in measured(cell, precisions or ("w8a16", "w8a8")):
                    shown = [f"{worst[name]:g}" if name in worst else "-"
                             for name in (*METHODS, ENTROPY)]  # fmt: skip
                    rows.append((cell.model.id, cell.model.task, precision, *shown))
                    print(*rows[-1], flush=True)
            except StageError as error:
                print(f"{cell.model.id}: {error}", file=sys.stderr)
    table([("model", "task", "precision", *METHODS, ENTROPY), *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
