"""Real samples: the model's own tokenizer, image processor or feature extractor on our material.

What lies beside the model is loaded as an app loads it, from local files alone. Inputs are padded
and cut to the planned sizes; what a processor does not give (positions, tokens of a decoder) is
derived. Everything follows from the number of a sample.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from machine.files import read_json
from workers.engine import StageError
from workers.samples import synthetic
from workers.samples.datasets import IMAGES, SOUNDS, TEXTS, Dataset
from workers.samples.pictures import Pictures
from workers.samples.recordings import Recordings
from workers.samples.words import Words
from workers.session import Port
from workers.sources.errors import failing

KIND, DATASET = "processor", "dataset"
_TOKENIZERS = (
    "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model",
    "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
_PREPROCESSORS = (
    "preprocessor_config.json", "image_processor_config.json", "feature_extractor_config.json",
    "processor_config.json",
)  # fmt: skip
_OF_IMAGES = ("do_resize", "do_rescale", "do_convert_rgb", "image_mean", "image_processor_type")
"""Settings that only the processors of images have."""
_ITEMS = {
    "input_ids": 2, "decoder_input_ids": 2, "pixel_values": 4, "flattened_patches": 3,
    "input_values": 2, "input_features": 3,
}  # fmt: skip
"""Inputs whose first axis is that of the batch, if they have at least so many axes."""
Sample = dict[str, Any]


class Part(Protocol):
    """A tokenizer, an image processor or a feature extractor."""

    origin: str
    """For people."""

    def row(self, number: int) -> Sample:
        """The inputs that it makes of one item, without the axis of the batch."""


@dataclass(frozen=True, slots=True)
class Source:
    """Makes the samples of a component."""

    sample: Callable[[int], Sample]
    """The sample of a number; any few in a row have short and long texts."""
    kinds: Mapping[str, str]
    """Of each input that the samples have."""
    origin: str
    """For people."""
    count: int | None = None
    """How many there are; None: as many as are asked for."""
    own: bool = False
    """Whether they are a user's tensors, which stay as they are."""


class _Unusable(StageError):
    """A processor that cannot be loaded or run here."""


def real(
    folder: Path,
    task: str,
    config: Any,
    wanted: Mapping[str, Port],
    sizes: Mapping[str, int],
    *,
    remote_code: bool = False,
    notice: Callable[[str], object] = print,
    dataset: Dataset | None = None,
) -> Source | None:
    """Samples for a graph from what lies beside its model, without inputs that no processor makes;
    None: nothing there makes any.

    Open axes get these sizes. A `dataset` takes the place of our material. `notice` takes
    a line about a processor that cannot be used here.
    Raises `StageError` if a processor belongs to another model.
    """
    shapes = {name: synthetic.shape(port, sizes) for name, port in wanted.items()}
    parts: list[Part] = []
    makers: dict[str, Part] = {}
    kinds: dict[str, str] = {}
    for kind, form, file in (
        (Words, TEXTS, _beside(folder, _TOKENIZERS)),
        (Pictures, IMAGES, _beside(folder, _PREPROCESSORS, *_OF_IMAGES)),
        (Recordings, SOUNDS, _beside(folder, _PREPROCESSORS, "sampling_rate")),
    ):
        if not file or not kind.takes(shapes):
            continue
        try:
            with failing(_Unusable, f"{file} cannot be used here"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = kind.load(folder, remote_code)
                own = dataset.rows if dataset and dataset.form == form else None
                plain = task.removesuffix("-with-past")
                part: Part = kind(loaded, plain, config, shapes, file, own)
                made = part.row(0)
                mine = [name for name in wanted if name in made and name not in makers]
                makers |= dict.fromkeys(mine, part)
                kinds |= dict.fromkeys(mine, KIND if own is None else DATASET)
        except _Unusable as error:
            notice(str(error.args[0]))
        else:
            parts.append(part)
    if not makers:
        return None
    origins = [part.origin for part in parts]
    batch = max((shapes[name][0] for name in makers if len(shapes[name]) >= _ITEMS.get(name, 9)),
                default=1)  # fmt: skip
    count = None
    if dataset is not None and DATASET in kinds.values():
        count, origins = len(dataset.rows) // batch, [dataset.name, *origins]
    sample = partial(_sample, parts, makers, wanted, shapes, batch)
    return Source(sample, kinds, " and ".join(dict.fromkeys(origins)), count)


def _beside(folder: Path, files: Sequence[str], *keys: str) -> str:
    """The first of these files that is there; with `keys`, the first that has one of them."""
    for name in files:
        with contextlib.suppress(OSError, ValueError):
            if not keys and (folder / name).is_file():
                return name
            found = read_json(folder / name) if keys else {}
            parts = [found, *found.values()] if isinstance(found, dict) else []
            if any(key in part for part in parts if isinstance(part, dict) for key in keys):
                return name
    return ""


def _sample(
    parts: list[Part],
    makers: Mapping[str, Part],
    wanted: Mapping[str, Port],
    shapes: Mapping[str, tuple[int, ...]],
    count: int,
    number: int,
) -> Sample:
    import numpy as np

    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in range(count):
            made = [(part, part.row(number * count + row)) for part in parts]
            rows.append({name: found[name] for part, found in made for name in found
                         if makers.get(name) is part})  # fmt: skip
    return {
        name: np.stack([row[name] for row in rows]).reshape(shapes[name]).astype(wanted[name].dtype)
        for name in makers
    }
