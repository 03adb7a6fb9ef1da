"""Exports a module to an ONNX file, by TorchScript's or by torch's dynamo exporter.

Transposes of weights are then replaced by weights transposed once, in files: never all in memory.
Torch's exporter does this too when it folds constants, but keeps every result beside the original
until the export ends, which takes twice the size of the model.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from machine.installation import install
from workers.engine import StageError, version
from workers.optimum_engine import weight_only
from workers.optimum_engine.architectures.patched import patched
from workers.optimum_engine.architectures.rows import DYNAMO
from workers.sources import load, model_file, onnx_graph, weight_file
from workers.sources.errors import export_error, one_line, unsupported

_INFERENCE = "_jit_pass_onnx_graph_shape_type_inference"
LARGEST_SEEN = 1024**2
"""Bytes of the largest weights whose values torch's inference of shapes gets."""


def export_graph(module: Any, config: Any, file: Path, opset: int, exporter: str) -> None:
    """Export one graph, fp32, with the open axes that its configuration names."""
    if exporter == DYNAMO and not version("onnxscript"):
        raise unsupported("this interpreter lacks onnxscript", install("dynamo"))
    load.seed_everything(0)  # the example inputs of the trace are random
    with warnings.catch_warnings():
        # Tracers warn about every Python branch of every model.
        warnings.simplefilter("ignore")
        try:
            (_dynamo if exporter == DYNAMO else _torchscript)(module, config, file, opset)
        except StageError:
            raise
        except Exception as error:  # a tracer raises whatever the model raises
            raise export_error(
                f"the exporter failed: {type(error).__name__}: {one_line(error)}",
                "the log of the cell has the details",
            ) from error


def outputs(parts: Iterable[tuple[Any, Any]]) -> list[Any]:
    """What the modules compute from the example inputs of their traces."""
    import torch
    from torch.utils import _pytree as pytree

    found: list[Any] = []
    for module, config in parts:
        load.seed_everything(0)
        sample = config.rename_ambiguous_inputs(config.generate_dummy_inputs(framework="pt"))
        with torch.inference_mode(), config.patch_model_for_export(module):
            answer = module.eval()(**sample)
        found += [one for one in pytree.tree_leaves(answer) if isinstance(one, torch.Tensor)]
    return found


def _torchscript(module: Any, config: Any, file: Path, opset: int) -> None:
    import torch
    from optimum.exporters.onnx import convert

    # Torch's exporter writes a file for each large weight. Optimum would load them all to make one
    # file of them; `model_file.save` copies one after the other.
    whole = patched("check_model_uses_external_data", lambda *_: False, convert)
    with whole, patched(_INFERENCE, _without_values(getattr(torch._C, _INFERENCE)), torch._C):
        convert.export(
            model=module,
            config=config,
            output=file,
            opset=opset,
            dtype="fp32",
            do_constant_folding=_size(module) <= model_file.EXTERNAL_THRESHOLD,
        )


def _without_values(infer: Any) -> Any:
    """Torch's inference of shapes, which makes five copies of each weight that it is given.

    Shapes follow from the values of small integers only: of other weights the graph has the shape.
    """

    def infer_shapes(graph: Any, weights: Mapping[str, Any], opset: int) -> None:
        infer(graph, {name: one for name, one in weights.items() if _seen(one)}, opset)

    return infer_shapes


def _seen(weight: Any) -> bool:
    return not weight.is_floating_point() or weight.nbytes <= LARGEST_SEEN


def _size(module: Any) -> int:
    """Bytes of a module's weights; folding constants would hold them twice."""
    return sum(one.numel() * one.element_size() for one in module.parameters())


def _dynamo(module: Any, config: Any, file: Path, opset: int) -> None:
    import torch

    module.eval()
    with torch.no_grad(), config.patch_model_for_export(module):
        sample = config.rename_ambiguous_inputs(config.generate_dummy_inputs(framework="pt"))
        named = config.ordered_inputs(module)
        torch.onnx.export(
            module,
            kwargs={name: sample[name] for name in named},
            f=str(file),
            input_names=list(named),
            output_names=list(config.outputs),
            dynamic_shapes={name: _open(axes) for name, axes in named.items()},
            opset_version=opset,
            dynamo=True,
            external_data=False,
            optimize=True,
            verbose=False,
        )


def _open(axes: Mapping[int, str]) -> dict[int, Any]:
    import torch

    return dict.fromkeys(axes, torch.export.Dim.DYNAMIC)


def fold_transposes(model: Any, folder: Path) -> int:
    """Replace each transposition of a matrix among the weights; returns how many there were."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    readers = Counter(
        name for one in onnx_graph.graphs(model) for node in one.node for name in node.input
    )
    outputs = {value.name for value in graph.output}
    found = [
        node
        for node in graph.node
        if node.op_type == "Transpose"
        and node.input[0] in weights
        # It swaps the two axes, which is also the default.
        and all(list(item.ints) == [1, 0] for item in node.attribute if item.name == "perm")
        and node.output[0] not in outputs
    ]
    for number, node in enumerate(found):
        tensor = weights[node.input[0]]
        values = weight_file.values(tensor, folder).T
        kind, dims = tensor.data_type, reversed(tensor.dims)
        made = graph.initializer.add(name=node.output[0], data_type=kind, dims=dims)
        pieces = (values[part] for part in weight_only.parts(values))
        weight_file.write_apart(made, pieces, folder / f"transposed-{number}")
        readers[tensor.name] -= 1
        if not readers[tensor.name]:
            graph.initializer.remove(tensor)
        graph.node.remove(node)
    return len(found)
