"""Sounds at 16 kHz: speech-like, music-like, noise and near silence, as 16-bit numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

RATE = 16000
SECONDS = (1.5, 4.0, 0.7, 8.0, 2.5, 12.0, 3.2, 5.5)
"""Lengths of sounds, in turn."""
_VOWELS = (
    (730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410),
    (660, 1720, 2410), (440, 1020, 2240), (490, 1350, 1690),
)  # fmt: skip
"""Resonances of a vocal tract in hertz."""
_WIDTHS = (80, 110, 170)
_PAUSE = 0.22
"""Share of a speaker's time that is silent."""


def sound(number: int) -> Any:
    """The sound of this number in a length of its own."""
    return wave(number, round(SECONDS[number % len(SECONDS)] * RATE))


def wave(number: int, length: int) -> Any:
    """The sound of this number with so many values; half of them are speech-like."""
    import numpy as np

    random = np.random.default_rng([16, number])
    make = (_speech, _speech, _music, _speech, _noise)[number % 5]
    found = make(random, length)
    room = random.normal(0, 1, length) * 10 ** random.uniform(-4.5, -2.5)
    loud = 10 ** random.uniform(-1.2, -0.1)
    found = found / max(float(np.abs(found).max(initial=0)), 1e-9) * loud + room
    return np.round(np.clip(found, -1, 1) * 32767).astype(np.int16)


def _speech(random: Any, length: int) -> Any:
    """Pulses of a voice through resonances that move from vowel to vowel; hisses and pauses."""
    import numpy as np

    pitch = random.uniform(85, 260)
    tract = random.uniform(0.9, 1.2)
    found = np.zeros(length)
    start = int(random.uniform(0, 0.1) * RATE)
    while start < length:
        count = min(int(random.uniform(0.09, 0.28) * RATE), length - start)
        kind = random.random()
        if kind < _PAUSE:
            start += count
            continue
        part = _hiss(random, count) if kind < 0.42 else _vowel(random, count, pitch, tract)
        found[start : start + count] += part * np.hanning(count + 2)[1:-1]
        start += int(count * random.uniform(0.75, 1))
    return found


def _vowel(random: Any, count: int, pitch: float, tract: float) -> Any:
    """Harmonics of the pitch, as loud as two vowels in turn let them through."""
    import numpy as np

    time = np.arange(count) / RATE
    share = np.linspace(0, 1, count)
    glide = pitch * (1 + random.uniform(-0.15, 0.15) * share + random.uniform(-0.08, 0.08))
    first, second = (_VOWELS[random.integers(len(_VOWELS))] for _ in range(2))
    frequencies = pitch * np.arange(1, int(4000 / pitch) + 1)
    begin, end = (
        sum(
            _gain(frequencies, one * tract, width)
            for one, width in zip(vowel, _WIDTHS, strict=True)
        )
        / np.arange(1, frequencies.size + 1) ** 0.8
        for vowel in (first, second)
    )
    found = np.zeros(count)
    for wave, from_, to in zip(_harmonics(glide), begin, end, strict=False):
        found += (from_ + (to - from_) * share) * wave
    return found * (1 + 0.1 * np.sin(2 * np.pi * random.uniform(3, 7) * time))


def _harmonics(frequency: Any) -> Iterator[Any]:
    """sin(k x) for k = 1, 2, ... by its recurrence, where x turns with this frequency."""
    import numpy as np

    phase = 2 * np.pi * np.cumsum(frequency) / RATE
    twice, before, wave = 2 * np.cos(phase), np.zeros(phase.shape), np.sin(phase)
    while True:
        yield wave
        before, wave = wave, twice * wave - before


def _gain(frequency: Any, center: float, width: float) -> Any:
    return 1 / (1 + ((frequency - center) / width) ** 2) + 0.01


def _hiss(random: Any, count: int) -> Any:
    """A consonant: noise of a band, or a burst."""
    import numpy as np

    found = _band(random, count, random.uniform(1500, 5000), 7500)
    if random.random() < 0.4:
        found *= np.exp(-np.arange(count) / (0.015 * RATE))
    return found * random.uniform(0.1, 0.5)


def _band(random: Any, count: int, low: float, high: float) -> Any:
    import numpy as np

    spectrum = np.fft.rfft(random.normal(size=max(count, 2)))
    frequency = np.fft.rfftfreq(max(count, 2), 1 / RATE)
    spectrum[(frequency < low) | (frequency > high)] = 0
    found = np.fft.irfft(spectrum, max(count, 2))[:count]
    return found / max(float(np.abs(found).max(initial=0)), 1e-9)


def _music(random: Any, length: int) -> Any:
    """Chords and a melody over a beat."""
    import numpy as np

    found = np.zeros(length)
    beat = int(60 / random.uniform(70, 150) * RATE)
    base = 110 * 2 ** (random.integers(12) / 12)
    scale = (0, 2, 4, 5, 7, 9, 11, 12)
    for number, start in enumerate(range(0, length, beat)):
        notes = [scale[random.integers(8)] + 12]
        if number % 4 == 0:
            root = scale[random.integers(6)]
            notes += [root, root + 4, root + 7]
        for note in notes:
            count = min(int(beat * random.choice([1, 2, 4])), length - start)
            time = np.arange(count) / RATE
            waves = _harmonics(np.full(count, base * 2 ** (note / 12)))
            tone = sum(
                wave / harmonic**1.3 for wave, harmonic in zip(waves, range(1, 7), strict=False)
            )
            found[start : start + count] += tone * np.exp(-2.5 * time) * np.minimum(time * 200, 1)
        count = min(int(0.12 * RATE), length - start)
        drum = _band(random, count, *((40, 150) if number % 2 else (2000, 7000)))
        found[start : start + count] += drum * np.exp(-np.arange(count) / (0.03 * RATE))
    return found


def _noise(random: Any, length: int) -> Any:
    """Wind, rain or traffic, now louder and now softer."""
    import numpy as np

    low = random.uniform(20, 2000)
    found = _band(random, length, low, low * random.uniform(2, 8))
    swell = np.interp(np.arange(length), np.linspace(0, length, 8), random.uniform(0, 1, 8))
    return found * swell
