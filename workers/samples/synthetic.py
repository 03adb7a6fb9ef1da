"""Synthetic samples: what the inputs of a graph take where nothing real exists.

Values are as close to real ones as a name allows. Samples with an even number fill their inputs;
in the others masks hide a part, of another length each time. Pixels are rendered scenes in the
range of the usual normalizations, waves are rendered sounds, tokens are as frequent as in texts,
and what depends on something else (padding, ends of texts, lengths, sizes of images) follows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from workers.samples import signals, values
from workers.samples.values import Asked, filled, told
from workers.session import Port
from workers.sources.errors import quantize_error

USUAL = {
    "batch_size": 1, "sequence_length": 128, "decoder_sequence_length": 12, "num_choices": 4,
    "feature_size": 80, "num_channels": 3, "height": 224, "width": 224, "num_frames": 8,
    "audio_sequence_length": 16000, "nb_max_frames": 3000,
}  # fmt: skip
"""Sizes of axes that neither the graph nor the request gives."""
_AXES = {
    1: ("batch_size",),
    2: ("batch_size", "sequence_length"),
    3: ("batch_size", "sequence_length", "feature_size"),
    4: ("batch_size", "num_channels", "height", "width"),
    5: ("batch_size", "num_frames", "num_channels", "height", "width"),
}
"""The most likely meaning of the open axes of an input, by its rank."""
_SIZES = ("im_shape", "img_shape", "image_shape", "orig_im_size", "orig_size", "original_sizes",
          "orig_target_sizes", "target_sizes", "image_sizes")  # fmt: skip
_LENGTHS = ("length", "lengths", "len", "lens", "input_lengths", "x_lengths", "text_lengths",
            "audio_lengths", "audio_signal_length", "feats_length", "speech_lengths")  # fmt: skip
Sample = dict[str, Any]


def sample(
    wanted: Mapping[str, Port],
    sizes: Mapping[str, int],
    config: Any,
    number: int,
    given: Mapping[str, Any] | None = None,
) -> Sample:
    """The sample of this number for a graph.

    `given`: arrays of the model's own generator, which knows the shapes, and the values of inputs
    whose names mean nothing here.
    """
    made: Sample = {}
    for name, port in wanted.items():
        found = None if given is None else given.get(name)
        if found is None:
            made[name] = value(name, shape(port, sizes), port.dtype, config, number)
            continue
        floats = port.dtype.startswith("float")
        known = by_name(name, found.ndim, floats=floats) is not None
        own = value(name, found.shape, port.dtype, config, number) if known else found
        made[name] = own.astype(port.dtype, copy=False)
    return _related(made, config, number, given or {})


def value(name: str, size: tuple[int, ...], dtype: str, config: Any, number: int) -> Any:
    """Values of one input."""
    import numpy as np

    kind = np.dtype(dtype)
    if kind.kind not in "fiub":
        raise quantize_error(
            f"the input '{name}' takes {dtype}, for which no values can be made",
            "give the catalog entry a dataset",
        )
    asked = Asked(name, tuple(size), kind, config, number)
    make = by_name(name, len(size), floats=asked.floats) or by_shape
    found = np.asarray(make(asked)).astype(kind)
    return _text(found, None, config, name) if _is_text(name, found) else found


def shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input whose open axes get these sizes."""
    known = {**USUAL, **sizes}
    words = _AXES.get(len(port.shape), ("batch_size",))
    found = []
    for place, size in enumerate(port.shape):
        if isinstance(size, int) and size > 0:
            found.append(size)
        elif isinstance(size, str) and size in known:
            found.append(known[size])
        else:
            found.append(known[words[place]] if place < len(words) else 1)
    return tuple(found)


def _related(made: Sample, config: Any, number: int, given: Mapping[str, Any]) -> Sample:
    """The sample with what follows from other inputs."""
    after_cache = any("key_values" in name for name in made)
    for name, array in made.items():
        if after_cache and name.endswith("attention_mask") and array.ndim == 2:
            made[name] = array[:, ::-1].copy()  # new tokens come last: padding is before the text
        mask = made.get(name.removesuffix("input_ids") + "attention_mask")
        if _is_text(name, array) and mask is not None and mask.shape == array.shape:
            made[name] = _text(array, mask > 0, config, name)
    if (token := told(config, "image_token_id", "image_token_index")) is not None:
        _show_images(made, given, token)
    _measure(made, number)
    return made


def _show_images(made: Sample, given: Mapping[str, Any], token: int) -> None:
    """Put the tokens of images where the model's own generator has them."""
    import numpy as np

    for name in (one for one in made if one in given and one.endswith("input_ids")):
        image = given[name] == token
        array = made[name]
        array[array == token] = token - 1 if token else 1
        array[image] = token
        if "attention_mask" in made and image.any():
            made["attention_mask"][..., : int(np.nonzero(image)[-1].max()) + 4] = 1


