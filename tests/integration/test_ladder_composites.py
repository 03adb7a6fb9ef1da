"""Composites: each component against the export's, and all of it end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.verification import rules_from
from tests.verification.packages import (
    WEIGHTS,
    VerificationHarness,
    claim,
    entries,
    failed,
    lab_in,
    made,
    model,
    not_run,
    then,
    told,
    values,
    warm,
)
from workers import composition
from workers.composition import Join, compose, plain
from workers.numerics.compare import MOST_DB
from workers.runtimes.pool import Runtimes
from workers.verify.ladder.subject import Subject

pytestmark = pytest.mark.engine

CPU = "CPUExecutionProvider cpu"
HIDDEN = "encoder_hidden_states"


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtimes]:
    with warm(tmp_path_factory.mktemp("warm")) as found:
        yield found


@pytest.fixture
def harness(tmp_path: Path, runtimes: Runtimes) -> Iterator[VerificationHarness]:
    with lab_in(tmp_path, runtimes) as found:
        yield found


def encoder(weights: Any = WEIGHTS) -> Any:
    return model(weights, "last_hidden_state")


def limited(low: float, high: float) -> Any:
    """A decoder that takes nothing beyond a range, as one does that was calibrated badly."""
    from onnx import helper, numpy_helper

    limits = {"low": np.float32(low), "high": np.float32(high), "w": WEIGHTS}
    nodes = [
        helper.make_node("Clip", [HIDDEN, "low", "high"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(one), name) for name, one in limits.items()]
    return made(nodes, tensors, "y", given=HIDDEN)


ENCODER_DECODER = compose(
    {"decoder": ([HIDDEN], ["y"]), "encoder": (["x"], ["last_hidden_state"])},
    "model.onnx",
)


def pair(harness: VerificationHarness, **changed: Any) -> Subject:
    """An encoder and its decoder; the decoder's own input values are small."""
    sound = {"encoder": encoder(), "decoder": model(given=HIDDEN)}
    inputs = {
        "encoder": {"x": values(1)},
        "decoder": {HIDDEN: values(2) / 4},
    }
    package = harness.place(**{**sound, **changed})
    composition.write(ENCODER_DECODER, package)
    return harness.subject(package, claim(), export=harness.place(**sound), inputs=inputs)


def test_every_component_and_the_whole_are_compared(harness: VerificationHarness) -> None:
    climbed = harness.verifier.climb(pair(harness))
    assert not climbed.failed
    rows = climbed.rungs[5].evidence[CPU]
    assert {name: one["snr"] for name, one in rows.items()} == {
        "encoder/model.onnx last_hidden_state": MOST_DB,
        "decoder/model.onnx y": MOST_DB,
        "decoder/model.onnx end to end y": MOST_DB,
    }


def test_what_only_the_whole_shows_fails_parity(harness: VerificationHarness) -> None:
    climbed = harness.verifier.climb(pair(harness, decoder=limited(-1, 1)))
    assert failed(climbed) == ["parity"]
    rows = climbed.rungs[5].evidence[CPU]
    assert rows["decoder/model.onnx y"]["snr"] == MOST_DB
    assert f"decoder/model.onnx end to end y on {CPU}: signal-to-noise" in told(climbed, "parity")
    assert "decoder/model.onnx y on" not in told(climbed, "parity")


def test_the_damaged_component_is_named(harness: VerificationHarness) -> None:
    climbed = harness.verifier.climb(pair(harness, encoder=encoder(WEIGHTS[::-1].copy())))
    assert failed(climbed) == ["parity"]
    assert f"encoder/model.onnx last_hidden_state on {CPU}: signal-to-noise" in told(
        climbed, "parity"
    )
    assert f"decoder/model.onnx y on {CPU}" not in told(climbed, "parity")


def test_an_encoder_whose_output_nobody_takes_is_a_matter_of_shapes(
    harness: VerificationHarness,
) -> None:
    climbed = harness.verifier.climb(pair(harness, encoder=model(output="hidden")))
    assert failed(climbed) == ["shapes"]
    assert not_run(climbed) == ["parity"]
    assert "the outputs are hidden; the export's are last_hidden_state" in told(climbed, "shapes")
    rows = climbed.rungs[5].evidence[CPU]
    assert rows["decoder/model.onnx end to end"] == {
        "absent": "the outputs of the earlier components do not fit"
    }


def tower(angle: float) -> Any:
    """An embedding [cos, sin] of this angle, whatever the input."""
    weights = np.zeros((8, 8), np.float32)
    weights[:, 0], weights[:, 1] = np.cos(angle), np.sin(angle)
    return model(weights)


