"""Outputs that are texts: labels of a classifier of tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from matrix.verification import Limit
from workers.numerics.compare import compare
from workers.runtimes import service, values
from workers.session import Port

WORDS = np.array(["yes", "no", "maybe", "no"], dtype=object)


def test_texts_agree_or_not() -> None:
    other = np.array(["yes", "no", "no", "no"], dtype=object)
    limit, words = Limit.usual("fp32"), [{"label": WORDS.astype(str)}]
    assert compare([{"label": WORDS}], words, limit) == {"label": {"agreement": 1.0}}
    assert compare([{"label": other}], words, limit) == {"label": {"agreement": 0.75}}


def test_texts_are_kept_without_pickles(tmp_path: Path) -> None:
    values.save_sets(tmp_path / "a" / "out.npz", [{"label": WORDS, "score": np.ones(4)}])
    (found,) = values.load_sets(tmp_path / "a" / "out.npz")
    assert found["label"].tolist() == WORDS.tolist()


def test_a_metric_takes_the_scores_and_not_the_label_before_them() -> None:
    def run(_feeds: Any) -> dict[str, Any]:
        return {"label": np.array(["b"], dtype=object), "probabilities": np.array([[0.2, 0.8]])}

    session: Any = SimpleNamespace(inputs=[Port("x", "float32", (None, 1))], run=run)
    rows = [{"x": np.zeros((1, 1)), "label": np.array(one)} for one in (1, 1, 0)]
    assert service._answers(session, rows) == {
        "samples": 3, "accuracy": 2 / 3, "answers": [1, 1, 1],
    }  # fmt: skip


def test_samples_of_integers_have_a_range_too(tmp_path: Path) -> None:
    for number in range(2):
        values.write_kept(tmp_path / f"{number}.npz", {"ids": np.array([[1, 2 + number]])})
        values.write_kept(
            tmp_path / f"{number}.out.npz", {"y": np.ones((1, 2), np.float32) * number}
        )
    found = values.exercised({
        "samples": [str(tmp_path / f"{number}.npz") for number in range(2)],
        "reference": [str(tmp_path / f"{number}.out.npz") for number in range(2)],
        "limit": {"snr": 20.0},
    })  # fmt: skip
    assert found["inputs"] == {"ids": {"low": 1.0, "high": 3.0}}
    assert found["outputs"]["y"]["varies"] > 0.9
