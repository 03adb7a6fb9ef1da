"""The rewrites stage: which of the rewrites that a provider needs change a graph at all.

Its output is a list of names, and equal lists are equal inputs: providers share the quantized graph
of a model in which none of them finds anything to rewrite.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from machine.files import read_json
from workers.engine import StageJob
from workers.optimum_engine import device_limits, float_graph, qdq
from workers.sources import model_file, onnx_graph

FILE = "rewrites.json"


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Find them for one component."""
    found: list[str] = []
    for name in job.inputs:  # none, if the provider needs no rewrites
        source = model_file.folder_of(job.inputs[name], job.component, temp)
        if onnx_graph.quantized(model_file.load_graph(source)):
            continue  # the next stage refuses it
        job.progress("preparing the graph")
        ready = float_graph.prepare(source, temp, job.params["precision"])
        found = needed(model_file.load_graph(ready), job.params["rewrites"])
    text = json.dumps(found)
    (job.out / FILE).write_text(text + "\n", encoding="utf-8", newline="\n")
    return {"rewrites": found}


def read(folder: Path) -> list[str]:
    """What the stage has found."""
    return [str(name) for name in read_json(folder / FILE)]


def needed(model: Any, wanted: Collection[str]) -> list[str]:
    """Those of these rewrites that change a prepared graph, or may when it is quantized."""
    found = set(device_limits.rewrite(model, wanted))
    if any(qdq.norms(model)):
        found.add("epsilons")
    if device_limits.biases_of_several(model):
        found.add("biases")
    return sorted(found.intersection(wanted))
