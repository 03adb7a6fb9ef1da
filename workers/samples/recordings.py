"""Sounds: the model's own feature extractor on rendered sounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.samples import datasets
from workers.samples.material import sounds
from workers.samples.values import filled, told
from workers.sources.errors import export_error

_SOUNDS = ("input_values", "input_features")
_STEP = 1 / 4096
"""Features are rounded: the last bits of a logarithm differ between processors."""
_PROBE = 1.0
_USUAL = 0.01
"""Seconds between two moments of an extractor that pads every sound to one length."""
_SHORTEST = 1024
"""Values of a sound, at least: some windows of an extractor."""
Row = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


class Recordings:
    """The inputs that are sounds."""

    origin = "the model's feature extractor on rendered sounds"

    @staticmethod
    def takes(shapes: Shapes) -> bool:
        """Whether a graph hears sounds."""
        return any(name in shapes for name in _SOUNDS)

    @staticmethod
    def load(folder: Path, remote_code: bool) -> Any:
        """The feature extractor beside a model."""
        from transformers import AutoFeatureExtractor

        return AutoFeatureExtractor.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=remote_code
        )

    def __init__(
        self,
        extractor: Any,
        _task: str,
        config: Any,
        shapes: Shapes,
        file: str,
        given: Sequence[Path] | None,
    ) -> None:
        self._extractor, self._shapes, self._file, self._given = extractor, shapes, file, given
        self._rate = int(extractor.sampling_rate)
        self._name = next(name for name in _SOUNDS if name in shapes)
        rate = told(config, "sampling_rate")
        if rate and rate != self._rate:
            raise self._of_another(f"sounds of {self._rate} Hz", f"{rate} Hz")
        if hasattr(extractor, "_np_extract_fbank_features"):
            # With torch the features depend on the processor of the machine in more bits.
            extractor._torch_extract_fbank_features = lambda wave, *_device: (
                extractor._np_extract_fbank_features(wave, "cpu")
            )

        self._time, self._seconds = self._plan()

    def row(self, number: int) -> Row:
        """The inputs of the sound of this number; every other one fills its input."""
        import numpy as np

        shape = self._shapes[self._name][1:]
        if self._given:
            file = self._given[number % len(self._given)]
            found = self._extracted(datasets.sound(file, self._rate, self._seconds))
        else:
            found = self._heard(number, filled(number, round(self._seconds * 1000)) / 1000)
        made = np.asarray(found[self._name], np.float32)[0]
        made = made.reshape((*[1] * (len(shape) - made.ndim), *made.shape))
        time = self._time
        if [*made.shape[:time], *made.shape[time + 1 :]] != [*shape[:time], *shape[time + 1 :]]:
            own, theirs = (" x ".join(map(str, one)) for one in (made.shape, shape))
            raise self._of_another(f"{own} values of a sound", theirs)
        padding = float(getattr(self._extractor, "padding_value", 0.0))
        full = _fitted(made, time, shape[time], padding)
        if len(shape) > 1:
            full = np.round(full / _STEP) * _STEP
        mask = found.get("attention_mask", np.ones((1, made.shape[time])))[0]
        masks = {"attention_mask": _fitted(mask, 0, shape[time], 0)}
        return {self._name: full, **{name: one for name, one in masks.items()
                                     if name in self._shapes}}  # fmt: skip

    def _plan(self) -> tuple[int, float]:
        """The axis of time of one item, and the seconds of a sound that fills it."""
        shape = self._shapes[self._name][1:]
        short, long = (self._heard(0, one)[self._name].shape for one in (_PROBE, 2 * _PROBE))
        grown = [after - before for before, after in zip(short, long, strict=True)]
        if any(grown):
            time = grown.index(max(grown)) - len(grown) + len(shape)
            return time, shape[time] * _PROBE / max(grown)
        time = max(range(len(shape)), key=shape.__getitem__)  # the extractor has one length
        return time, shape[time] * _USUAL

    def _heard(self, number: int, seconds: float) -> Any:
        """What the extractor makes of one of our sounds."""
        import numpy as np

        np.random.seed(number)  # some cut what is too long at random
        length = max(round(seconds * self._rate), _SHORTEST)
        wave = sounds.wave(number, round(length * sounds.RATE / self._rate)) / 32768
        if self._rate != sounds.RATE:
            places = np.arange(length) * sounds.RATE / self._rate
            wave = np.interp(places, np.arange(wave.size), wave)
        return self._extracted(wave.astype(np.float32))

    def _extracted(self, wave: Any) -> Any:
        return self._extractor(
            wave,
            sampling_rate=self._rate,
            return_tensors="np",
            **({"return_attention_mask": True} if "attention_mask" in self._shapes else {}),
        )

    def _of_another(self, made: str, taken: str) -> Exception:
        return export_error(
            f"{self._file} makes {made}, but the model takes {taken}",
            "put the feature extractor of this model beside it, or delete the one that is there",
        )


def _fitted(made: Any, axis: int, size: int, padding: float) -> Any:
    """Cut or padded along an axis."""
    import numpy as np

    missing = [(0, max(size - made.shape[axis], 0) if one == axis else 0)
               for one in range(made.ndim)]  # fmt: skip
    return np.pad(made, missing, constant_values=padding).take(range(size), axis)
