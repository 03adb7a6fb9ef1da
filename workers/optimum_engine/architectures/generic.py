"""Models that are one graph and one call: their ONNX configuration, made from a row of data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimum.exporters.onnx.base import OnnxConfig
from optimum.utils import NormalizedConfig

from workers.optimum_engine import shapes
from workers.optimum_engine.architectures import inputs
from workers.optimum_engine.architectures.rows import Row

Axes = dict[str, dict[int, str]]
_LOGITS = ("video-classification", "image-text-to-text")


class GenericConfig(OnnxConfig):  # type: ignore[misc]  # Optimum has no types
    """Inputs, outputs and dummy values of an architecture that has a row with `inputs`."""

    NORMALIZED_CONFIG_CLASS = NormalizedConfig
    ROW: Row
    image_size: tuple[int, int] | None = None
    """Of the model's preprocessor, for configurations that tell none."""

    @property
    def inputs(self) -> Axes:
        """The inputs with their open axes."""
        return {name: self._open(name) for name in self.ROW.names("inputs", self.task)}

    @property
    def outputs(self) -> Axes:
        """The outputs; their axes follow from the graph."""
        names = self.ROW.names("outputs", self.task)
        if not names:
            names = ["logits"] if self.task in _LOGITS else list(super().outputs)
        return {name: {} if self._fixed else {0: "batch_size"} for name in names}

    def generate_dummy_inputs(self, framework: str = "pt", **asked: int) -> Mapping[str, Any]:
        """A sample: with the sizes of the export if the trace holds for no others."""
        found = {}
        for name in self.inputs:
            shape = tuple(
                self._size(axis, asked) for axis in inputs.axes(self.ROW, name, self.task)
            )
            made = inputs.value(name, shape, self._config)
            found[name] = made.numpy() if framework == "np" else made
        return found

    @property
    def _fixed(self) -> bool:
        return self.ROW.is_fixed(self.task)

    def _own(self, axis: str) -> int:
        """The size that a graph has which holds for one alone."""
        if axis == "batch_size":
            return 1
        return shapes.sequence(self._config) if axis == "sequence_length" else inputs.SIZES[axis]

    def _open(self, name: str) -> dict[int, str]:
        if self._fixed:
            return {}
        named = enumerate(inputs.axes(self.ROW, name, self.task))
        return {place: axis for place, axis in named if axis in inputs.DYNAMIC}

    def _size(self, axis: str, asked: Mapping[str, int]) -> int:
        if axis.isdecimal():
            return int(axis)
        if size := self.ROW.sizes.get(axis) or inputs.told(self._config, axis):
            return size
        if self.image_size and axis in {"height", "width"}:
            return self.image_size[axis == "width"]
        if self._fixed:
            return self._own(axis)
        return asked.get(axis) or inputs.SIZES[axis]


def register(architecture: str, row: Row, patches: Mapping[str, Any]) -> None:
    """Make the configuration of an architecture known to Optimum."""
    from optimum.exporters.tasks import TasksManager

    base: type = GenericConfig
    tasks = list(row.tasks)
    if row.like:
        known = TasksManager.get_supported_tasks_for_model_type(
            row.like, "onnx", library_name="transformers"
        )
        base = next(iter(known.values())).func
        tasks += [name for task in row.tasks if (name := f"{task}-with-past") in known]
    made = type(f"{architecture}OnnxConfig", (base,), {"ROW": row, **patches})
    TasksManager.create_register("onnx", overwrite_existing=True)(architecture, *tasks)(made)
