"""What makes values for an input: its name, or its type and rank where the name says nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from workers.samples import quantities, signals, values
from workers.samples.values import Asked

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
        return quantities.pixels(asked)
    if not asked.floats:
        return values.tokens(asked)
    if len(asked.shape) >= 2 and asked.width >= 4000:
        return quantities.wave(asked)
    if len(asked.shape) == 3 and {40, 64, 80, 128} & set(asked.shape[1:]) and asked.shape[1] >= 32:
        return quantities.mel(asked)
    return quantities.normal(asked)


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
    ("timesteps?$", quantities.time, None, 0),
    ("position_ids$|cache_position$|^positions?$", values.count, False, 1),
    ("bbox$|boxes$|visual_pos$", quantities.boxes, None, 2),
    ("input_points$|point_coords$", quantities.points, True, 2),
    ("input_labels$|point_labels$", quantities.marks, None, 1),
    ("^sr$|sampl(e|ing)_rate$", quantities.rate, None, 0),
    ("audio_codes$", values.codes, False, 2),
    ("^sid$|speaker_?id$", values.zeros, False, 0),
    ("(_ids|^ids|tokens|task_inputs|labels)$", values.tokens, False, 1),
    ("flattened_patches$", quantities.patches, True, 3),
    ("key_values|hidden|embed|latent|visual_feats|image_features", quantities.normal, True, 1),
    ("(past|future)_values$", quantities.series, True, 2),
    ("time_features$", quantities.moments, True, 3),
    ("returns_to_go$", quantities.returns, True, 2),
    ("actions?$", quantities.actions, True, 2),
    ("^states$|^obs", quantities.states, True, 2),
    ("state$|^[hc]_?[0n]?$|cache$|memory$", quantities.recurrent, True, 2),
    ("depth$", quantities.depth, True, 3),
    ("^noise$", quantities.even, True, 2),
    ("noise_sequence$", quantities.normal, True, 2),
    ("^(scales?|speed|temperature|scale_factor)$", quantities.near_one, True, 0),
    ("input_values$|audio|^wav|speech|signal$|^pcm", quantities.sound, True, 2),
    ("input_features$|mel|fbank|spectrogram|^feats?$", quantities.mel, True, 3),
    ("pixel|image|img|frames?$|video|picture", quantities.pixels, None, 3),
)  # fmt: skip