def towers(harness: VerificationHarness, text: float, vision: float) -> Subject:
    rules = rules_from({"parity": {"fp32": {"snr": 3.0, "agreement": 0.0, "reason": "as w8a8"}}})
    inputs = {name: {"x": values(seed)} for seed, name in enumerate(("text", "vision"))}
    package = harness.place(text=tower(text), vision=tower(vision))
    join = Join("logits", ("text/y", "vision/y"), 10.0, -1.0)
    sides = {"text": (["x"], ["y"]), "vision": (["x"], ["y"])}
    composition.write(compose(sides, "model.onnx", [join]), package)
    export = harness.place(text=tower(0), vision=tower(np.radians(90)))
    return harness.subject(package, claim(rules=rules), export=export, inputs=inputs)


def test_two_towers_are_joined_to_their_logits(harness: VerificationHarness) -> None:
    climbed = harness.verifier.climb(towers(harness, 0, np.radians(90)))
    assert not climbed.failed
    assert climbed.rungs[5].evidence[CPU]["end to end logits"]["snr"] > 100


def test_towers_that_lean_towards_each_other_fail_parity(harness: VerificationHarness) -> None:
    """Each is within its limit; together they find text and image far more alike than they are."""
    climbed = harness.verifier.climb(towers(harness, np.radians(20), np.radians(70)))
    assert failed(climbed) == ["parity"]
    rows = climbed.rungs[5].evidence[CPU]
    assert {name for name, one in rows.items() if one["snr"] > 3} == {
        "text/model.onnx y",
        "vision/model.onnx y",
    }
    assert told(climbed, "parity").startswith(f"end to end logits on {CPU}: ")


def test_a_tower_of_another_width_cannot_be_joined(harness: VerificationHarness) -> None:
    import onnx

    subject = towers(harness, 0, np.radians(90))
    narrow = then("Slice", "from", "to", "axis", dims=(2, 4))
    onnx.save(narrow, subject.folder / "text" / "model.onnx")
    climbed = harness.verifier.climb(replace(subject, files=entries(subject.folder)))
    assert failed(climbed) == ["shapes"]
    assert not_run(climbed) == ["parity"]


def rescaled(factor: float) -> Any:
    """A third component, which takes what the second one gives."""
    return model(WEIGHTS * np.float32(factor), "z", given="y")


def test_links_are_followed_through_every_component(harness: VerificationHarness) -> None:
    """The middle one clips only what the first one gives, and the last one shows it too."""
    sound = {"encoder": encoder(), "decoder": model(given=HIDDEN), "head": rescaled(1)}
    inputs = {
        "encoder": {"x": values(1)},
        "decoder": {HIDDEN: values(2) / 4},
        "head": {"y": values(3)},
    }
    ports = {
        "head": (["y"], ["z"]),
        "decoder": ([HIDDEN], ["y"]),
        "encoder": (["x"], ["last_hidden_state"]),
    }
    for middle, wrong in ((model(given=HIDDEN), []), (limited(-1, 1), ["decoder", "head"])):
        package = harness.place(**{**sound, "decoder": middle})
        composition.write(compose(ports, "model.onnx"), package)
        subject = harness.subject(package, claim(), export=harness.place(**sound), inputs=inputs)
        assert subject.models == [f"{name}/model.onnx" for name in ("encoder", "decoder", "head")]
        rows = harness.verifier.climb(subject).rungs[5].evidence[CPU]
        off = [name.partition("/")[0] for name, one in rows.items() if one["snr"] < 50]
        assert off == wrong
        assert all(" end to end " in name for name in rows if rows[name]["snr"] < 50)
        assert "head/model.onnx end to end z" in rows


def test_the_record_must_be_true_of_the_package(harness: VerificationHarness) -> None:
    subject = pair(harness)
    record = subject.folder / composition.FILE
    for text, problem in (
        ("{}", "composition.json cannot be used: KeyError"),
        ("[", "composition.json cannot be used: JSONDecodeError"),
        (
            record.read_text().replace('"schema": 1', '"schema": 9'),
            "its schema is 9, this version reads 1",
        ),
        (
            record.read_text().replace('"decoder/model.onnx"', '"decoder/other.onnx"'),
            (
                "composition.json does not name decoder/model.onnx, which the package has; "
                "composition.json names decoder/other.onnx, which the package does not have"
            ),
        ),
    ):
        record.write_text(text)
        climbed = harness.verifier.climb(replace(subject, files=entries(subject.folder)))
        assert failed(climbed) == ["integrity"]
        assert problem in told(climbed, "integrity")


def test_without_a_record_every_component_stands_alone(harness: VerificationHarness) -> None:
    subject = pair(harness)
    (subject.folder / composition.FILE).unlink()
    climbed = harness.verifier.climb(replace(subject, files=entries(subject.folder)))
    assert not climbed.failed
    assert set(climbed.rungs[5].evidence[CPU]) == {
        "encoder/model.onnx last_hidden_state",
        "decoder/model.onnx y",
    }


def test_a_single_model_needs_no_record(harness: VerificationHarness) -> None:
    subject = harness.subject(harness.place(model()), claim())
    assert subject.composition == plain(["model.onnx"])
