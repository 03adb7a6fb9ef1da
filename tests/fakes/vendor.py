"""Stands for the package `openvino` in an environment of its own: ONNX Runtime under its names.

Copied there as `openvino.py`. It misbehaves as the file `told` in that environment says: `crash` or
`hang` when a model is compiled, `crash early` or `hang early` at first sight, `crash running` or
`hang running` when it is run. It does so once; with `crash always early` every time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__version__ = "9999.1-stand-in"
TOLD = Path(sys.prefix) / "told"
TYPES = {"tensor(float)": "f32", "tensor(int64)": "i64"}


def misbehave(when: str) -> None:
    """If told so."""
    what, *more = TOLD.read_text("utf-8").split() if TOLD.exists() else [""]
    always = "always" in more
    if not what or " ".join(word for word in more if word != "always") != when:
        return
    if not always:
        TOLD.unlink()
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    while True:
        time.sleep(3600)


@dataclass(frozen=True)
class Dim:
    """One dimension."""

    size: Any

    @property
    def is_static(self) -> bool:
        return isinstance(self.size, int)

    def get_length(self) -> int:
        return int(self.size)


class Port:
    """An input or output."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def get_any_name(self) -> str:
        return str(self.item.name)

    def get_names(self) -> set[str]:
        return {self.item.name}

    def get_partial_shape(self) -> Iterator[Dim]:
        return map(Dim, self.item.shape)

    def get_element_type(self) -> Port:
        return self

    def to_string(self) -> str:
        return TYPES[self.item.type]


class Compiled:
    """A session of ONNX Runtime."""

    def __init__(self, file: str) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self.inputs = [Port(item) for item in self._session.get_inputs()]
        self.outputs = [Port(item) for item in self._session.get_outputs()]

    def create_infer_request(self) -> Compiled:
        return self

    def infer(self, feeds: Mapping[str, Any], **_shared: bool) -> dict[Port, Any]:
        misbehave("running")
        return dict(zip(self.outputs, self._session.run(None, dict(feeds)), strict=True))

    def get_runtime_model(self) -> Compiled:
        return self

    def get_ops(self) -> list[Compiled]:
        return [self]

    def get_rt_info(self) -> dict[str, Any]:
        return {}

    def get_type_name(self) -> str:
        return "Everything"


class Core:
    """What is here."""

    def __init__(self) -> None:
        misbehave("early")
        self.available_devices = ["CPU"]

    def get_property(self, _device: str, _name: str) -> str:
        return f"a stand-in from {sys.prefix}"

    def compile_model(self, file: str, _device: str, _options: Mapping[str, Any]) -> Compiled:
        misbehave("")
        return Compiled(file)
