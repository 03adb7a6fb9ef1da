"""Portable and compiled cells of made-up models in a feed, with the index of their stamp."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feed.index import IndexCell, SweepIndex
from feed.ort_package import OrtPackage, pull_ort_package
from feed.publisher import Publisher
from matrix.naming import index_name
from matrix.status import Status
from tests.fakes.feed import MemoryFeed, tree_of, write_files

STAMP = "one"
INDEX = index_name("modelmill-{model}", STAMP)[0]
TARGETS = {
    "mlas_cpu": ("CPUExecutionProvider", "cpu"),
    "qnn_npu": ("QNNExecutionProvider", "npu"),
}
COMPATIBLE = {"QNNExecutionProvider": "v2:6:73"}


class Sweep:
    """Publishes made-up cells and their index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.feed = MemoryFeed()
        self.cells: list[IndexCell] = []

    def cell(
        self, right: str, model: str = "a/b", components: Sequence[str] = (), **records: Any
    ) -> IndexCell:
        target, _, profile = right.partition("+")
        label = target.partition(":")[0]
        provider, device = TARGETS[label]
        manifest: dict[str, Any] = {"target": {"provider": provider, "device": device}}
        if profile:
            stages = [compiled(name) for name in components or ("",)]
            options = {"htp_arch": "73", "config": "/etc/htp.json"}
            manifest["profile"] = {"options": options, "file_options": ["config"]}
            manifest["stages"] = [{"stage": "quantize", "component": ""}, *stages]
        files = {f"{name}/model.onnx".lstrip("/"): right.encode() for name in components or ("",)}
        files["modelmill.json"] = json.dumps(manifest | records).encode()
        if components:
            named = [{"name": name, "model": f"{name}/model.onnx"} for name in components]
            files["composition.json"] = json.dumps({"components": named}).encode()
        package = f"modelmill-{model.replace('/', '-')}"
        version = f"0.0.0-{STAMP}-{right.translate({ord(c): '-' for c in '_:+'})}"
        made = IndexCell(
            f"{model}:t@{right}", model, "t", f"{label}+{profile}" if profile else label, "fp32",
            Status.PUBLISHED, package, version, self.publish(package, version, files),
        )  # fmt: skip
        self.cells.append(made)
        return made

    def publish(self, package: str, version: str, contents: dict[str, bytes]) -> str:
        files = write_files(self.folder / package / version, contents)
        Publisher(self.feed).publish(package, version, files, tree=tree_of(files))
        return tree_of(files)

    def pull(self, dest: Path, feed: Any = None, **selection: Any) -> OrtPackage:
        if self.feed.find(*index_name("modelmill-{model}", STAMP)) is None:
            index = SweepIndex(STAMP, tuple(self.cells)).to_json()
            self.publish(*index_name("modelmill-{model}", STAMP), {"index.json": index})
        return pull_ort_package(feed or self.feed, INDEX, STAMP, dest, **selection)


def compiled(component: str) -> dict[str, Any]:
    facts = {"compatibility": COMPATIBLE}
    return {
        "stage": "compile",
        "component": component,
        "params": {"emulated": True},
        "facts": facts,
    }
