from __future__ import annotations

import pytest

from flows.output.table import render


def test_columns_line_up_and_nothing_trails() -> None:
    text = render(("name", "n", "x"), [("a", 1, ""), ("long-name", 22, "y")])
    assert text == "name        n  x\na           1\nlong-name  22  y"


def test_an_empty_table_is_its_head() -> None:
    assert render(("a", "b"), []) == "a  b"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 90])
def test_rows_that_do_not_fit_become_blocks_in_which_nothing_is_cut(width: int) -> None:
    version = "0.0.0-20260609-qnn-npu-resnet-50-image-classification"
    rows = [("modelmill-resnet-50", version, "processor", "", "release"), ("b", "1", "-", "x", "")]
    told = render(("package", "version", "samples", "tree", "views"), rows, width).splitlines()
    for line in told:
        assert len(line) <= width or line.strip() == version
    for cell in filter(None, (cell for row in rows for cell in row)):
        assert any(cell in line.split() for line in told)
    assert told[told.index("b") + 1] == "    1  -  x"


def test_a_table_that_fits_stays_one() -> None:
    assert render(("a", "b"), [("x", 1)], 4) == "a  b\nx  1"
    assert render(("a", "b"), [("x", 1)], 3) == "a,\nb\nx\n    1"


def test_a_text_that_is_too_long_is_divided_between_words() -> None:
    text = "16 samples of text-classification agree"
    assert render(("a", "b"), [("x", text)], 20).splitlines()[2:] == [
        "    16 samples of", "      text-classification", "      agree",
    ]  # fmt: skip
