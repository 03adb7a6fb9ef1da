"""A user's images and sounds for a graph that has no processor beside it, as the catalog states.

images   stretched to the size that the graph takes, values from 0 to 1 (from 0 to 255 for
         inputs of bytes), less `mean`, divided by `std`, in the order of `channels`
sounds   one channel at `rate`, from the beginning, silence at the end
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workers.samples import signals
from workers.samples.datasets import IMAGES, SOUNDS, Dataset
from workers.samples.processors import DATASET, Real
from workers.samples.recorded import picture, sound
from workers.session import Port

RATE = 16000


def real(dataset: Dataset, wanted: Mapping[str, Port]) -> Real | None:
    """The samples of a dataset, for the one input that takes them; None: no single one does."""
    takes = {IMAGES: _is_image, SOUNDS: _is_sound}.get(dataset.form)
    names = [name for name, port in wanted.items() if takes and takes(port)]
    if len(names) != 1:
        return None
    port = wanted[names[0]]
    make = partial(_image if dataset.form == IMAGES else _sound, dataset.stated, port)
    sample = partial(_sample, make, dataset.rows, port)
    return Real({port.name: DATASET}, dataset.name, len(dataset.rows) // _shape(port)[0], sample)


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
