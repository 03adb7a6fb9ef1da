"""Sounds: voices of eSpeak NG, one recorded conversation, plucked and sung notes, noise.

All are arrays of float32 in -1 to 1.
"""

from __future__ import annotations

import ctypes
import sys
import wave
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.truth.packages import Missing, cache_folder, fetched

Array = np.ndarray[Any, Any]
RATE = 16000
SYNCHRONOUS, UTF8, SPEED, PITCH = 2, 1, 1, 3
"""Constants of eSpeak NG."""


class Voice:
    """The library eSpeak NG in this process."""

    def __init__(self, folder: Path) -> None:
        name = {"win32": "espeak-ng.dll", "darwin": "libespeak-ng.dylib"}
        self.library = ctypes.CDLL(str(folder / name.get(sys.platform, "libespeak-ng.so")))
        data = str(folder / "espeak-ng-data").encode()
        self.rate = self.library.espeak_Initialize(SYNCHRONOUS, 0, data, 0)
        if self.rate < 0:
            raise Missing("eSpeak NG does not start")
        self.pieces: list[Array] = []
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )
        self.callback = kind(self._take)
        self.library.espeak_SetSynthCallback(self.callback)

    def _take(self, samples: Any, count: int, _events: Any) -> int:
        if samples and count > 0:
            self.pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def say(self, text: str, voice: str, speed: int, pitch: int) -> Array:
        """One utterance at 16 kHz."""
        self.pieces.clear()
        if self.library.espeak_SetVoiceByName(voice.encode()):
            raise Missing(f"eSpeak NG has no voice {voice}")
        self.library.espeak_SetParameter(SPEED, speed, 0)
        self.library.espeak_SetParameter(PITCH, pitch, 0)
        encoded = text.encode()
        self.library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, UTF8, None, None)
        self.library.espeak_Synchronize()
        found = np.concatenate(self.pieces).astype(np.float32) / 32768
        return resampled(found, self.rate, RATE)


@cache
def _voice() -> Voice:
    return Voice(fetched("espeakng-loader") / "espeakng_loader")


def say(text: str, voice: str = "en-us", speed: int = 160, pitch: int = 50) -> Array:
    """A sentence that one of eSpeak NG's voices says. It never says it twice in the same way, so
    the first time is kept: a dataset must be the same in every run."""
    digest = sha256(f"{voice} {speed} {pitch} {text}".encode()).hexdigest()[:32]
    file = cache_folder() / "said" / f"{digest}.npy"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, _voice().say(text, voice, speed, pitch))
    return np.asarray(np.load(file))


def conversation() -> tuple[Array, list[tuple[float, float]]]:
    """A recorded telephone call of half a minute, and when somebody speaks, in seconds."""
    folder = fetched("pyannote.audio") / "pyannote" / "audio" / "sample"
    with wave.open(str(folder / "sample.wav")) as recording:
        frames = recording.readframes(recording.getnframes())
    rows = [row.split() for row in (folder / "sample.rttm").read_text("utf-8").splitlines()]
    spoken = [(float(row[3]), float(row[3]) + float(row[4])) for row in rows]
    return np.frombuffer(frames, np.int16).astype(np.float32) / 32768, spoken


def resampled(sound: Array, rate: int, wanted: int) -> Array:
    """At another rate, by Fourier transform."""
    if rate == wanted:
        return sound
    from scipy.signal import resample_poly

    common = int(np.gcd(rate, wanted))
    return np.asarray(resample_poly(sound, wanted // common, rate // common), np.float32)


def noise(length: int, random: np.random.Generator) -> Array:
    """Pink noise with a deviation of 1, as of traffic or of a fan."""
    spectrum = np.fft.rfft(random.normal(size=length))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    found = np.fft.irfft(spectrum, length)
    return np.asarray(found / found.std(), np.float32)


def mixed(sound: Array, random: np.random.Generator, decibels: float) -> Array:
    """A sound with noise below it by so many decibels."""
    level = float(np.sqrt(np.mean(sound**2))) * 10 ** (-decibels / 20)
    found = sound + level * noise(len(sound), random)
    return np.asarray(found * min(1.0, 0.9 / np.abs(found).max()), np.float32)


def plucked(key: int, seconds: float, rate: int, loudness: float) -> Array:
    """A string: harmonics that die away, the high ones first. `key` is a MIDI number."""
    time = np.arange(int(seconds * rate)) / rate
    pitch = 440 * 2 ** ((key - 69) / 12)
    found = np.zeros_like(time)
    for number in range(1, 13):
        if number * pitch < rate / 2:
            found += (
                np.sin(2 * np.pi * number * pitch * time) * np.exp(-time * (1.5 + number)) / number
            )
    rise = np.minimum(1, time / 0.005)
    return np.asarray(loudness * rise * found, np.float32)


def sung(pitches: Array, rate: int, random: np.random.Generator) -> Array:
    """A voice on a vowel along a line of pitches in Hz, one for each sample."""
    phase = 2 * np.pi * np.cumsum(pitches) / rate
    formants = (float(random.uniform(400, 900)), float(random.uniform(1000, 2400)))
    found = np.zeros(len(pitches))
    for number in range(1, 25):
        frequency = number * pitches
        gain = sum(np.exp(-(((frequency - formant) / 350) ** 2)) for formant in formants) + 0.05
        found += np.where(frequency < rate / 2, gain / number**0.5, 0) * np.sin(number * phase)
    return np.asarray(0.5 * found / np.abs(found).max(), np.float32)
