"""What a host answers about the tokens that a decoder generates, with logits by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.composition import compose
from workers.generation import PROMPT, TOKENS
from workers.runtimes import generate
from workers.session import Port

PORTS = {
    "prefill": (["input_ids"], ["logits", "present.0.key"]),
    "decode": (["input_ids", "past_key_values.0.key"], ["logits", "present.0.key"]),
}
WORDS = [2, 5, 1]
SIZE = 8


class Toy:
    """The token after this one is the next number; `shift` is added to the logit of each third
    one."""

    def __init__(self, component: str, shift: float) -> None:
        self._shift = shift
        self.inputs = [Port("input_ids", "int64", (1, None))]
        if component == "decode":
            self.inputs.append(Port("past_key_values.0.key", "float32", (1, 1, None, 1)))

    def expect(self, names: Any) -> None:
        del names

    def close(self) -> None:
        pass

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        ids = feeds["input_ids"]
        logits = np.zeros((1, ids.shape[1], SIZE))
        logits[0, -1, (ids[0, -1] + 1) % SIZE] = 4
        logits[0, -1, (ids[0, -1] + 3) % SIZE] = 4 + self._shift
        past = feeds.get("past_key_values.0.key", np.zeros((1, 1, 0, 1), np.float32))
        new = np.ones((1, 1, ids.shape[1], 1), np.float32)
        return {"logits": logits, "present.0.key": np.concatenate([past, new], axis=2)}


@pytest.mark.parametrize(("shift", "other"), [(-1.0, False), (1e-4, True), (1.0, True)])
def test_it_says_how_much_likelier_another_token_is(
    tmp_path: Path, shift: float, *, other: bool
) -> None:
    wanted = [2, 3, 4, 5, 6, 7, 0, 1]
    arrays: dict[str, Any] = {PROMPT: WORDS, TOKENS: wanted}
    np.savez(tmp_path / "generation.npz", **arrays)
    record = compose(PORTS, "model.onnx", (), ("prefill", "decode"))
    args = {
        "record": asdict(record),
        "prompt": str(tmp_path / "generation.npz"),
        "files": {name: name for name in PORTS},
        "outputs": {name: outputs for name, (_, outputs) in PORTS.items()},
    }
    found = generate.answer(lambda name: Toy(name, shift), args)  # type: ignore[arg-type, return-value]
    assert found["at"] == "", found
    assert (found["tokens"] == wanted) != other
    # With two logits of about four among eight, the deviation is between 1.5 and 2.
    low, high = max(shift, 0) / 2, max(shift, 0) / 1.5
    assert all(low - 1e-5 <= one <= high + 1e-5 for one in found["behind"])
