"""The inputs stage: the rows that a model is verified on, the same for all its targets.

They are those of the catalog's dataset, or plausible values: close to the thresholds that the graph
compares its features with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.samples import datasets, files, parts
from workers.sources import model_file, onnx_graph, runtime

FEATURES = "features"
"""The input of every tabular graph: one row of float32 values per line."""
BATCH = "batch_size"
ROWS = 32
"""In a sample, unless the catalog sets `shapes`."""


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """The samples of the catalog's dataset, or seeded ones."""
    folder = job.inputs["export"]
    wanted = runtime.signature(folder / model_file.MODEL)
    dataset = job.request.model.get("dataset") if "dataset" in job.params else None
    sizes = parts.sizes(job.params["parts"], 0)
    total = sum(sizes.values())
    if dataset:
        limit = int(dataset.get("samples", total))
        given = datasets.read_dataset(Path(dataset["path"]), "", limit)
        made = [datasets.fitted(one, wanted) for one in given]
    else:
        graph = model_file.load_graph(folder)
        count = int(job.params.get("shapes", {}).get(BATCH, ROWS))
        first = int(job.params["seed"])
        made = [sample(graph, count, seed=seed) for seed in range(first, first + total)]
    files.check_even(made)
    divided = {"": parts.cut(made, parts.divided(len(made), sizes))}
    files.save(divided[""], job.out)
    if not dataset:
        return files.facts(divided, "synthetic", "rows near the thresholds of the model")
    return files.facts(divided, "dataset", Path(dataset["path"]).name)


def sample(graph: Any, count: int, *, seed: int) -> dict[str, Any]:
    """Some rows for a graph.

    A tree decides by thresholds and a scaler by the mean of a feature: values far from them would
    all fall into the same leaf.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    lows, highs = _ranges(graph)
    width = np.maximum(highs - lows, 1e-3)
    values = random.uniform(lows - width / 4, highs + width / 4, (count, len(lows)))
    return {FEATURES: values.astype(np.float32)}


def _ranges(graph: Any) -> tuple[Any, Any]:
    """The lowest and highest value that is of interest, of every feature."""
    import numpy as np

    size = graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    lows, highs = np.full(size, np.inf), np.full(size, -np.inf)
    for node in graph.graph.node:
        if FEATURES in node.input:
            for column, low, high in _hints(node, size):
                lows[column], highs[column] = min(lows[column], low), max(highs[column], high)
    unknown = lows > highs
    lows[unknown], highs[unknown] = -2.0, 2.0
    return lows, highs


def _hints(node: Any, size: int) -> Iterator[tuple[int, float, float]]:
    """What a node says of the values of columns."""
    given = onnx_graph.attributes(node)
    if node.op_type == "Scaler":
        for column in range(size):
            center = float(given["offset"][column % len(given["offset"])])
            spread = 2 / max(abs(float(given["scale"][column % len(given["scale"])])), 1e-6)
            yield column, center - spread, center + spread
    elif node.op_type.startswith("TreeEnsemble"):
        nodes = zip(
            given["nodes_modes"], given["nodes_featureids"], given["nodes_values"], strict=True
        )
        for mode, column, value in nodes:
            if mode != b"LEAF":
                yield int(column), float(value), float(value)
