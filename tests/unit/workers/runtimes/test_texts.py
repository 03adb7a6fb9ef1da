"""Outputs that are texts: labels of a classifier of tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from workers.runtimes import service
from workers.runtimes.session import Port
from workers.runtimes.values import compare

WORDS = np.array(["yes", "no", "maybe", "no"], dtype=object)


def test_texts_agree_or_not() -> None:
    other = np.array(["yes", "no", "no", "no"], dtype=object)
    assert compare([{"label": WORDS}], [{"label": WORDS.astype(str)}]) == {"label": {"agree": 1.0}}
    assert compare([{"label": other}], [{"label": WORDS}]) == {"label": {"agree": 0.75}}


def test_texts_are_kept_without_pickles(tmp_path: Path) -> None:
    service._save(tmp_path / "a" / "out.npz", [{"label": WORDS, "score": np.ones(4)}])
    (found,) = service._load(tmp_path / "a" / "out.npz")
    assert found["label"].tolist() == WORDS.tolist()


def test_a_metric_takes_the_scores_and_not_the_label_before_them() -> None:
    def run(_feeds: Any) -> dict[str, Any]:
        return {"label": np.array(["b"], dtype=object), "probabilities": np.array([[0.2, 0.8]])}

    session: Any = SimpleNamespace(inputs=[Port("x", "float32", (None, 1))], run=run)
    rows = [{"x": np.zeros((1, 1)), "label": np.array(one)} for one in (1, 1, 0)]
    assert service._answers(session, rows) == {
        "samples": 3, "accuracy": 2 / 3, "answers": [1, 1, 1],
    }  # fmt: skip
