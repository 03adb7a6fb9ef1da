"""Packages made by hand, small enough to be damaged in one way at a time, verified for real."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from machine.files import hash_file
from matrix.digest import SAMPLES, FileEntry, files_digest
from matrix.model import Target
from workers.build.claim import Claim
from workers.host.watch import Watching
from workers.runtimes.pool import Runtimes
from workers.store import Store
from workers.verify.ladder.subject import Part, Subject
from workers.verify.verifier import Climbed, Verifier

MLAS = Target("mlas_cpu", "cpu", "cpu", "CPUExecutionProvider")
NPU = Target("qnn_npu", "qnn", "npu", "QNNExecutionProvider", opset=(13, 21), static_shapes=True)
VITIS = Target(
    "vitisai_npu", "vitisai", "npu", "VitisAIExecutionProvider", internal_quantization=True
)
WEIGHTS = np.random.default_rng(5).standard_normal((8, 8)).astype(np.float32)


def model(
    weights: Any = WEIGHTS,
    output: str = "y",
    *,
    given: str = "x",
    op: str = "MatMul",
    domain: str = "",
    opset: int = 17,
    ir: int = 8,
) -> Any:
    """y = x @ w."""
    from onnx import TensorProto, helper, numpy_helper

    kind = TensorProto.FLOAT16 if weights.dtype == np.float16 else TensorProto.FLOAT
    nodes = [helper.make_node(op, [given, "w"], ["y"], domain=domain)]
    if kind != TensorProto.FLOAT:
        nodes = [
            helper.make_node("Cast", [given], ["h"], to=kind),
            helper.make_node(op, ["h", "w"], ["z"]),
            helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT),
        ]
    nodes[-1].output[0] = output
    tensors = [numpy_helper.from_array(weights, "w")]
    return made(nodes, tensors, output, opset=opset, given=given, ir=ir)


def then(op: str, *more: str, kind: int = 1, dims: tuple[int, ...] = (2, 8), **how: Any) -> Any:
    """y = op(x @ w), an output of this type and shape."""
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(op, ["h", *more], ["y"], **how),
    ]
    known = {"wide": np.array([1, 2, 8]), "from": [0], "to": [4], "axis": [1]}
    tensors = [numpy_helper.from_array(WEIGHTS, "w")]
    tensors += [numpy_helper.from_array(np.asarray(known[name]), name) for name in more]
    return made(nodes, tensors, "y", kind=kind, dims=dims)


def qdq(zero: int = 1 << 15, scale: float = 2**-12, kind: Any = np.uint16) -> Any:
    """The same as `model` with a quantized input and an int8 weight."""
    from onnx import helper, numpy_helper

    step = float(np.abs(WEIGHTS).max() / 127)
    constants = {
        "scale": np.float32(scale),
        "zero": kind(zero),
        "in": np.float32(2**-12 if kind is np.uint16 else 2**-4),
        "w8": np.round(WEIGHTS / step).astype(np.int8),
        "ws": np.float32(step),
        "wz": np.int8(0),
    }
    foreign = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "in", "zero"], ["q"], **foreign),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero2"], ["d"], **foreign),
        helper.make_node("DequantizeLinear", ["w8", "ws", "wz"], ["w"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    constants["zero2"] = constants["zero"]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    return made(nodes, tensors, "y")


def made(
    nodes: list[Any],
    tensors: list[Any],
    output: str,
    *,
    opset: int = 17,
    given: str = "x",
    ir: int = 8,
    kind: int = 1,
    dims: tuple[int, ...] = (2, 8),
) -> Any:
    """A model of one input, float [2, 8], and one output."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(output, kind, list(dims))],
        tensors,
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    sets += [helper.make_opsetid(node.domain, 1) for node in nodes if node.domain == "nobody.knows"]
    finished = helper.make_model(graph, opset_imports=sets)
    finished.ir_version = ir
    return finished


def shift(changed: Any, name: str, value: Any) -> Any:
    """The model with another constant."""
    from onnx import numpy_helper

    for tensor in changed.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
    return changed


