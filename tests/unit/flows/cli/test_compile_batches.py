"""`modelmill compile` of packages of several batches: what ends one of them ends the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli.main import main
from flows.compile import plans as compile_plans
from matrix.errors import Exit


@pytest.mark.parametrize(
    ("codes", "ran"),
    [
        ([Exit.INTERRUPTED, Exit.OK], 1),
        ([Exit.CELLS_FAILED, Exit.HOST_CANNOT_PUBLISH, Exit.OK], 2),
        ([Exit.UNUSABLE, Exit.OK], 1),
        ([Exit.CELLS_FAILED, Exit.OK], 2),
    ],
)
def test_what_ends_one_batch_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: Sequence[Exit], ran: int
) -> None:
    left = list(codes)
    plans = [SimpleNamespace(stamp=str(number)) for number in range(len(codes))]
    monkeypatch.setattr(compile_plans.Wanted, "of_versions", lambda *_args: [])
    monkeypatch.setattr(compile_plans, "plans_of", lambda *_args: plans)

    def publish(*_args: Any, **_words: Any) -> Exit:
        return left.pop(0)

    monkeypatch.setattr(compile_plans, "publish_compiled", publish)
    words = ["compile", "pkg", "0.0.0-*", "--profile", "htp73", "--home", str(tmp_path)]
    assert main(words) == codes[ran - 1 if codes[ran - 1] != Exit.OK else 0]
    assert len(codes) - len(left) == ran
