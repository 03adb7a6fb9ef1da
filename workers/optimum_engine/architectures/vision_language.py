"""Vision-language models: a component for the image, and one for the text with image features.

    vision     pixel_values -> image_features
    language   input_ids, attention_mask, image_features -> logits

The second is the model's own `forward`, with the features in place of those that it would compute
from the pixels, so everything that it does with them (masks, positions, scaling) is in the graph.
Both graphs take one image of the model's own size; texts have any length. The features replace the
model's image token in the text. Where an encoder reads the text, `decoder_input_ids` is what is
written so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from workers.optimum_engine.architectures import inputs, seeing
from workers.optimum_engine.architectures.generic import GenericConfig
from workers.optimum_engine.architectures.patches import SPECS
from workers.optimum_engine.architectures.rows import Row, rows

FEATURES = "image_features"
_METHOD = "get_image_features"
_WRITTEN = "decoder_input_ids"


class _Seen(Exception):
    """A model's call of its image side, with arguments and result."""

    def __init__(self, arguments: Any, keywords: Any, answer: Any, used: int | None) -> None:
        super().__init__()
        self.arguments = arguments
        self.keywords = keywords
        leaves, self.tree = pytree.tree_flatten(answer)
        used = len(leaves) if used is None else used
        self.leaves, self.unused = leaves[:used], leaves[used:]


class _Side(torch.nn.Module):  # type: ignore[misc]  # without torch's types it is Any
    """A component: the whole model, called in a way of its own."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        inner = getattr(model, "model", None)
        self._owner = inner if hasattr(inner, _METHOD) else model
        self._found: _Seen | None = None

    def seen(self) -> _Seen:
        """What the model does with an image, found out once."""
        if self._found is None:
            pixels = torch.ones(seeing.shape(self.config))
            try:
                with torch.no_grad(), self._instead(self._record):
                    self.model(**seeing.arguments(self.config), pixel_values=pixels)
            except _Seen as found:
                self._found = found
        assert self._found is not None, "the model does not look at the image"
        return self._found

    def _record(self, *arguments: Any, **keywords: Any) -> Any:
        answer = self._original(*arguments, **keywords)
        raise _Seen(arguments, keywords, answer, seeing.used(self.config))

    @contextmanager
    def _instead(self, method: Any) -> Iterator[None]:
        self._original = getattr(self._owner, _METHOD)
        setattr(self._owner, _METHOD, method)
        try:
            yield
        finally:
            delattr(self._owner, _METHOD)  # the class has the original


class Vision(_Side):
    """The image side: its answer as one list of features."""

    def forward(self, pixel_values: Any) -> dict[str, Any]:
        """The features of an image."""
        seen = self.seen()
        pick = seeing.replacer(seeing.shape(self.config), pixel_values)
        look = seeing.method(self._owner) or getattr(self._owner, _METHOD)
        answer = look(
            *map(pick, seen.arguments),
            **{name: pick(value) for name, value in seen.keywords.items()},
        )
        leaves = pytree.tree_leaves(answer)[: len(seen.leaves)]
        width = seen.leaves[0].shape[-1]
        return {FEATURES: torch.cat([leaf.reshape(-1, width) for leaf in leaves])}


class Language(_Side):
    """The model with the features of an image in place of the image."""

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any,
        image_features: Any,
        position_ids: Any = None,
        decoder_input_ids: Any = None,
    ) -> dict[str, Any]:
        """What the model says of a text with an image."""
        seen = self.seen()
        counts = [leaf.numel() // leaf.shape[-1] for leaf in seen.leaves]
        parts = image_features.split(counts)
        leaves = [part.reshape(leaf.shape) for part, leaf in zip(parts, seen.leaves, strict=True)]
        answer = pytree.tree_unflatten([*leaves, *seen.unused], seen.tree)
        more = seeing.arguments(self.config, input_ids)
        more |= {"input_ids": input_ids, "attention_mask": attention_mask}
        if position_ids is not None:
            more["position_ids"] = position_ids
        if decoder_input_ids is not None:
            more["decoder_input_ids"] = decoder_input_ids
        pixels = torch.ones(seeing.shape(self.config))
        with self._instead(lambda *_args, **_keywords: answer):
            found = self.model(**more, pixel_values=pixels, use_cache=False, return_dict=True)
        name = "logits" if "logits" in found else "last_hidden_state"
        return {name: found[name]}


class SideConfig(GenericConfig):
    """What both components have in common."""


class VisionConfig(SideConfig):
    """The component for the image."""

    def generate_dummy_inputs(self, framework: str = "pt", **_asked: int) -> Mapping[str, Any]:
        """An image of the model's own size."""
        pixels = torch.rand(seeing.shape(self._config)) * 2 - 1
        return {"pixel_values": pixels.numpy() if framework == "np" else pixels}


