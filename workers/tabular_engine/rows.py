"""The inputs stage: the rows that a model is verified on, the same for all its targets.

They are those of the catalog's dataset, or plausible values: close to the thresholds that the graph
compares its features with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matrix.datasets import LEAST
from workers.engine import StageJob
from workers.samples import datasets, files, parts
from workers.sources import model_file, onnx_graph, runtime
from workers.sources.errors import listed, quantize_error

FEATURES = "features"
"""The input of every tabular graph: one row of float32 values per line."""
BATCH = "batch_size"
ROWS = 32
"""In a sample, unless the catalog sets `shapes`."""


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """The samples of the catalog's dataset, or seeded ones."""
    folder = job.inputs["export"]
    wanted = runtime.signature(folder / model_file.MODEL)
    sizes = parts.sizes(job.params["parts"], 0)
    total = sum(sizes.values())
    count = int(job.params.get("shapes", {}).get(BATCH, ROWS))
    if "dataset" in job.params:
        dataset = datasets.opened(job.request.model["dataset"], total * count)
        made = _given(dataset, wanted, total, count)
        kind, origin, notice = "dataset", dataset.name, dataset.notice
    else:
        graph = model_file.load_graph(folder)
        made = [sample(graph, count, seed=seed) for seed in range(total)]
        kind, origin, notice = "synthetic", "rows near the thresholds of the model", ""
    files.check_even(made)
    divided = {"": parts.cut(made, parts.divided(len(made), sizes))}
    files.save(divided[""], job.out)
    facts = files.facts(divided, kind, origin, {})
    return facts | ({"notice": notice} if notice else {})


def _given(
    dataset: datasets.Dataset, wanted: runtime.Signature, total: int, count: int
) -> list[dict[str, Any]]:
    """The samples of a dataset: arrays of rows, or a table with a column for each feature."""
    import numpy as np

    if dataset.form != datasets.TENSORS:
        text = f"the dataset {dataset.name} holds {dataset.form}, the model takes numbers"
        raise quantize_error(text, f"give arrays '{FEATURES}', or a column for each feature")
    if FEATURES in dataset.rows[0]:
        return [datasets.fitted(one, wanted) for one in dataset.rows[:total]]
    columns = [name for name in dataset.rows[0] if name not in datasets.LABELS]
    width = wanted[FEATURES].shape[1]
    if len(columns) != width:
        text = f"the dataset {dataset.name} has {len(columns)} columns, the model {width} features"
        raise quantize_error(text, f"its columns: {listed(columns)}")
    table = np.array([[one[name] for name in columns] for one in dataset.rows], np.float32)
    size = min(count, len(table) // LEAST)
    groups = range(min(len(table) // size, total))
    return [{FEATURES: table[size * one : size * (one + 1)]} for one in groups]


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
