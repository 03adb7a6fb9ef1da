"""Where the samples of a component are from: a dataset, the model's processor, made values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers.samples import datasets, preprocessing, processors
from workers.samples.datasets import TENSORS, Dataset
from workers.samples.values import told
from workers.session import Port

Sample = dict[str, Any]
Signature = Mapping[str, Port]
Sizes = Mapping[str, int]
Make = Callable[[Signature, Sizes, int], Sample]
"""Makes the synthetic sample of a number for a graph, with these sizes for its open axes."""
DATASET, SYNTHETIC = processors.DATASET, "synthetic"
KINDS = (SYNTHETIC, processors.KIND, DATASET)
"""The weakest first."""
_FOLLOWS = re.compile(r"mask|position|token_type|segment_ids|cache_branch|sizes|grid_thw|lengths")
"""In names of inputs that follow from others."""


@dataclass(frozen=True, slots=True)
class Source:
    """Makes the samples of a component."""

    sample: Callable[[int], Sample]
    kinds: Mapping[str, str]
    """Of each input."""
    origin: str
    """For people."""
    count: int | None = None
    """How many there are; None: as many as are asked for."""
    own: bool = False
    """Whether they are a user's tensors, which stay as they are."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What is known of a model for the samples of its components."""

    beside: Path
    """A folder with the model's tokenizer or processor, if it has one."""
    task: str
    config: Any
    sizes: Sizes
    """Of open axes, by their names."""
    own: Mapping[str, Make]
    """By component."""
    dataset: Dataset | None = None
    notice: Callable[[str], object] = print

    def source(self, component: str, wanted: Signature) -> Source:
        """The source of a component's samples."""
        if self.dataset is not None and self.dataset.form == TENSORS:
            return self._of_tensors(self.dataset, component, wanted)
        make = self.own[component]
        first = make(wanted, self.sizes, 0)
        # With the shapes of made samples, so that both fit together.
        fixed = {name: replace(port, shape=first[name].shape) for name, port in wanted.items()}
        real = processors.real(
            self.beside, self.task, self.config, fixed, self.sizes,
            notice=self.notice, dataset=self.dataset,
        )  # fmt: skip
        if real is None and self.dataset is not None:
            real = preprocessing.real(self.dataset, fixed)
        made = dict.fromkeys(wanted, SYNTHETIC)
        if real is None:
            return Source(lambda number: make(wanted, self.sizes, number), made, "made values")
        needed = {name: port for name, port in wanted.items() if name not in real.kinds}

        def sample(number: int) -> Sample:
            rest = make(wanted, self.sizes, number) if needed else {}
            return rest | real.sample(number)

        return Source(sample, {**made, **real.kinds}, real.origin, real.count)

    def _of_tensors(self, dataset: Dataset, component: str, wanted: Signature) -> Source:
        given = [datasets.fitted(row, wanted, component) for row in dataset.rows]
        sizes = {**self.sizes, **sizes_of(given[0], wanted)}
        missing = wanted.keys() - given[0].keys()
        make = self.own[component]

        def sample(number: int) -> Sample:
            made = make(wanted, sizes, number) if missing else {}
            shown = {name: _shown(name, made[name], given[number], self.config) for name in missing}
            return {**shown, **given[number]}

        kinds = {name: SYNTHETIC if name in missing else DATASET for name in wanted}
        return Source(sample, kinds, dataset.name, len(given), own=True)


def sizes_of(given: Sample, wanted: Signature) -> dict[str, int]:
    """The sizes that a dataset's arrays fix for all inputs, by the names of their axes."""
    return {
        axis: size
        for name, value in given.items()
        for axis, size in zip(wanted[name].shape, value.shape, strict=True)
        if isinstance(axis, str)
    }


def kind_of(kinds: Mapping[str, str]) -> str:
    """The kind of a sample: the weakest of what its other inputs do not follow from."""
    content = [kind for name, kind in kinds.items() if not _FOLLOWS.search(name.casefold())]
    return min(content or kinds.values(), key=KINDS.index)


def _shown(name: str, made: Any, given: Sample, config: Any) -> Any:
    """An input that a user's tensors leave out: a mask hides nothing but padding."""
    import numpy as np

    if name.endswith("mask"):
        ids = given.get(name.removesuffix("attention_mask") + "input_ids")
        pad = told(config, "pad_token_id")
        if ids is None or pad is None or ids.shape != made.shape:
            return np.ones_like(made)
        own = ids != pad
        # Padding stands at one end; the same token inside a text is part of it.
        first = np.maximum.accumulate(own, -1)
        last = np.maximum.accumulate(own[..., ::-1], -1)[..., ::-1]
        return (first & last).astype(made.dtype)
    if "token_type" in name:
        return np.zeros_like(made)
    if name.endswith("position_ids") and made.ndim:
        return np.broadcast_to(np.arange(made.shape[-1], dtype=made.dtype), made.shape).copy()
    return made
