"""Methods of a model's layers, replaced while the model is exported or compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any

from optimum.exporters.onnx.model_patcher import ModelPatcher

Methods = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Class of a layer -> its methods -> functions in their place, which take the layer first."""


def replacing(methods: Methods) -> dict[str, Any]:
    """The `PATCHES` of a family."""

    class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
        def __enter__(self) -> None:
            super().__enter__()
            for layer, name, function in self._replaced():
                setattr(layer, name, MethodType(function, layer))

        def __exit__(self, *error: object) -> None:
            for layer, name, _function in self._replaced():
                delattr(layer, name)  # the class has the original
            super().__exit__(*error)

        def _replaced(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
            for layer in self._model.modules():
                for name, function in methods.get(type(layer).__name__, {}).items():
                    yield layer, name, function

    return {"_MODEL_PATCHER": Patcher}
