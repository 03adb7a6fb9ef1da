"""What the real engine builds, damaged: of each damage exactly the rung fails that is there for it.

The artifacts are bert-tiny of the demo catalog, float and w8a16, as they would be published.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.hosted import SharedHost
from tests.engines.optimum import builder, plan_catalog
from tests.verification.packages import entries, failed, not_run, told, warm
from workers.build.claim import Claim
from workers.verify.ladder.levels import Demand
from workers.verify.ladder.subject import Subject
from workers.verify.verifier import Climbed, Verifier

pytestmark = pytest.mark.engine

NPU, CPU, VITIS = "qnn_npu", "mlas_cpu", "vitisai_npu"
HIGHER = ["loads", "shapes", "samples", "parity"]
Damage = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class LadderHarness:
    """The built cells of one model, and what verifies copies of them."""

    root: Path
    cells: dict[str, Subject]
    verifier: Verifier

    def climb(self, label: str, damage: Damage, after: Damage, held: Claim | None) -> Climbed:
        folder = self.root / "package"
        shutil.rmtree(folder, ignore_errors=True)
        subject = self.cells[label]
        shutil.copytree(subject.folder, folder, copy_function=shutil.copyfile)
        damage(folder)
        files = entries(folder)
        after(folder)
        return self.verifier.climb(
            replace(subject, folder=folder, files=files, claim=held or subject.claim)
        )


@pytest.fixture(scope="module")
def harness(
    tmp_path_factory: pytest.TempPathFactory, optimum: SharedHost
) -> Iterator[LadderHarness]:
    root = tmp_path_factory.mktemp("artifacts")
    (planned,) = [one for one in plan_catalog("demo", root).models if "bert-tiny" in one.model.id]
    wanted = [cell for cell in planned.cells if cell.target.label in {NPU, CPU, VITIS}]
    with builder(root, optimum) as made, warm(root) as runtimes:
        cells = {cell.target.label: Subject.of(made.build(cell)) for cell in wanted}
        yield LadderHarness(root, cells, Verifier(runtimes))


def change(edit: Callable[[Any], None]) -> Damage:
    """Edit the model of a package."""

    def damage(folder: Path) -> None:
        import onnx

        model = onnx.load(folder / "model.onnx")
        edit(model)
        onnx.save(model, folder / "model.onnx")

    return damage


def outside(folder: Path) -> None:
    """Put the weights into external data."""
    import onnx

    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True,
              location="model.onnx.data", size_threshold=0)  # fmt: skip


def cut(folder: Path) -> None:
    data = folder / "model.onnx.data"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])


def arrays(model: Any, wanted: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    """Initializers with their values."""
    from onnx import numpy_helper

    pairs = [(item, numpy_helper.to_array(item)) for item in model.graph.initializer]
    return [(item, value) for item, value in pairs if wanted(value)]


def put(item: Any, value: Any) -> None:
    from onnx import numpy_helper

    item.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), item.name))


def swap_weights(model: Any) -> None:
    """Two matrices of the same shape trade places."""
    found = arrays(model, lambda value: value.dtype == np.float32 and value.ndim == 2)
    pairs = [(a, b) for at, a in enumerate(found) for b in found[at + 1 :]
             if a[1].shape == b[1].shape]  # fmt: skip
    (first, one), (second, other) = pairs[0]
    put(first, other)
    put(second, one)


def of_activations(model: Any, place: int) -> list[tuple[Any, Any]]:
    """The scales (1) or zero points (2) that activations are dequantized with."""
    quantized = {node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    names = {
        node.input[place]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in quantized
    }
    return [pair for pair in arrays(model, lambda _value: True) if pair[0].name in names]


def shift_scales(model: Any) -> None:
    """Every activation has its neighbour's scale."""
    found = of_activations(model, 1)
    for (item, _), (_, value) in zip(found, [*found[1:], found[0]], strict=True):
        put(item, value)


def move_zero(model: Any) -> None:
    """As if activations were never negative."""
    for item, value in of_activations(model, 2):
        put(item, np.zeros_like(value))


def rename_output(model: Any) -> None:
    old, new = model.graph.output[0].name, "scores"
    model.graph.output[0].name = new
    for node in model.graph.node:
        node.output[:] = [new if name == old else name for name in node.output]


