from __future__ import annotations

import pytest

from flows.output.quantity import brief, plain_text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m and \x1b[38;5;208mnot\x1b[m", "red and not"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b(B\x1b=\x1bcreset", "reset"),
        ("\x9b31mc1", "31mc1"),
        ("bell\x07 back\x08 nul\x00 del\x7f", "bell back nul del"),
        ("10%\r20%\r100%\nnext", "100%\nnext"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("tab\tand é 🙂 stay", "tab\tand é 🙂 stay"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("\x1b]never ended", ""),
    ],
)
def test_only_text_is_left(raw: str, shown: str) -> None:
    assert plain_text(raw) == shown


def test_a_message_in_one_line_has_no_escapes() -> None:
    assert brief("\x1b[31mno\n scale\x1b[0m\x1b[2J") == "no scale"


def test_it_takes_no_longer_than_the_text_is_long() -> None:
    assert plain_text("\x1b]" * 200_000) == ""
    assert plain_text("\r" * 200_000) == ""
    assert plain_text("\x1b[" * 200_000) == ""
