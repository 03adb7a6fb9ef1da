"""Verification inside its own host process: opens a package's models and runs them once.

A service for `workers.host.child`; onnx and onnxruntime are imported here and nowhere in the
owner. Each rung stands alone: it answers (passed, detail, evidence) and never stops the next one.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOLS = ("onnx", "onnxruntime", "onnxruntime-windowsml", "numpy")
SAMPLES = "inputs.npz"
Answer = dict[str, Any]


class Checker:
    """Operations: `runtimes` (versions), `climb` (rungs of one package)."""

    def call(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> Any:
        """Answer one request."""
        if op == "runtimes":
            return runtimes()
        if op == "climb":
            package = Package(Path(args["folder"]), args["models"], Path(args["inputs"]))
            answers = []
            for name in args["rungs"]:
                progress(name)
                answers.append(_climb(name, package))
            return answers
        raise ValueError(f"the checker has no operation {op!r}")


class Package:
    """What is checked: a folder, its .onnx files, and input values by the same folders."""

    def __init__(self, folder: Path, models: list[str], inputs: Path) -> None:
        self.folder = folder
        self.models = models
        self._inputs = inputs

    def samples(self, model: str) -> Path | None:
        """The input values for a model: those of its component, or the only ones there are."""
        path = self._inputs / Path(model).parent / SAMPLES
        return path if path.is_file() else None


def runtimes() -> dict[str, str]:
    """What rungs are run on; no heavy import."""
    found = {}
    for name in TOOLS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _climb(name: str, package: Package) -> Answer:
    passed, details, evidence = True, [], {}
    for model in package.models:
        try:
            evidence[model] = RUNGS[name](package, model)
        # The checked libraries raise anything at all; whatever it is, this rung has failed of it.
        except Exception as error:  # noqa: BLE001
            passed = False
            details.append(f"{model}: {str(error).strip() or type(error).__name__}")
    return {
        "name": name,
        "passed": passed,
        "detail": "; ".join(details) or f"{len(package.models)} model file(s)",
        "evidence": evidence,
    }


def integrity(package: Package, model: str) -> Answer:
    """The ONNX checker accepts it; external data are complete, relative, inside the package."""
    import onnx

    path = package.folder / model
    loaded = onnx.load(path, load_external_data=False)
    files = {_external(package, path, tensor) for tensor in _tensors(loaded)} - {""}
    _check(path, files, package.folder)
    return {
        "ir": loaded.ir_version,
        "opsets": {item.domain or "ai.onnx": item.version for item in loaded.opset_import},
        "external": sorted(files),
    }


def _check(model: Path, external: set[str], folder: Path) -> None:
    """The ONNX checker on the model, beside empty files of the right sizes for its external data.

    It looks at nothing but whether those are there, and it refuses hard links, which a package
    folder is made of. Their bytes are hashed elsewhere; here they would only be copied.
    """
    import onnx

    if not external:
        onnx.checker.check_model(model)
        return
    with tempfile.TemporaryDirectory() as scratch:
        beside = Path(scratch) / model.relative_to(folder)
        for name in external:
            stand_in = Path(scratch) / name
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            with stand_in.open("wb") as stream:
                stream.truncate((folder / name).stat().st_size)
        beside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model, beside)
        onnx.checker.check_model(beside)


def _tensors(model: Any) -> list[Any]:
    """Every tensor with data: initializers and constants, subgraphs included."""
    found, graphs = [], [model.graph]
    while graphs:
        graph = graphs.pop()
        found += graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                found += [attribute.t] if attribute.HasField("t") else []
                graphs += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return found


def _external(package: Package, model: Path, tensor: Any) -> str:
    """Check where a tensor's bytes are; the name of that file, or nothing."""
    if tensor.data_location != 1:
        return ""
    where = {item.key: item.value for item in tensor.external_data}
    name = str(where.get("location", ""))
    path: Path = (model.parent / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(package.folder.resolve()):
        raise ValueError(f"external data of {tensor.name} are outside the package: {name}")
    if not path.is_file():
        raise ValueError(f"external data of {tensor.name} are missing: {name}")
    end = int(where.get("offset", 0)) + int(where.get("length", 0))
    if end > path.stat().st_size:
        raise ValueError(f"external data of {tensor.name} are cut off: {name}")
    return path.relative_to(package.folder.resolve()).as_posix()


def loads(package: Package, model: str) -> Answer:
    """A CPU session opens; with the engine's input values it also runs and its outputs are sane."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        str(package.folder / model), options, providers=["CPUExecutionProvider"]
    )
    samples = package.samples(model)
    if samples is None:
        return {"ran": False, "why": "the engine gave no input values"}
    with np.load(samples, allow_pickle=False) as values:
        feeds = {item.name: values[item.name][0] for item in session.get_inputs()}
    outputs = session.run(None, feeds)
    names = [item.name for item in session.get_outputs()]
    for name, value in zip(names, outputs, strict=True):
        if (
            isinstance(value, np.ndarray)
            and value.dtype.kind == "f"
            and not np.isfinite(value).all()
        ):
            raise ValueError(f"output {name} holds NaN or infinity")
    return {
        "ran": True,
        "outputs": {n: list(np.shape(v)) for n, v in zip(names, outputs, strict=True)},
    }


RUNGS: dict[str, Callable[[Package, str], Answer]] = {"integrity": integrity, "loads": loads}
"""By name; a further rung is one more function here and one more name in `verify.LADDER`."""