def no_number(model: Any) -> None:
    item, value = arrays(model, lambda value: value.dtype == np.float32 and value.ndim == 2)[0]
    broken = value.copy()
    broken[0, 0] = np.nan
    put(item, broken)


def foreign_operator(model: Any) -> None:
    """One that ONNX Runtime has no kernel for."""
    from onnx import helper

    model.opset_import.append(helper.make_opsetid("nobody.knows", 1))
    node = next(node for node in model.graph.node if node.op_type == "MatMul")
    node.op_type, node.domain = "Frobnicate", "nobody.knows"


def nothing(_folder: Path) -> None:
    pass


def test_as_they_were_built_they_pass(harness: LadderHarness) -> None:
    for label in harness.cells:
        climbed = harness.climb(label, nothing, nothing, None)
        assert [rung.passed for rung in climbed.rungs] == [True] * 6, (label, climbed.rungs)


@pytest.mark.parametrize(
    ("label", "damage", "after", "rung", "texts", "unseen"),
    [
        pytest.param(CPU, outside, cut, "integrity",
                     ("external data of ", "are cut off: model.onnx.data", "fetch it or build it"),
                     ["policy", *HIGHER], id="truncated external data"),
        pytest.param(CPU, change(no_number), nothing, "integrity",
                     ("holds NaN; is the source damaged",), HIGHER, id="NaN weight"),
        pytest.param(CPU, change(foreign_operator), nothing, "loads",
                     ("Frobnicate", "another opset or precision"), ["shapes", "parity"],
                     id="unsupported operator"),
        pytest.param(CPU, change(rename_output), nothing, "shapes",
                     ("the outputs are scores; the export's are logits", "waive shapes"),
                     ["parity"], id="renamed output"),
        pytest.param(CPU, change(swap_weights), nothing, "parity",
                     ("model.onnx logits on CPUExecutionProvider cpu", "must reach 57 dB"),
                     [], id="swapped weights"),
        pytest.param(NPU, change(shift_scales), nothing, "parity",
                     ("model.onnx logits on", "w8a16 must reach 15 dB", "calibration data"),
                     [], id="shifted scales"),
        pytest.param(NPU, change(move_zero), nothing, "parity",
                     ("model.onnx logits on", "w8a16 must reach 15 dB"),
                     [], id="wrong zero point"),
    ],
)  # fmt: skip
def test_a_damage_fails_its_rung_alone(
    harness: LadderHarness,
    label: str,
    damage: Damage,
    after: Damage,
    rung: str,
    texts: tuple[str, ...],
    unseen: list[str],
) -> None:
    only(harness.climb(label, damage, after, None), rung, texts, unseen)


def test_fp32_labelled_fp16_fails_policy_alone(harness: LadderHarness) -> None:
    held = replace(harness.cells[CPU].claim, precision="fp16")
    texts = ("is labelled fp16, but", "weight bytes are float32", "show what the build did")
    only(harness.climb(CPU, nothing, nothing, held), "policy", texts, [])


def test_fp32_labelled_w8a16_fails_policy_alone(harness: LadderHarness) -> None:
    held = replace(harness.cells[CPU].claim, precision="w8a16")
    texts = ("is labelled w8a16, but has no QuantizeLinear: it is not quantized",)
    only(harness.climb(CPU, nothing, nothing, held), "policy", texts, [])


def test_qdq_for_vitis_ai_fails_policy_alone(harness: LadderHarness) -> None:
    rules = replace(harness.cells[NPU].claim.rules)
    held = replace(harness.cells[VITIS].claim, precision="w8a16", rules=rules)
    texts = ("has QDQ nodes, which vitisai_npu must not get", "quantizes by itself")
    only(harness.climb(NPU, nothing, nothing, held), "policy", texts, [])


def only(climbed: Climbed, rung: str, texts: tuple[str, ...], unseen: list[str]) -> None:
    shown = [(one.name, one.passed, one.detail) for one in climbed.rungs]
    assert failed(climbed) == [rung], shown
    assert not_run(climbed) == unseen, shown
    for text in texts:
        assert text in told(climbed, rung), shown
    assert Demand.parse("parity").lacks(climbed.to_json()).startswith("the rung ")
