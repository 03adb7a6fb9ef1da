"""Texts of our own: by number, mixed in kind, language and length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

_STRIDE = 37
"""Neighbours differ in kind and language; no list has a multiple of it as its length."""
_SUBJECTS = ("travel", "sport", "food", "science", "politics", "music", "health", "work")


@cache
def _load() -> dict[str, Any]:
    file = Path(__file__).with_suffix(".json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _of(kind: str, number: int) -> Any:
    items: Sequence[Any] = _load()[kind]
    return items[number * _STRIDE % len(items)]


def _before(kind: str, number: int) -> str:
    """Other texts to put before one of a list that has been used up."""
    return "".join(
        _of("texts", number + 11 * further) + " "
        for further in range(1, number // len(_load()[kind]) + 1)
    )


def _lengthened(text: str, number: int, least: int) -> str:
    """At least so many letters, with further texts behind."""
    further = 0
    while len(text) < least:
        further += 5
        text += " " + _of("texts", number + further)
    return text


def single(number: int, least: int = 0) -> str:
    """A text."""
    return _lengthened(_before("texts", number) + _of("texts", number), number, least)


def pair(number: int, least: int = 0) -> tuple[str, str]:
    """Two sentences, with the same, a related or another meaning."""
    first, second = _of("pairs", number // 2)
    return _before("pairs", number // 2) + first, _lengthened(second, number, least)


def hypothesis(number: int) -> str:
    """What a text may be about, for a model that judges whether it follows."""
    return f"This text is about {_SUBJECTS[number % len(_SUBJECTS)]}."


def question(number: int, least: int = 0) -> tuple[str, str]:
    """A question, and a text that holds its answer."""
    asked, context = _of("questions", number)
    return asked, _lengthened(_before("questions", number) + context, number, least)


def choice(number: int) -> tuple[str, Sequence[str]]:
    """A beginning, and ends of which one fits."""
    start, ends = _of("choices", number)
    return _before("choices", number) + start, ends


def caption(number: int) -> str:
    """What a picture shows."""
    text = str(_of("captions", number))
    further = number // len(_load()["captions"])
    return f"{_of('captions', number + further)}, {text}" if further else text


def target(number: int, least: int = 0) -> str:
    """What a decoder writes about the source of this number."""
    text = str(_of("captions", number) + ". " + _of("pairs", number)[0])
    return _lengthened(text, number + 1, least)


def dialogue(number: int) -> list[dict[str, str]]:
    """Turns of a user and an assistant; the last one is the user's."""
    turns = list(_of("dialogues", number))
    turns[0] = _before("dialogues", number) + turns[0]
    return [{"role": ("user", "assistant")[place % 2], "content": turn}
            for place, turn in enumerate(turns)]  # fmt: skip
