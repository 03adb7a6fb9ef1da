"""What a catalog adds: inputs, a dataset with a metric. What has been run is not run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.verification import rules_from
from tests.verification.packages import (
    MLAS,
    NPU,
    WEIGHTS,
    VerificationHarness,
    claim,
    failed,
    lab_in,
    model,
    not_run,
    part,
    then,
    told,
    values,
    warm,
)
from workers.build.claim import Claim
from workers.host.client import Host
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime
from workers.verify.verifier import Climbed, Verifier

pytestmark = pytest.mark.engine

RARE = 7
"""An input that the seeded values leave at zero, as a rare token or a dark corner."""


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtimes]:
    with warm(tmp_path_factory.mktemp("warm")) as found:
        yield found


@pytest.fixture
def harness(tmp_path: Path, runtimes: Runtimes) -> Iterator[VerificationHarness]:
    with lab_in(tmp_path, runtimes) as found:
        yield found


def seeded() -> dict[str, Any]:
    found = values()
    found[..., RARE] = 0
    return {"": {"x": found}}


def damaged() -> Any:
    """Right for the seeded values, wrong where the rare input counts."""
    weights = WEIGHTS.copy()
    weights[RARE] = -9 * weights[RARE]
    return model(weights)


def given(harness: VerificationHarness, name: str, **arrays: Any) -> str:
    path = harness.root / name
    np.savez(path, **arrays)
    return str(path)


def test_the_verdict_counts_every_sample(harness: VerificationHarness) -> None:
    plain = harness.verifier.climb(
        harness.subject(harness.place(damaged()), claim(), inputs=seeded())
    )
    assert not plain.failed, "a sample that shows the damage is missing"
    assert plain.observed.runs[0].models["model.onnx"]["sets"] == 4
    more = np.concatenate([seeded()[""]["x"], values(3, sets=1)])
    found = harness.verifier.climb(
        harness.subject(harness.place(damaged()), claim(), inputs={"": {"x": more}})
    )
    assert failed(found) == ["parity"]


def test_samples_that_do_not_fit_are_told_and_blamed_on_nobody(
    harness: VerificationHarness,
) -> None:
    wrong = {"": {"x": np.ones((3, 2, 9), np.float32)}}
    climbed = harness.verifier.climb(harness.subject(harness.place(model()), claim(), inputs=wrong))
    assert failed(climbed) == []
    assert not_run(climbed) == ["loads", "shapes", "samples", "parity"]
    assert "set 1 of the input values has the shape [2, 9] for input x" in told(climbed, "loads")


def test_samples_that_do_not_exercise_the_model_fail(harness: VerificationHarness) -> None:
    equal = np.repeat(values(sets=1), 4, axis=0)
    climbed = harness.verifier.climb(
        harness.subject(harness.place(model()), claim(), inputs={"": {"x": equal}})
    )
    assert failed(climbed) == ["samples"]
    said = told(climbed, "samples")
    assert "no output varies between the samples by more than 0 of its size" in said
    assert 'dataset = { path = "..." }' in said


def test_a_classifier_that_sees_one_class_fails(harness: VerificationHarness) -> None:
    held = claim(task="image-classification")
    weights = np.full((8, 8), 0.01, np.float32)
    weights[:, 3] = 1
    one = model(weights, output="logits")
    positive = {"": {"x": np.abs(values())}}
    climbed = harness.verifier.climb(
        harness.subject(harness.place(one), held, export=harness.place(one), inputs=positive)
    )
    assert failed(climbed) == ["samples"]
    assert "output logits is one class in all 8 decisions" in told(climbed, "samples")
    sound = harness.place(model(output="logits"))
    mixed = harness.subject(sound, held, export=harness.place(model(output="logits")))
    assert not harness.verifier.climb(mixed).failed


def test_samples_that_take_less_than_calibration_saw_fail(harness: VerificationHarness) -> None:
    ports = {"x": {"dtype": "float32", "shape": [2, 8], "range": [-30.0, 30.0]}}
    stage = {"stage": "inputs", "component": "", "facts": {"inputs": {".": ports}}}
    climbed = harness.verifier.climb(
        harness.subject(harness.place(model()), claim(), manifest={"stages": [stage]})
    )
    assert failed(climbed) == ["samples"]
    assert "in the judged samples, -30 to 30 in calibration" in told(climbed, "samples")


def dataset(harness: VerificationHarness, *, labels: bool) -> str:
    """Noisy measurements of eight kinds, most of which the model tells apart."""
    random = np.random.default_rng(11)
    rows = random.standard_normal((120, 2, 8)).astype(np.float32)
    kinds = (rows @ WEIGHTS)[:, 0].argmax(-1)
    kinds[::10] = random.integers(0, 8, 12)
    return given(harness, "eval.npz", x=rows, **({"label": kinds} if labels else {}))


def judged(
    harness: VerificationHarness,
    one: Any,
    metric: str,
    *,
    labels: bool = True,
    within: float = 0.02,
) -> Climbed:
    task = {"dataset": dataset(harness, labels=labels), "metric": metric, "within": within}
    verifier = Verifier(harness.runtimes, "task")
    held = claim(rules=rules_from({"task": task}))
    return verifier.climb(harness.subject(harness.place(one), held, inputs=seeded()))


@pytest.mark.parametrize("metric", ["accuracy", "agreement"])
def test_a_sound_model_has_the_metric_of_its_source(
    harness: VerificationHarness, metric: str
) -> None:
    climbed = judged(harness, model(), metric)
    assert not climbed.failed
    row = climbed.rungs[6].evidence["models"]["model.onnx"]
    assert row[metric] == row["source"]
    assert row["samples"] == 120
    assert (0.85 < row["source"] < 1) if metric == "accuracy" else row["source"] == 1
    assert told(climbed, "task") == f"{metric} {row[metric]:.4f} or better"


@pytest.mark.parametrize("metric", ["accuracy", "agreement"])
def test_a_damage_that_the_seeded_inputs_do_not_meet_fails_the_task_alone(
    harness: VerificationHarness, metric: str
) -> None:
    climbed = judged(harness, damaged(), metric)
    assert failed(climbed) == ["task"], climbed.rungs
    assert not_run(climbed) == []
    assert f"model.onnx: {metric} is 0." in told(climbed, "task")
    assert "(allowed difference: 0.02); try another precision" in told(climbed, "task")
    assert not judged(harness, damaged(), metric, within=1.0).failed


def test_agreement_needs_no_labels_and_accuracy_does(harness: VerificationHarness) -> None:
    assert not judged(harness, model(), "agreement", labels=False).failed
    climbed = judged(harness, model(), "accuracy", labels=False)
    assert failed(climbed) == ["task"]
    assert "accuracy needs an array `label`" in told(climbed, "task")


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.ones((3, 2, 9), np.float32)}, "the dataset does not fit: set 1 of the input"),
        ({"z": np.ones((3, 2, 8), np.float32)}, "has values for no model of the package"),
    ],
)
def test_a_dataset_that_does_not_fit_is_no_success(
    harness: VerificationHarness, arrays: dict[str, Any], text: str
) -> None:
    task = {"dataset": given(harness, "eval.npz", **arrays), "metric": "agreement", "within": 0.0}
    verifier = Verifier(harness.runtimes, "task")
    subject = harness.subject(harness.place(model()), claim(rules=rules_from({"task": task})))
    climbed = verifier.climb(subject)
    assert failed(climbed) == ["task"]
    assert text in told(climbed, "task")


def test_a_rung_that_a_lower_one_keeps_from_being_climbed_is_not_failed(
    harness: VerificationHarness,
) -> None:
    climbed = judged(harness, model(op="Unknown", domain="nobody.knows"), "agreement")
    assert failed(climbed) == ["loads"]
    assert not_run(climbed) == ["shapes", "parity", "task"]


class Counting:
    """The calls of every host, and how many are under way at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        call = Host.call

        def counting(host: Host, op: str, *args: Any, **more: Any) -> Any:
            self.calls[op] += 1
            return call(host, op, *args, **more)

        monkeypatch.setattr(Host, "call", counting)

    def of(self, act: Any) -> tuple[int, int]:
        """How often an act has inspected and measured."""
        before = Counter(self.calls)
        act()
        after = self.calls - before
        return after["inspect"], after["measure"]


