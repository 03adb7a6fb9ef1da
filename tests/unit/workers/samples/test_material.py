"""The material of samples: texts, pictures and sounds that resemble real ones, always the same."""

from __future__ import annotations

import hashlib
import unicodedata
from itertools import pairwise
from typing import Any

import numpy as np

from workers.samples.material import images, sounds, texts

COUNT = 120


def digest(arrays: list[Any]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for one in value for text in strings(one)]


def test_texts_have_many_scripts_and_lengths() -> None:
    kept = texts._load()
    single = kept["texts"]
    assert sum(map(len, kept.values())) >= 200
    assert len(set(single)) == len(single)
    lengths = [len(text.split()) for text in single]
    assert min(lengths) < 5
    assert max(lengths) > 150
    scripts = {
        unicodedata.name(letter).split()[0]
        for text in single
        for letter in text
        if letter.isalpha()
    }
    assert {
        "LATIN", "CYRILLIC", "GREEK", "HEBREW", "ARABIC", "DEVANAGARI", "THAI", "CJK", "HIRAGANA",
        "HANGUL", "BENGALI",
    } <= scripts  # fmt: skip
    for text in strings(list(kept.values())):
        assert text == text.strip() or text.endswith("\n")
        assert unicodedata.normalize("NFC", text) == text
        assert "\ufffd" not in text


def test_every_number_has_a_text_of_its_own() -> None:
    makers: list[Any] = [texts.single, texts.question, texts.caption, texts.target, texts.dialogue]
    for make in makers:
        assert len({str(make(number)) for number in range(COUNT)}) == COUNT
    assert len({str(texts.pair(number)) for number in range(COUNT)}) >= COUNT // 2
    assert len(texts.single(5, 3000)) >= 3000
    assert [one["role"] for one in texts.dialogue(1)] in (["user"], ["user", "assistant", "user"])


def test_pictures_are_the_same_everywhere() -> None:
    assert digest([images.picture(number) for number in range(10)]) == "b168dcaadfafdfc7"
    assert digest([images.scene(3, 700, 500)]) == "4fd6811086a5258a"


def test_sounds_are_the_same_everywhere() -> None:
    assert digest([sounds.wave(number, 20000) for number in range(10)]) == "59cca650bde796b3"


def test_pictures_differ_in_content_and_aspect() -> None:
    made = [images.picture(number) for number in range(COUNT)]
    assert len({digest([one]) for one in made}) == COUNT
    assert len({one.shape for one in made}) >= 10
    assert all(one.dtype == np.uint8 and one.shape[2] == 3 for one in made)
    assert np.mean([one.min() for one in made]) < 3
    assert np.mean([one.max() for one in made]) > 252
    means = [one.mean() for one in made]
    assert min(means) < 80
    assert max(means) > 160


def test_pictures_have_the_spectrum_of_photographs() -> None:
    """The power falls with about the square of the frequency."""
    slopes = []
    for number in range(40):
        grey = images.scene(number, 256, 256).mean(-1)
        window = np.hanning(256)[:, None] * np.hanning(256)
        power = np.abs(np.fft.fft2((grey - grey.mean()) * window)) ** 2
        frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
        edges = np.geomspace(0.02, 0.4, 9)
        bands = [power[(frequency >= low) & (frequency < high)].mean()
                 for low, high in pairwise(edges)]  # fmt: skip
        slopes.append(np.polyfit(np.log(edges[:-1]), np.log(bands), 1)[0])
    assert -3.2 < np.median(slopes) < -1.6
    assert max(slopes) < -0.8  # noise has 0


def test_a_large_scene_is_the_small_one_enlarged() -> None:
    small, large = images.scene(3, 300, 384), images.scene(3, 600, 768)
    assert np.abs(large[::2, ::2].astype(int) - small).mean() < 6


def test_a_line_of_text_has_ink_for_every_letter() -> None:
    line = images.text_line("Exit 12", 20)
    assert line.shape[0] == 20
    assert 0.05 < line.mean() < 0.5
    assert (
        len({images.text_line(one, 24).tobytes() for one in "abcdefgABCDEFG0123456789.,:-?!"}) == 30
    )
    assert not images.text_line(" ", 24).any()


def test_sounds_are_loud_and_soft_and_have_pauses() -> None:
    made = [sounds.sound(number).astype(float) for number in range(40)]
    assert len({one.size for one in made}) == len(sounds.SECONDS)
    levels = [20 * np.log10(one.std() / 32768) for one in made]
    assert max(levels) - min(levels) > 15
    quiet = 0
    for one in made:
        parts = one[: one.size // 800 * 800].reshape(-1, 800).std(1)
        quiet += bool((parts < parts.max() / 10).mean() > 0.08)
    assert quiet > 15
    assert all(np.abs(one).max() <= 32767 for one in made)
