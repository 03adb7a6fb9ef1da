"""Stands for ONNX Runtime with OpenVINO built in, in an environment of its own: a compiler.

Copied there as the package `onnxruntime`. It is the real one, whose compiler writes an EPContext
model with the source as its binary, and whose sessions open such models. It misbehaves as the file
`told` in that environment says: one word for each model that is compiled, the first line first.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

OPENVINO = "OpenVINOExecutionProvider"
TOLD = Path(sys.prefix) / "told"
_HERE = Path(__file__).resolve().parent.parent


def _real() -> Any:
    """ONNX Runtime itself, which is further back on the path."""
    ours = sys.modules.pop("onnxruntime")
    kept = list(sys.path)
    sys.path[:] = [one for one in kept if Path(one or ".").resolve() != _HERE]
    importlib.invalidate_caches()
    try:
        return importlib.import_module("onnxruntime")
    finally:
        sys.path[:] = kept
        del ours


def misbehave() -> str:
    """What is to be wrong with the next compilation."""
    lines = TOLD.read_text("utf-8").splitlines() if TOLD.exists() else []
    if not lines:
        return ""
    TOLD.write_text("\n".join(lines[1:]), "utf-8")
    what = lines[0]
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    held = []
    while what in {"hang", "eat"}:
        if what == "eat":
            held.append(bytearray(os.urandom(1 << 16) * (1 << 9)))  # 32 MB that no zero page backs
        time.sleep(0.01)
    return what


class Compiler:
    """`onnxruntime.ModelCompiler`."""

    def __init__(
        self, options: Any, source: str, *, embed_compiled_data_into_model: bool = False
    ) -> None:
        self.source = Path(source)
        self.embed = embed_compiled_data_into_model

    def compile_to_file(self, output: str) -> None:
        import onnx
        from onnx import helper

        what = misbehave()
        if what == "refuse":
            raise RuntimeError("this device takes no such model")
        made = self.source.read_bytes()
        name = f"{Path(output).stem}_openvino.bin"
        binary = Path(output).with_name(name)
        sealed = hashlib.sha256(made).digest() + made
        binary.write_bytes(sealed[: len(sealed) // 2] if what == "truncate" else sealed)
        model = onnx.load(self.source)
        context = f"../{name}" if what == "escape" else name
        node = helper.make_node(
            "EPContext",
            [one.name for one in model.graph.input],
            [one.name for one in model.graph.output],
            domain="com.microsoft",
            main_context=1,
            embed_mode=int(self.embed),
            ep_cache_context=sealed if self.embed else context.encode(),
            partition_name="all",
            source=OPENVINO,
        )
        graph = helper.make_graph([node], "g", list(model.graph.input), list(model.graph.output))
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), output)


class Assigned:
    """A part of a graph, on the provider of its own."""

    ep_name = OPENVINO

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(op_type="EPContext", name="")]


def _install(real: Any) -> None:
    import onnx
    from onnxruntime.capi import _pybind_state

    options, session = real.SessionOptions, real.InferenceSession

    class Options(options):  # type: ignore[misc, valid-type]
        def add_provider(self, name: str, given: dict[str, str]) -> None:
            """The provider is not there; the CPU stands for it."""

    class Session(session):  # type: ignore[misc, valid-type]
        def __init__(self, file: Any, *more: Any, **how: Any) -> None:
            found = onnx.load(file)
            (node,) = found.graph.node if len(found.graph.node) == 1 else (None,)
            if node is not None and node.op_type == "EPContext":
                told = {one.name: one for one in node.attribute}
                sealed = told["ep_cache_context"].s
                if not told["embed_mode"].i:
                    sealed = Path(file).with_name(sealed.decode()).read_bytes()
                if hashlib.sha256(sealed[32:]).digest() != sealed[:32]:
                    raise RuntimeError("Unable to read the model")
                file = sealed[32:]
            how["providers"] = ["CPUExecutionProvider"]
            super().__init__(file, *more, **how)

        def get_provider_graph_assignment_info(self) -> list[Assigned]:
            return [Assigned()]

    real.SessionOptions, real.InferenceSession, real.ModelCompiler = Options, Session, Compiler
    _pybind_state.get_available_openvino_device_ids = lambda: ["CPU"]


if __name__ == "onnxruntime":
    _install(_real())
