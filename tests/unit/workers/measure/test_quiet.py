"""A measurement has the machine for itself, or says who has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from machine.ledger import Ledger
from machine.reservations import DISTURBS
from workers.measure.quiet import Busy, quiet


def test_nothing_that_disturbs_begins_meanwhile(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path), Ledger(tmp_path)
    with quiet("a benchmark", wait=False, ledger=ours):
        assert theirs.claim([DISTURBS]) is None
        with (
            pytest.raises(Busy, match=r"held by process \d+ \(a benchmark\)"),
            quiet("another", wait=False, ledger=theirs),
        ):
            raise AssertionError("two measurements at once")
    assert theirs.claim([DISTURBS]) is not None


def test_a_build_is_named_and_waited_for_if_asked(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path), Ledger(tmp_path)
    build = theirs.reserve([DISTURBS], "demo/bert-tiny export")
    with (
        pytest.raises(Busy, match="demo/bert-tiny export") as caught,
        quiet("a benchmark", wait=False, ledger=ours),
    ):
        raise AssertionError("a build runs")
    assert "--wait" in caught.value.hint
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        build.release()

    with quiet("a benchmark", wait=True, ledger=ours, told=tell):
        assert theirs.claim([DISTURBS]) is None
    assert "held by process" in told[0]
