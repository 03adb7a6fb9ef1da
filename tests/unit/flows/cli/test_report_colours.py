"""The colours of the report can be read by everybody, in light and in dark, on the cells."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

import pytest

from flows.output.meanings import Tone

Rgb = tuple[float, float, float]

CSS = files("flows.report").joinpath("assets", "report.css").read_text("utf-8")
SCREEN, _, PAPER = CSS.partition("@media print")
# Machado, Oliveira, Fernandes (2009), full severity, in linear RGB.
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r"(:root[^{]*)\{(.*?)\}", SCREEN, re.DOTALL)
    found = {}
    for selector, body in blocks:
        if "," in selector:  # on paper, light and dark are one
            continue
        name = {":root": "light", ":root[data-theme": "dark"}.get(
            selector.strip().split("=")[0], "dark by system"
        )
        found[name] = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})\b", body))
    return found


def linear(colour: str) -> Rgb:
    def channel(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (channel(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return red, green, blue


def luminance(colour: Rgb) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(linear(one)), luminance(linear(other))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def seen(colour: str, vision: str) -> Rgb:
    rgb = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, rgb, strict=True))))
        for row in VISION[vision]
    )
    return red, green, blue


def lab(colour: Rgb) -> Rgb:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = luminance(colour)
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089

    def f(t: float) -> float:
        return t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116

    return 116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))


def distance(one: str, other: str, vision: str) -> float:
    first, second = lab(seen(one, vision)), lab(seen(other, vision))
    return float(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5)


def test_on_paper_failures_are_the_darkest_and_can_be_read() -> None:
    body = re.search(r":root.*?\{(.*?)\}", PAPER, re.DOTALL)
    assert body
    colours = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})\b", body[1]))
    assert colours.keys() >= themes()["light"].keys() - {"focus", "hover"}
    shades = {tone: luminance(linear(colours[f"{tone}-bg"])) for tone in Tone}
    assert min(shades, key=shades.__getitem__) is Tone.BAD
    for tone in Tone:
        assert contrast(colours[f"{tone}-bg"], colours[f"{tone}-fg"]) > 4.5


def test_dark_is_the_same_whether_chosen_or_asked_for_by_the_system() -> None:
    found = themes()
    assert set(found) == {"light", "dark", "dark by system"}
    assert found["dark"] == found["dark by system"]
    assert set(found["dark"]) == set(found["light"])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tone", list(Tone))
def test_the_word_on_a_cell_can_be_read(theme: str, tone: Tone) -> None:
    colours = themes()[theme]
    assert contrast(colours[f"{tone}-bg"], colours[f"{tone}-fg"]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_other_text_can_be_read(theme: str) -> None:
    colours = themes()[theme]
    for text in ("ink", "dim", "accent"):
        for ground in ("page", "card", "hover"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["focus"], colours["card"]) >= 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("vision", list(VISION))
def test_failures_stand_out_for_every_kind_of_vision(theme: str, vision: str) -> None:
    colours = themes()[theme]
    for tone in (Tone.GOOD, Tone.SAME, Tone.BUSY, Tone.IDLE):
        for alarm in (Tone.BAD, Tone.WARN):
            apart = distance(colours[f"{alarm}-bg"], colours[f"{tone}-bg"], vision)
            assert apart >= 20, (alarm, tone, apart)
    for one, other in combinations((Tone.GOOD, Tone.WARN, Tone.BAD), 2):
        apart = distance(colours[f"{one}-bar"], colours[f"{other}-bar"], vision)
        assert apart >= 20, (one, other, apart)
