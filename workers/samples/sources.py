"""Where the samples of a component are from: a dataset, the model's processor, made values.

A user's images and sounds for a graph that has no processor beside it, as the catalog states:

images   stretched to the size that the graph takes, values from 0 to 1 (from 0 to 255 for
         inputs of bytes), less `mean`, divided by `std`, in the order of `channels`
sounds   one channel at `rate`, from the beginning, silence at the end
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from workers.samples import datasets, processors, signals
from workers.samples.datasets import IMAGES, SOUNDS, TENSORS, Dataset, picture, sound
from workers.samples.processors import Source
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
RATE = 16000


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
            real = stated(self.dataset, fixed)
        made = dict.fromkeys(wanted, SYNTHETIC)
        if real is None:
            return Source(lambda number: make(wanted, self.sizes, number), made, "made values")
        needed = {name: port for name, port in wanted.items() if name not in real.kinds}

        def sample(number: int) -> Sample:
            rest = make(wanted, self.sizes, number) if needed else {}
            return rest | real.sample(number)

        return replace(real, sample=sample, kinds={**made, **real.kinds})

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


def stated(dataset: Dataset, wanted: Mapping[str, Port]) -> Source | None:
    """The samples of a dataset, for the one input that takes them; None: no single one does."""
    takes = {IMAGES: _is_image, SOUNDS: _is_sound}.get(dataset.form)
    names = [name for name, port in wanted.items() if takes and takes(port)]
    if len(names) != 1:
        return None
    port = wanted[names[0]]
    make = partial(_image if dataset.form == IMAGES else _sound, dataset.stated, port)
    sample = partial(_sample, make, dataset.rows, port)
    count = len(dataset.rows) // _shape(port)[0]
    return Source(sample, {port.name: DATASET}, dataset.name, count)


def _sample(make: Any, rows: Sequence[Path], port: Port, number: int) -> dict[str, Any]:
    import numpy as np

    batch = _shape(port)[0]
    made = [make(rows[(number * batch + one) % len(rows)]) for one in range(batch)]
    return {port.name: np.stack(made).reshape(_shape(port)).astype(port.dtype)}


def _is_image(port: Port) -> bool:
    return len(port.shape) == 4 and signals.is_picture(_shape(port))


def _is_sound(port: Port) -> bool:
    shape = _shape(port)
    return port.dtype.startswith("float") and 1 < len(shape) < 4 and max(shape) == shape[-1] > 100


def _shape(port: Port) -> tuple[int, ...]:
    return tuple(int(str(size)) for size in port.shape)


def _image(stated: Mapping[str, Any], port: Port, file: Path) -> Any:
    import numpy as np
    from PIL import Image

    shape = _shape(port)
    height, width = signals.sides(shape)
    last = shape[-3:-1] == (height, width)
    colors = shape[-1] if last else shape[-3]
    image = Image.fromarray(picture(file)).resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image.convert("L") if colors == 1 else image, np.float64)
    pixels = pixels.reshape(height, width, -1)
    if colors == 4:
        pixels = np.concatenate([pixels, np.full((height, width, 1), 255.0)], -1)
    if stated.get("channels") == "bgr" and colors == 3:
        pixels = pixels[..., ::-1]
    if port.dtype.startswith("float"):
        pixels = pixels / 255
        for name, part in (("mean", np.subtract), ("std", np.divide)):
            if given := stated.get(name):
                pixels = part(pixels, np.asarray(given))
    return pixels if last else np.moveaxis(pixels, -1, 0)


def _sound(stated: Mapping[str, Any], port: Port, file: Path) -> Any:
    import numpy as np

    length = _shape(port)[-1]
    rate = int(stated.get("rate", RATE))
    values = sound(file, rate, length / rate)[:length]
    return np.pad(values, (0, length - len(values)))
