"""Moves channels of activations that stand out into weights (SmoothQuant), in an equal graph.

A channel that is a hundred times as large as the others leaves these a few of 255 steps. Where the
gain and bias of a norm make the channels, and matrices multiply them, each channel is divided by

    s = sqrt(largest activation of the channel / largest weight that multiplies it)

in the norm, and the rows of the matrices are multiplied by it. It is a power of two, so that
nothing is rounded. What else reads the norm, as a residual does, keeps it: the matrices get a copy.

ONNX Runtime's quantizer leaves this to neural-compressor, which no longer does it for ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.optimum_engine import calibrate
from workers.sources import model_file, onnx_graph, runtime, weight_file

_SUFFIX = "/smooth"
_NORMS = ("LayerNormalization", "RMSNormalization")
_MATRICES = ("MatMul", "Gemm")


@dataclass(frozen=True, slots=True)
class Place:
    """Where channels can move."""

    makers: Sequence[Any]
    """The nodes with a vector for the channels, from the first to the one that makes the tensor."""
    readers: Sequence[Any]
    """The nodes that read it and pass it on to matrices."""
    matrices: Sequence[Any]
    """The nodes that multiply it."""
    alone: bool
    """Whether nothing else reads it."""

    @property
    def tensor(self) -> str:
        """The name of what is scaled."""
        return str(self.makers[-1].output[0])


def places(model: Any) -> list[Place]:
    """All places of a graph with the type of every tensor."""
    found = _Finder(model)
    return [place for node in model.graph.node if (place := found.place(node))]


class _Finder:
    """Finds places."""

    def __init__(self, model: Any) -> None:
        self._vectors = {
            tensor.name: tensor.dims[0] for tensor in model.graph.initializer
            if len(tensor.dims) == 1 and tensor.dims[0] > 1
        }  # fmt: skip
        self._weights = {
            tensor.name: tensor.dims for tensor in model.graph.initializer if len(tensor.dims) == 2
        }
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)
        self._kept = {value.name for value in model.graph.output}
        inner = (
            node
            for graph in onnx_graph.graphs(model)
            if graph is not model.graph
            for node in graph.node
        )
        self._kept |= {name for node in inner for name in node.input}
        self._widths = {
            value.name: shape[-1]
            for value in (*model.graph.value_info, *model.graph.output)
            if (shape := onnx_graph.dims(value))
        }

    def place(self, node: Any) -> Place | None:
        """The place of the tensor that a node makes."""
        makers = self._scaling(node)
        if not makers:
            return None
        [name] = node.output
        readers, matrices, alone = self._multiplied(name)
        return Place(makers, readers, matrices, alone) if matrices else None

    def _scaling(self, node: Any) -> list[Any]:
        """The nodes whose vectors make the channels of what a node makes."""
        if node.op_type in _NORMS:
            axis = onnx_graph.attributes(node).get("axis", -1)
            ours = axis == -1 and len(node.output) == 1
            return [node] if ours and self._vectors.keys() >= set(node.input[1:]) else []
        if node.op_type == "Mul" and self._own(node):
            readers = self._readers.get(node.output[0], [])
            biased = len(readers) == 1 and readers[0].op_type == "Add" and self._own(readers[0])
            return [] if biased else [node]
        if node.op_type == "Add" and (own := self._own(node)):
            [before] = [name for name in node.input if name != own]
            gain = self._makers.get(before)
            only = len(self._readers[before]) == 1 and before not in self._kept
            if only and gain is not None and gain.op_type == "Mul" and self._own(gain):
                return [gain, node]
        return []

    def _own(self, node: Any) -> str:
        """The vector of a node that has a number for each channel."""
        found = [name for name in node.input if name in self._vectors]
        fits = len(found) == 1 and self._vectors[found[0]] == self._widths.get(node.output[0])
        return str(found[0]) if fits else ""

    def _multiplied(self, name: str) -> tuple[list[Any], list[Any], bool]:
        """The nodes that pass a tensor to matrices, those that multiply it, and whether nothing
        else reads it."""
        passing: list[Any] = []
        matrices: list[Any] = []
        readers = self._readers.get(name, [])
        for node in readers:
            if self._multiplies(node, name):
                passing.append(node)
                matrices.append(node)
            elif node.op_type == "Reshape" and self._same(node.output[0], name):
                _nodes, more, alone = self._multiplied(node.output[0])
                if more and alone:
                    passing.append(node)
                    matrices += more
        return passing, matrices, len(passing) == len(readers) and name not in self._kept

    def _same(self, one: str, other: str) -> bool:
        width = self._widths.get(one)
        return isinstance(width, int) and width == self._widths.get(other)

    def _multiplies(self, node: Any, name: str) -> bool:
        if node.op_type not in _MATRICES or list(node.input).count(name) != 1:
            return False
        how = onnx_graph.attributes(node)
        dims = self._weights.get(node.input[1])
        if node.input[0] != name or dims is None or how.get("transA"):
            return False
        return bool(dims[1 if how.get("transB") else 0] == self._widths.get(name))


def smooth(source: Path, sets: Sequence[Mapping[str, Any]], temp: Path) -> Path:
    """The folder of the graph with its channels moved, and with the type of every tensor."""
    import numpy as np

    model = model_file.load_graph(source)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    found = places(model)
    peaks = _peaks(source, [place.tensor for place in found], sets, temp / "peaks")
    for place in found:
        rows = [_rows(node, weight_file.values(weights[node.input[1]], source))
                for node in place.matrices]  # fmt: skip
        most = np.max([np.abs(one).max(axis=1) for one in rows], axis=0)
        peak = peaks[place.tensor]
        used = (peak > 0) & (most > 0)
        ratio = np.divide(peak, most, where=used, out=np.ones_like(peak))
        scale = np.exp2(np.rint(np.log2(ratio) / 2)).astype(np.float32)
        _scale_vectors(model, place, scale, weights, source)
        for node, one in zip(place.matrices, rows, strict=True):
            node.input[1] = _added(model, node.input[1], _rows(node, one * scale[:, None]), node)
    _drop_unused(model)
    onnx_graph.sort(model.graph)
    model_file.save(model, temp / "ready", source)
    runtime.add_types(temp / "ready", temp / "types")
    return temp / "ready"


def _peaks(
    source: Path, names: Sequence[str], sets: Sequence[Mapping[str, Any]], temp: Path
) -> dict[str, Any]:
    """The largest absolute value of every channel of these tensors over all samples."""
    import numpy as np

    model = model_file.load_graph(source)
    tensors = {name: one for name, one in calibrate.float_tensors(model).items() if name in names}
    present = {value.name for value in model.graph.output}
    model.graph.output.extend(one for name, one in tensors.items() if name not in present)
    temp.parent.mkdir(parents=True, exist_ok=True)
    session = runtime.session(model_file.save_graph(model, source, temp))
    inputs = {item.name for item in session.get_inputs()}
    found: dict[str, Any] = {}
    for sample in sets:
        feeds = {name: value for name, value in sample.items() if name in inputs}
        for part in calibrate.chunks(tensors, ()):
            for name, value in zip(part, session.run(part, feeds), strict=True):
                peak = np.abs(value).reshape(-1, value.shape[-1]).max(axis=0, initial=0.0)
                found[name] = np.maximum(peak, found.get(name, 0.0))
    return found


def _rows(node: Any, weight: Any) -> Any:
    """A weight with a row for each channel that it multiplies, and back."""
    return weight.T if onnx_graph.attributes(node).get("transB") else weight


def _scale_vectors(
    model: Any, place: Place, scale: Any, weights: Mapping[str, Any], source: Path
) -> None:
    """Divide the gain and bias of a place, or of a copy if others read it."""
    import onnx

    makers = place.makers
    if not place.alone:
        makers = []
        names: dict[str, str] = {}
        for node in place.makers:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{node.name}{_SUFFIX}"
            copy.input[:] = [names.get(name, name) for name in node.input]
            names[node.output[0]] = copy.output[0] = f"{node.output[0]}{_SUFFIX}"
            makers.append(copy)
        for reader in place.readers:
            reader.input[0] = names[place.tensor]
    for node in makers:
        for index, name in enumerate(node.input):
            if name in weights:
                values = weight_file.values(weights[name], source) / scale
                node.input[index] = _added(model, name, values, node)
    if not place.alone:
        model.graph.node.extend(makers)


def _drop_unused(model: Any) -> None:
    """Drop the weights that no node reads any more."""
    used = {
        name for graph in onnx_graph.graphs(model) for node in graph.node for name in node.input
    }
    used |= {value.name for value in model.graph.output}
    for place in reversed(range(len(model.graph.initializer))):
        if model.graph.initializer[place].name not in used:
            del model.graph.initializer[place]


def _added(model: Any, name: str, values: Any, node: Any) -> str:
    """The name of a new weight that a node has in place of another, which others may have too."""
    import numpy as np
    from onnx import numpy_helper

    new = f"{name}{_SUFFIX}/{node.name}"
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), new))
    return new
