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


def run(name, new, seen, cache):
    """The outputs of a graph for new tokens, with the cache of those that were seen before."""
    shapes = {one.name: one.shape for one in graphs[name].get_inputs()}
    held = {port: hold(value, shapes[port][2]) for port, value in cache.items()}
    slots = next(iter(held.values())).shape[2] if held else 0
    width = shapes[loop["tokens"]][1]
    free = width - len(new) if isinstance(width, int) else 0
    counted = min(seen, slots) + len(new)
    lines = {
        loop["tokens"]: [0] * free + new,
        loop["mask"]: [0] * (slots + free + len(new) - counted) + [1] * counted,
        loop["position"]: [0] * free + list(range(seen, seen + len(new))),
    }
    feeds = {port: np.array([line], np.int64) for port, line in lines.items() if port in shapes}
    found = graphs[name].run(None, feeds | held)
    return {
        f"{name}/{port.name}": value
        for port, value in zip(graphs[name].get_outputs(), found, strict=True)
    }


def hold(value, slots):
    """A cache of the size that a graph takes: the newest last, zeros before it."""
    if not isinstance(slots, int):
        return value
    value = value[:, :, -slots:]
    return np.pad(value, [(0, 0), (0, 0), (slots - value.shape[2], 0), (0, 0)])


tokens = np.load(folder / "generation.npz")["prompt"].tolist()
name, links, outputs = loop["begin"], record["links"], run(loop["begin"], tokens, 0, {})
for _ in range(count):
    tokens.append(int(outputs[f"{name}/{loop['logits']}"][0, -1].argmax()))
    cache = {link["input"].partition("/")[2]: outputs[link["output"]] for link in links}
    name, links = loop["step"], loop["feeds"]
    outputs = run(name, tokens[-1:], len(tokens) - 1, cache)
print(*tokens[-count:])