def _measure(made: Sample, number: int) -> None:
    """The lengths of texts and sounds, and the sizes of images, where they are inputs."""
    pictures = [one for one in made.values() if signals.is_picture(one.shape)]
    rows = [one for name, one in made.items() if one.ndim >= 2 and name.casefold() not in _SIZES]
    for name, array in made.items():
        plain = name.casefold()
        if plain in _SIZES and pictures and array.size % 2 == 0:
            array.reshape(-1, 2)[:] = signals.sides(pictures[0].shape)
        elif plain in _LENGTHS and rows and array.dtype.kind in "iu":
            array[...] = filled(number, max(rows[0].shape[1:]))


def _is_text(name: str, array: Any) -> bool:
    return name.endswith("input_ids") and array.dtype.kind in "iu" and array.ndim >= 2


def _text(ids: Any, keep: Any, config: Any, name: str) -> Any:
    """Tokens with padding where a mask hides them, and an end where a classifier looks for it."""
    import numpy as np

    size = told(config, "vocab_size") or 0
    end, pad = told(config, "eos_token_id"), told(config, "pad_token_id")
    ids = ids.copy()
    if end is not None and 0 <= end < size and _looks_for_end(config):
        ids[ids == end] = size - 1 if end != size - 1 else max(end - 1, 0)
        last = ids.shape[-1] - 1 if keep is None else np.maximum(keep.sum(-1) - 1, 0)
        np.put_along_axis(ids, np.broadcast_to(last, ids.shape[:-1])[..., None], end, -1)
    start = told(config, "decoder_start_token_id", "bos_token_id")
    if name.startswith("decoder") and start is not None and 0 <= start < size:
        ids[..., 0] = start
    if pad is None or not 0 <= pad < max(size, 1):
        pad = 0
    if pad == end:
        pad = 0 if end else 1
    return ids if keep is None else np.where(keep, ids, pad).astype(ids.dtype)


def _looks_for_end(config: Any) -> bool:
    return bool(getattr(config, "is_encoder_decoder", False)) or hasattr(config, "text_config")


Make = Callable[[Asked], Any]


def by_name(name: str, rank: int, *, floats: bool) -> Make | None:
    """What makes values for an input of this name; None: its name says nothing."""
    plain = name.rpartition("/")[2].rpartition(".")[2] if "key_values" not in name else name
    for pattern, make, takes_floats, least in _RULES:
        fits = rank >= least and takes_floats in {None, floats}
        if fits and re.search(pattern, plain.casefold()):
            return make
    return None


def by_shape(asked: Asked) -> Any:
    """Values for an input whose name says nothing."""
    import numpy as np

    if asked.kind.kind == "b":
        return values.mask(asked)
    if signals.is_picture(asked.shape) and (asked.floats or asked.kind == np.uint8):
        return values.pixels(asked)
    if not asked.floats:
        return values.tokens(asked)
    if len(asked.shape) >= 2 and asked.width >= 4000:
        return values.wave(asked)
    if len(asked.shape) == 3 and {40, 64, 80, 128} & set(asked.shape[1:]) and asked.shape[1] >= 32:
        return values.mel(asked)
    return values.normal(asked)


_RULES: tuple[tuple[str, Make, bool | None, int], ...] = (
    # pattern of the name, what makes it, whether it takes floats (None: either), its least rank
    ("global_attention_mask$", values.first, None, 1),
    ("pixel_mask$", values.pixel_mask, None, 2),
    ("bool_masked_pos$|^mask$", values.region, None, 3),
    ("(^|_)bool_masked_pos$", values.region, None, 2),
    ("head_mask$", values.ones, None, 0),
    ("mask$", values.mask, None, 1),
    ("token_type|segment", values.types, False, 1),
    ("^langs$", values.languages, False, 1),
    ("timesteps$", values.count, None, 2),
    ("timesteps?$", values.time, None, 0),
    ("position_ids$|cache_position$|^positions?$", values.count, False, 1),
    ("bbox$|boxes$|visual_pos$", values.boxes, None, 2),
    ("input_points$|point_coords$", values.points, True, 2),
    ("input_labels$|point_labels$", values.marks, None, 1),
    ("^sr$|sampl(e|ing)_rate$", values.rate, None, 0),
    ("audio_codes$", values.codes, False, 2),
    ("^sid$|speaker_?id$", values.zeros, False, 0),
    ("(_ids|^ids|tokens|task_inputs|labels)$", values.tokens, False, 1),
    ("flattened_patches$", values.patches, True, 3),
    ("key_values|hidden|embed|latent|visual_feats|image_features", values.normal, True, 1),
    ("(past|future)_values$", values.series, True, 2),
    ("time_features$", values.moments, True, 3),
    ("returns_to_go$", values.returns, True, 2),
    ("actions?$", values.actions, True, 2),
    ("^states$|^obs", values.states, True, 2),
    ("state$|^[hc]_?[0n]?$|cache$|memory$", values.recurrent, True, 2),
    ("depth$", values.depth, True, 3),
    ("^noise$", values.even, True, 2),
    ("noise_sequence$", values.normal, True, 2),
    ("^(scales?|speed|temperature|scale_factor)$", values.near_one, True, 0),
    ("input_values$|audio|^wav|speech|signal$|^pcm", values.sound, True, 2),
    ("input_features$|mel|fbank|spectrogram|^feats?$", values.mel, True, 3),
    ("pixel|image|img|frames?$|video|picture", values.pixels, None, 3),
)  # fmt: skip