def entries(folder: Path) -> tuple[FileEntry, ...]:
    """The files below a folder, as a manifest would name them."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest, size = hash_file(path)
            found.append(FileEntry(path.relative_to(folder).as_posix(), size, digest))
    return tuple(found)


def claim(precision: str = "fp32", target: Target = MLAS, **more: Any) -> Claim:
    """What a package claims to be."""
    return Claim("m@t", target, precision, **more)


def failed(climbed: Climbed) -> list[str]:
    """The rungs that were climbed in vain."""
    return [rung.name for rung in climbed.rungs if rung.passed is False]


def not_run(climbed: Climbed) -> list[str]:
    """The rungs that could not be climbed; each says because of what."""
    found = [rung for rung in climbed.rungs if rung.passed is None]
    assert all(rung.detail.startswith("not run: because ") for rung in found), found
    return [rung.name for rung in found]


def told(climbed: Climbed, name: str) -> str:
    """What a rung says."""
    return next(rung.detail for rung in climbed.rungs if rung.name == name)


class VerificationHarness:
    """A store of its own, and the warm processes of others."""

    def __init__(self, root: Path, runtimes: Runtimes) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.runtimes = runtimes
        self.verifier = Verifier(runtimes)
        self._count = 0

    def folder(self, name: str = "package") -> Path:
        """A new one."""
        self._count += 1
        folder = self.root / f"{name}-{self._count}"
        folder.mkdir()
        return folder

    def place(self, one: Any = None, *, external: bool = False, **parts: Any) -> Path:
        """A package of a model, or of components by name."""
        import onnx

        folder = self.folder()
        for name, item in (parts or {"": one}).items():
            (folder / name).mkdir(exist_ok=True)
            onnx.save(item, folder / name / "model.onnx", save_as_external_data=external,
                      location="model.onnx.data", size_threshold=0)  # fmt: skip
        return folder

    def subject(
        self,
        folder: Path,
        held: Claim,
        *,
        export: Path | None = None,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        manifest: Mapping[str, Any] | None = None,
    ) -> Subject:
        """A package next to its export (`model()` unless given) and its input values."""
        exported = export or self.place(model())
        fed = self.folder("inputs")
        for name, arrays in (inputs or {"": {"x": values()}}).items():
            place_samples(fed / name, arrays)
            (folder / SAMPLES).mkdir(exist_ok=True)
            shutil.copytree(fed / name / "judge", folder / SAMPLES / name, dirs_exist_ok=True)
        return Subject(
            held, folder, entries(folder), self.store, manifest or {}, part(exported)
        )  # fmt: skip

    def climb(
        self, one: Any, held: Claim, *, external: bool = False, timeout: float | None = None
    ) -> Climbed:
        """Verify a model."""
        placed = self.place(one, external=external)
        return self.verifier.climb(self.subject(placed, held), Watching(timeout))


def part(folder: Path) -> Part:
    """A folder, named by what is in it."""
    files = entries(folder)

    def place(dest: Path) -> None:
        for file in files:
            (dest / file.path).parent.mkdir(parents=True, exist_ok=True)
            (dest / file.path).write_bytes((folder / file.path).read_bytes())

    return Part(files_digest(files), place)


def place_samples(folder: Path, arrays: Mapping[str, Any]) -> None:
    """Samples for a verdict; `arrays` has them along their first axes."""
    (folder / "judge").mkdir(parents=True, exist_ok=True)
    for number in range(len(next(iter(arrays.values())))):
        one: dict[str, Any] = {name: array[number] for name, array in arrays.items()}
        np.savez(folder / "judge" / f"{number:02}.npz", **one)


def values(seed: int = 1, sets: int = 4) -> Any:
    """Input values."""
    found = np.random.default_rng(seed).standard_normal((sets, 2, 8)).astype(np.float32)
    return found.clip(-3, 3)


@contextmanager
def warm(root: Path) -> Iterator[Runtimes]:
    """ONNX Runtime alone, for many tests: a process takes a second to start."""
    runtimes = Runtimes(root / "logs", allowed=())
    try:
        yield runtimes
    finally:
        runtimes.close()


@contextmanager
def lab_in(root: Path, runtimes: Runtimes) -> Iterator[VerificationHarness]:
    """A harness for one test."""
    harness = VerificationHarness(root, runtimes)
    try:
        yield harness
    finally:
        harness.store.close()
