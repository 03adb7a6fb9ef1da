"""What the evidence of a package says in short of its samples and its agreement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.verification.evidence import proven
from workers.verify.ladder.levels import Demand, Proof, proof_of


def test_it_tells_the_samples_and_the_worst_figures() -> None:
    found = proof_of(proven("processor", rows={"logits": (31.5, 0.98), "other": (24.0, None)}))
    assert found == Proof(
        "processor", 16, "of processor", trained=True, needs_real=True, snr=24.0, agreement=0.98
    )
    assert str(found) == "16 processor samples, 24 dB, 98.0% agree"


def test_the_weakest_kind_counts() -> None:
    rungs = proven("processor")
    rungs[-2]["evidence"]["samples"].append({"kind": "synthetic", "origin": "made"})
    found = proof_of(rungs)
    assert found is not None
    assert (found.kind, found.unproven) == ("synthetic", True)


@pytest.mark.parametrize(
    ("more", "samples", "unproven"),
    [
        ({"reason": "a private sensor"}, "synthetic samples (accepted: a private sensor)", True),
        ({"trained": False, "needs_real": False}, "synthetic samples (random weights)", False),
        ({"needs_real": False}, "synthetic samples", False),
    ],
)
def test_synthetic_samples_say_why_they_were_enough(
    more: dict[str, Any], samples: str, unproven: bool
) -> None:
    found = proof_of(proven("synthetic", **more))
    assert found is not None
    assert (found.samples, found.unproven) == (samples, unproven)
    record = {"verification": proven("synthetic", **more)}
    assert bool(Demand("parity", own=False).lacks(record)) is unproven
    assert Demand("shapes", own=False).lacks(record) == ""


def test_evidence_without_the_rung_is_old() -> None:
    rungs = [one for one in proven("dataset") if one["name"] != "samples"]
    found = proof_of(rungs)
    assert found is not None
    assert str(found) == "synthetic samples, before samples were recorded"
    assert found.unproven


@pytest.mark.parametrize(
    "rungs",
    [
        [],
        [{"name": "integrity", "passed": True}],
        [{"name": "parity", "passed": None}],
        [{"name": "samples", "passed": True}],
        [{"name": "samples", "evidence": 7}, {"name": "parity", "evidence": [1]}],
        [{"name": "samples", "evidence": {"samples": [7, {"kind": ""}]}}],
    ],
)
def test_what_was_never_compared_or_is_damaged_tells_nothing(rungs: list[dict[str, Any]]) -> None:
    assert proof_of(rungs) is None
