from __future__ import annotations

from flows.output.table import render


def test_columns_line_up_and_nothing_trails() -> None:
    text = render(("name", "n", "x"), [("a", 1, ""), ("long-name", 22, "y")])
    assert text == "name        n  x\na           1\nlong-name  22  y"


def test_an_empty_table_is_its_head() -> None:
    assert render(("a", "b"), []) == "a  b"
