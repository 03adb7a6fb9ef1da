"""Models and targets at a glance, on terminals of any width."""

from __future__ import annotations

import pytest

from flows.output.table import MOST_ROWS, grid_lines

TARGETS = (
    "qnn_npu", "qnn_gpu", "ov_cpu", "ov_npu", "ov_gpu", "mlas_cpu", "dml_gpu", "vitisai_npu",
)  # fmt: skip
MODELS = (
    "microsoft/resnet-50:image-classification",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2:sentence-similarity",
)
MARKS = {f"{model}@{target}": "ok" for model in MODELS for target in reversed(TARGETS)}
MARKS[f"{MODELS[1]}@ov_npu"] = "QUANTIZE"
MARKS[f"{MODELS[1]}@dml_gpu"] = "skipped"


@pytest.mark.parametrize(("width", "grids"), [(60, 2), (80, 2), (100, 1), (None, 1)])
def test_it_fits_and_shows_every_target_once(width: int | None, grids: int) -> None:
    lines = list(grid_lines(MARKS, ("ok",), left_out="skipped", width=width))
    assert width is None or max(map(len, lines)) <= width
    heads = [line.split() for line in lines if line.startswith(" ")]
    assert [label for head in heads for label in head] == list(TARGETS)
    assert len(heads) == grids
    totals = [line.split()[1:] for line in lines if line.startswith("good")]
    assert [one for line in totals for one in line] == (
        ["2/2", "2/2", "2/2", "1/2", "2/2", "2/2", "1/1", "2/2"]
    )


def test_models_with_failures_come_first() -> None:
    _head, first, second, _good = grid_lines(MARKS, ("ok",), left_out="skipped")
    assert first.startswith("sentence-transformers/")
    assert "QUANTIZE" in first
    assert second.split()[:2] == ["microsoft/resnet-50", "ok"]


def test_many_models_are_counted() -> None:
    marks = {f"m/{number:03}:t@{one}": "ok" for number in range(100) for one in TARGETS[:2]}
    marks["m/099:t@qnn_npu"] = "EXPORT"
    lines = list(grid_lines(marks, ("ok",)))
    assert lines[1].startswith("m/099")
    assert lines[-1] == f"... and {100 - MOST_ROWS} models"
    assert lines[-2].split() == ["good", "99/100", "100/100"]


@pytest.mark.parametrize("cells", [(), ("a:t@ov_cpu",), ("a:t@ov_cpu", "b:t@ov_cpu")])
def test_less_than_two_models_and_targets_need_none(cells: tuple[str, ...]) -> None:
    assert list(grid_lines(dict.fromkeys(cells, "ok"))) == []