def test_equal_artifacts_are_run_once_on_a_runtime_and_again_when_anything_differs(
    harness: VerificationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(monkeypatch)
    export, package = harness.place(model()), harness.place(model())
    base = harness.subject(package, claim(), export=export)

    def climb(held: Claim | None = None, **changed: Any) -> tuple[int, int]:
        subject = replace(base, claim=held or base.claim, **changed)
        verifier = Verifier(harness.runtimes)  # remembers nothing by itself
        return counting.of(lambda: verifier.climb(subject))

    assert climb() == (1, 2)  # the export and the package
    for target in (MLAS, NPU, replace(MLAS, label="dml_gpu", provider="DmlExecutionProvider")):
        assert climb(claim(target=target)) == (0, 0)
    assert climb(claim("fp32", rules=rules_from({"waive": {"task": "a rule"}}))) == (0, 0)
    # Another limit: what is a tie depends on it. The store has the outputs of the export.
    limit = {"parity": {"fp32": {"snr": 50.0, "agreement": 1.0, "reason": "coarse"}}}
    assert climb(claim(rules=rules_from(limit))) == (0, 1)
    # Another export of the same package: one with the same outputs, and one with others.
    assert climb(export=part(harness.place(then("Identity")))) == (0, 1)
    assert climb(export=part(harness.place(model(WEIGHTS * 1.0001)))) == (0, 2)
    # Another version of the runtime.
    newer = replace(harness.runtimes.cpu(), version="onnxruntime 99")
    monkeypatch.setattr(Runtimes, "cpu", lambda _self: newer)
    assert climb(claim(target=NPU)) == (0, 2)
    assert climb(claim(target=NPU)) == (0, 0)


def test_each_runtime_is_run_once(
    harness: VerificationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two NPU targets with one artifact: ONNX Runtime's CPU once, each own provider once."""
    counting = Counting(monkeypatch)
    cpu = harness.runtimes.cpu()

    def own(_self: Runtimes, target: Any) -> Runtime:
        return replace(cpu, provider=target.provider, device=target.device)

    def measure(self: Runtimes, runtime: Runtime, args: Any, watching: Any) -> Any:
        ran_on.append(runtime.provider)
        return plain(self, replace(runtime, provider=cpu.provider), args, watching)

    ran_on: list[str] = []
    plain = Runtimes.measure
    monkeypatch.setattr(Runtimes, "for_target", own)
    monkeypatch.setattr(Runtimes, "measure", measure)
    base = harness.subject(harness.place(model()), claim())
    openvino = replace(NPU, label="ov_npu", provider="OpenVINOExecutionProvider")
    verifier = Verifier(harness.runtimes)
    for target in (NPU, openvino, NPU, openvino):
        assert not verifier.climb(replace(base, claim=claim(target=target))).failed
    assert ran_on == [cpu.provider, cpu.provider, NPU.provider, openvino.provider]
    assert counting.calls["inspect"] == 1
