"""Models that are one graph and one call: their ONNX configuration, made from a row of data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimum.exporters.onnx.base import OnnxConfig
from optimum.utils import NormalizedConfig

from workers.optimum_engine.architectures import inputs, shapes
from workers.optimum_engine.architectures.patches import SPECS
from workers.optimum_engine.architectures.rows import Row

Axes = dict[str, dict[int, str]]
_LOGITS = ("video-classification", "image-text-to-text")


class GenericConfig(OnnxConfig):  # type: ignore[misc]  # Optimum has no types
    """Inputs, outputs and dummy values of an architecture that has a row with `inputs`."""

    NORMALIZED_CONFIG_CLASS = NormalizedConfig
    ROW: Row
    image_size: tuple[int, int] | None = None
    """Of the model's preprocessor, which wins: models are trained on other sizes than they see."""

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

    def open_outputs(self, graph: Any) -> None:
        """Open the dimensions of outputs that may follow open ones of inputs.

        A trace knows them only by the sizes of its sample.
        """
        if self._fixed:
            return
        samples = self.generate_dummy_inputs(framework="np")
        sizes = {
            samples[name].shape[place]: axis
            for name, axes in self.inputs.items()
            for place, axis in axes.items()
        }
        for output in graph.graph.output:
            for dim in output.type.tensor_type.shape.dim:
                if dim.dim_value in sizes:
                    dim.dim_param = sizes[dim.dim_value]

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

    def generate_dummy_inputs_for_validation(
        self, reference_model_inputs: Mapping[str, Any], onnx_input_names: list[str]
    ) -> dict[str, Any]:
        """The inputs that the graph kept: an exporter drops those that change nothing."""
        known = reference_model_inputs.items()
        return {name: made for name, made in known if name in onnx_input_names}

    @property
    def _fixed(self) -> bool:
        return self.ROW.is_fixed(self.task)

    def _own(self, axis: str) -> int:
        """The size of a graph that is valid for one size only."""
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
        if self.image_size and axis in {"height", "width"}:
            return self.image_size[axis == "width"]
        if size := self.ROW.sizes.get(axis) or inputs.told(self._config, axis):
            return size
        if self._fixed:
            return self._own(axis)
        return asked.get(axis) or inputs.SIZES[axis]


def register(architecture: str, row: Row, patches: Mapping[str, Any]) -> None:
    """Make the configuration of an architecture known to Optimum."""
    from optimum.exporters.tasks import TasksManager

    base: Any = GenericConfig
    tasks = [task for task in row.tasks if row.like or row.names("inputs", task)]
    if row.like:
        known = TasksManager.get_supported_tasks_for_model_type(
            row.like, "onnx", library_name="transformers"
        )
        base = next(iter(known.values())).func
        tasks += [name for task in row.tasks if (name := f"{task}-with-past") in known]
    specs = [*(base.PATCHING_SPECS or ()), *SPECS, *patches.get("PATCHING_SPECS", ())]
    own = {"ROW": row, **patches, "PATCHING_SPECS": specs}
    made = type(f"{architecture}OnnxConfig", (base,), own)
    TasksManager.create_register("onnx", overwrite_existing=True)(architecture, *tasks)(made)
