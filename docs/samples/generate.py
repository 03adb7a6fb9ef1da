"""Generates text with the package of a decoder: FOLDER COUNT.

Prints the tokens that follow the prompt in the package's generation.npz.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

folder, count = Path(sys.argv[1]), int(sys.argv[2])
record = json.loads((folder / "composition.json").read_text("utf-8"))
loop = record["loop"]
graphs = {
    one["name"]: onnxruntime.InferenceSession(folder / one["model"]) for one in record["components"]
}
prompt = np.load(folder / "generation.npz")
tokens = prompt["prompt"].tolist()
values = {port: prompt[port] for port in prompt.files if "/" in port}
links = record["links"] + loop["feeds"]
caches = {link["input"] for link in loop["feeds"]}


def run(name, new, seen):
    """The outputs of a graph for new tokens after those that were seen, passed on by the links."""
    shapes = {f"{name}/{one.name}": one.shape for one in graphs[name].get_inputs()}
    feeds = {port: fit(port, values[port], shapes[port]) for port in values.keys() & shapes.keys()}
    if new:
        slots = max((feeds[port].shape[2] for port in caches & feeds.keys()), default=0)
        width = shapes[f"{name}/{loop['tokens']}"][1]
        free = width - len(new) if isinstance(width, int) else 0
        counted = min(seen, slots) + len(new)
        lines = {
            loop["tokens"]: [0] * free + new,
            loop["mask"]: [0] * (slots + free + len(new) - counted) + [1] * counted,
            loop["position"]: [0] * free + list(range(seen, seen + len(new))),
        }
        feeds |= {f"{name}/{port}": np.array([line], np.int64) for port, line in lines.items()}
    given = {port.partition("/")[2]: value for port, value in feeds.items() if port in shapes}
    named = [f"{name}/{one.name}" for one in graphs[name].get_outputs()]
    outputs = dict(zip(named, graphs[name].run(None, given), strict=True))
    for link in links:
        if link["output"] in outputs:
            values[link["input"]] = outputs[link["output"]]
    return outputs


def fit(port, value, shape):
    """A value of the size that a graph takes: zeros follow it, or come before it in a cache."""
    sizes = [size if isinstance(size, int) else value.shape[at] for at, size in enumerate(shape)]
    if port in caches:
        value = value[:, :, -sizes[2] :]
    gaps = [size - held for size, held in zip(sizes, value.shape, strict=True)]
    return np.pad(value, [(gap, 0) if port in caches else (0, gap) for gap in gaps])


for one in graphs.keys() - {loop["begin"], loop["step"]}:
    run(one, [], 0)
name, outputs = loop["begin"], run(loop["begin"], tokens, 0)
for _ in range(count):
    tokens.append(int(outputs[f"{name}/{loop['logits']}"][0, -1].argmax()))
    name = loop["step"]
    outputs = run(name, tokens[-1:], len(tokens) - 1)
print(*tokens[-count:])