class LanguageConfig(SideConfig):
    """The component for the text."""

    side: Language
    features: tuple[int, int] | None = None
    """The shape of an image's features, if a graph declares it."""

    @property
    def inputs(self) -> dict[str, dict[int, str]]:
        """A text of any length, and the features of one image."""
        axis = "sequence_length"
        found = {"input_ids": {1: axis}, "attention_mask": {1: axis}, FEATURES: {}}
        if seeing.positions(self._config):
            found["position_ids"] = {2: axis}
        if seeing.writes_apart(self._config):
            found[_WRITTEN] = {1: f"decoder_{axis}"}
        return found

    @property
    def outputs(self) -> dict[str, dict[int, str]]:
        """As long as the text: without its axis the graph would tell the length of the trace."""
        written = "decoder_" if seeing.writes_apart(self._config) else ""
        return {name: {1: f"{written}sequence_length"} for name in super().outputs}

    def settle(self, wanted: Mapping[str, Any]) -> None:
        """Take the shape of the features from the graph."""
        self.features = wanted[FEATURES].shape

    def generate_dummy_inputs(self, framework: str = "pt", **asked: int) -> Mapping[str, Any]:
        """A text that begins with the image."""
        shape = self.features or self._features()
        places = seeing.places(self._config, shape[0])
        least = places + inputs.SIZES["sequence_length"]
        text = seeing.text(self._config, places, max(asked.get("sequence_length", 0), least))
        made = {
            "input_ids": text,
            "attention_mask": torch.ones_like(text),
            FEATURES: torch.randn(shape),
        }
        if count := seeing.positions(self._config):
            made["position_ids"] = torch.arange(text.shape[1]).expand(count, 1, -1).clone()
        if seeing.writes_apart(self._config):
            count = asked.get("decoder_sequence_length") or inputs.SIZES["decoder_sequence_length"]
            made[_WRITTEN] = inputs.value(_WRITTEN, (1, count), self._config)
        return {name: one.numpy() if framework == "np" else one for name, one in made.items()}

    def _features(self) -> tuple[int, int]:
        leaves = self.side.seen().leaves
        return sum(leaf.numel() // leaf.shape[-1] for leaf in leaves), leaves[0].shape[-1]


def register() -> None:
    """The tasks, for Optimum's table; `parts` defines the graphs of the model."""
    from optimum.exporters.tasks import TasksManager

    known = TasksManager.create_register("onnx", overwrite_existing=True)
    for name, row in rows().items():
        if row.module == "vision_language" and row.package == __package__:
            known(name, *row.tasks)(VisionConfig)


def parts(model: Any, task: str) -> Mapping[str, tuple[Any, Any]]:
    """The two components; they share the model."""
    vision, language = Vision(model), Language(model)
    output = "last_hidden_state" if task == "feature-extraction" else "logits"
    return {
        "vision": (vision, _config(VisionConfig, model, task, FEATURES)),
        "language": (language, _config(LanguageConfig, model, task, output, side=language)),
    }


def _config(base: type[SideConfig], model: Any, task: str, output: str, **more: Any) -> SideConfig:
    row = Row(__package__, [task], inputs=["pixel_values"], outputs=[output], fixed=True)
    specs = [*SPECS, *seeing.specs(model)]
    attributes = {"ROW": row, "PATCHING_SPECS": specs, **more}
    made: SideConfig = type(base.__name__, (base,), attributes)(model.config, task=task)
    return made
