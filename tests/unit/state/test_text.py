from __future__ import annotations

import json
from pathlib import Path

from matrix.status import Status
from state.text import clean, to_json


def test_what_databases_refuse_is_gone() -> None:
    assert clean("a\0b\ud800c") == "ab?c"
    assert clean("größer ✓") == "größer ✓"
    assert clean(None) is None
    assert clean(None, tail=True) is None


def test_a_message_keeps_its_beginning_and_a_log_its_end() -> None:
    text = "begin" + "." * 100 + "end"
    cut = clean(text, 50)
    tail = clean(text, 50, tail=True)
    assert cut is not None
    assert tail is not None
    assert cut.startswith("begin")
    assert tail.endswith("end")
    assert len(cut) == len(tail) == 50
    assert clean(text, len(text)) == clean(text, len(text), tail=True) == text


def test_json_takes_anything() -> None:
    value = {
        "nan": float("nan"),
        "inf": [float("-inf"), 1.5],
        "bytes": b"\xff",
        "path": Path("a"),
        "set": {1},
        "status": Status.BUILT,
        "text": "a\0\udfff" + "x" * 100_000,
        7: (True, None),
    }
    stored = json.loads(to_json(value))
    assert stored["nan"] == "nan"
    assert stored["inf"] == ["-inf", 1.5]
    assert stored["status"] == "built"
    assert stored["set"] == [1]
    assert stored["path"] == "a"
    assert stored["7"] == [True, None]
    assert len(stored["text"]) == 8_000
    assert "\0" not in stored["text"]


def test_json_without_bottom_ends_somewhere() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert len(to_json(endless)) < 1_000
