"""Every rung fails of what it is for, and no other: real models, damaged one way at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.digest import FileEntry
from matrix.model import Target
from matrix.verification import rules_from
from workers.ladder.claim import Claim
from workers.ladder.verdict import Demand
from workers.runtimes.kinds import KINDS, ORT, Kind
from workers.runtimes.pool import Runtimes, Watching
from workers.store import Store
from workers.store.blobs import hash_file
from workers.subject import Part, Subject
from workers.verify import Climbed, Verifier

pytestmark = pytest.mark.engine

MLAS = Target("mlas_cpu", "cpu", "cpu", "CPUExecutionProvider")
NPU = Target("qnn_npu", "qnn", "npu", "QNNExecutionProvider", opset=(13, 21), static_shapes=True)
VITIS = Target(
    "vitisai_npu", "vitisai", "npu", "VitisAIExecutionProvider", internal_quantization=True
)
RNG = np.random.default_rng(5)
WEIGHTS = RNG.standard_normal((8, 8)).astype(np.float32)


def model(
    weights: Any = WEIGHTS,
    output: str = "y",
    *,
    op: str = "MatMul",
    domain: str = "",
    opset: int = 17,
) -> Any:
    """y = x @ w."""
    from onnx import TensorProto, helper, numpy_helper

    kind = TensorProto.FLOAT16 if weights.dtype == np.float16 else TensorProto.FLOAT
    nodes = [helper.make_node(op, ["x", "w"], ["y"], domain=domain)]
    if kind != TensorProto.FLOAT:
        nodes = [
            helper.make_node("Cast", ["x"], ["h"], to=kind),
            helper.make_node(op, ["h", "w"], ["z"]),
            helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT),
        ]
    nodes[-1].output[0] = output
    return _made(nodes, [numpy_helper.from_array(weights, "w")], output, opset)


def qdq(zero: int = 1 << 15, scale: float = 2**-12, kind: Any = np.uint16) -> Any:
    """The same with a quantized input and an int8 weight."""
    from onnx import helper, numpy_helper

    step = float(np.abs(WEIGHTS).max() / 127)
    constants = {
        "scale": np.float32(scale),
        "zero": kind(zero),
        "in": np.float32(2**-12 if kind is np.uint16 else 2**-4),
        "w8": np.round(WEIGHTS / step).astype(np.int8),
        "ws": np.float32(step),
        "wz": np.int8(0),
    }
    foreign = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "in", "zero"], ["q"], **foreign),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero2"], ["d"], **foreign),
        helper.make_node("DequantizeLinear", ["w8", "ws", "wz"], ["w"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    constants["zero2"] = constants["zero"]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    return _made(nodes, tensors, "y", 17)


def _made(nodes: list[Any], tensors: list[Any], output: str, opset: int) -> Any:
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [2, 8])],
        tensors,
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    sets += [helper.make_opsetid(node.domain, 1) for node in nodes if node.domain == "nobody.knows"]
    made = helper.make_model(graph, opset_imports=sets)
    made.ir_version = 8
    return made


def shift(made: Any, name: str, value: Any) -> Any:
    """The model with another constant."""
    from onnx import numpy_helper

    for tensor in made.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
    return made


class Lab:
    """Packages by hand, verified in a real process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.runtimes = Runtimes(root / "logs", allowed=())
        self.verifier = Verifier(self.runtimes)
        self._count = 0

    def place(self, made: Any, *, external: bool = False) -> Path:
        import onnx

        self._count += 1
        folder = self.root / f"package-{self._count}"
        folder.mkdir()
        onnx.save(made, folder / "model.onnx", save_as_external_data=external,
                  location="model.onnx.data", size_threshold=0)  # fmt: skip
        return folder

    def subject(
        self, folder: Path, claim: Claim, *, export: Path | None = None, **more: Any
    ) -> Subject:
        exported = export or self.place(model())

        def inputs(dest: Path) -> None:
            values = np.random.default_rng(1).standard_normal((4, 2, 8)).astype(np.float32)
            np.savez(dest / "inputs.npz", x=values.clip(-3, 3))

        def exports(dest: Path) -> None:
            for path in exported.iterdir():
                (dest / path.name).write_bytes(path.read_bytes())

        tree = hash_file(exported / "model.onnx")[0]
        return Subject(
            claim, folder, entries(folder), self.store, more.get("manifest", {}),
            Part(tree, exports), Part("1" * 64, inputs),
        )  # fmt: skip

    def climb(self, made: Any, claim: Claim, *, external: bool = False) -> Climbed:
        return self.verifier.climb(self.subject(self.place(made, external=external), claim))


def entries(folder: Path) -> tuple[FileEntry, ...]:
    found = []
    for path in sorted(folder.iterdir()):
        digest, size = hash_file(path)
        found.append(FileEntry(path.name, size, digest))
    return tuple(found)


def claim(precision: str = "fp32", target: Target = MLAS, **more: Any) -> Claim:
    return Claim("m@t", target, precision, **more)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.verifier.close()
    made.store.close()


def failed(climbed: Climbed) -> list[str]:
    return [rung.name for rung in climbed.rungs if rung.passed is False]


def told(climbed: Climbed, name: str) -> str:
    return next(rung.detail for rung in climbed.rungs if rung.name == name)


@pytest.mark.parametrize(
    ("make", "precision", "target"),
    [
        (model, "fp32", MLAS),
        (lambda: model(WEIGHTS.astype(np.float16)), "fp16", MLAS),
        (qdq, "w8a16", NPU),
        (lambda: qdq(128, 2**-4, np.uint8), "w8a8", NPU),
    ],
)
def test_sound_models_of_every_precision_pass(
    lab: Lab, make: Callable[[], Any], precision: str, target: Target
) -> None:
    climbed = lab.climb(make(), claim(precision, target))
    assert not climbed.failed, [rung.detail for rung in climbed.failed]
    assert [rung.passed for rung in climbed.rungs] == [True] * 5


NAN = WEIGHTS.copy()
NAN[3, 3] = np.nan


@pytest.mark.parametrize(
    ("make", "rung", "text", "held"),
    [
        (lambda: model(NAN), "integrity", "weight w holds NaN", claim()),
        (lambda: model(op="Frobnicate"), "integrity", "No Op registered for Frobnicate", claim()),
        (lambda: model(opset=12), "integrity", "opset 12 is outside 13..21", claim()),
        (model, "policy", "has no QuantizeLinear: it is not quantized", claim("w8a16", NPU)),
        (model, "policy", "labelled fp16, but 256 of 256 weight bytes are float32", claim("fp16")),
        (lambda: model(WEIGHTS.astype(np.float16)), "policy", "256", claim("w8")),
        (lambda: qdq(128, 2**-4, np.uint8), "policy", "its activations are 1 uint8",
         claim("w8a16", NPU)),
        (qdq, "policy", "has QDQ nodes, which vitisai_npu must not be given",
         claim("w8a16", VITIS)),
        (qdq, "policy", "MatMul is blocked for qnn_npu, but was quantized",
         claim("w8a16", NPU, blocked_ops=("MatMul",))),
        (lambda: model(op="Unknown", domain="nobody.knows"), "loads", "nobody.knows", claim()),
        (lambda: model(output="z"), "shapes", "the outputs are z; the export's are y", claim()),
        (lambda: model(WEIGHTS[::-1].copy()), "parity", "cosine", claim()),
        (lambda: model(WEIGHTS * 2), "parity", "relative error 1 against the export", claim()),
        (lambda: shift(qdq(), "scale", np.float32(2**-11)), "parity", "a scale?",
         claim("w8a16", NPU)),
        (lambda: shift(qdq(), "zero2", np.uint16(1 << 14)), "parity", "cosine",
         claim("w8a16", NPU)),
    ],
)  # fmt: skip
def test_each_corruption_fails_its_rung(
    lab: Lab, make: Callable[[], Any], rung: str, text: str, held: Claim
) -> None:
    if rung == "policy" and text == "256":
        text = "is labelled w8, but no weight is int8"
    climbed = lab.climb(make(), held)
    assert rung in failed(climbed), [(one.name, one.detail) for one in climbed.rungs]
    assert text in told(climbed, rung)
    lowest = climbed.failed[0].name
    assert lowest == rung, [(one.name, one.detail) for one in climbed.rungs]


@pytest.mark.parametrize(
    "make",
    [lambda: model(WEIGHTS[::-1].copy()), lambda: model(WEIGHTS * 2)],
)
def test_wrong_numbers_fail_parity_alone(lab: Lab, make: Callable[[], Any]) -> None:
    assert failed(lab.climb(make(), claim())) == ["parity"]


def test_a_wrong_label_fails_policy_alone(lab: Lab) -> None:
    assert failed(lab.climb(model(), claim("fp16"))) == ["policy"]


def test_missing_files_fail_integrity(lab: Lab) -> None:
    folder = lab.place(model(), external=True)
    subject = lab.subject(folder, claim())
    (folder / "model.onnx.data").write_bytes(b"half")
    climbed = lab.verifier.climb(subject)
    assert climbed.failed[0].name == "integrity"
    assert "model.onnx.data has 4 bytes instead of" in told(climbed, "integrity")
    assert "are cut off" in told(climbed, "integrity")


def test_a_mask_of_infinities_is_no_broken_weight(lab: Lab) -> None:
    from onnx import numpy_helper

    mask = np.where(np.eye(8), 0, -np.inf).astype(np.float32)
    made = model()
    made.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    assert not lab.climb(made, claim()).failed
    broken = model()
    broken.graph.initializer.append(numpy_helper.from_array(mask + 3, "mask"))
    assert "weight mask holds an infinity" in told(lab.climb(broken, claim()), "integrity")


def test_a_waiver_lets_a_rung_fail_and_shows(lab: Lab) -> None:
    rules = rules_from({"waive": {"parity": "two outputs nobody reads"}})
    climbed = lab.climb(model(WEIGHTS * 2), claim(rules=rules))
    assert not climbed.failed
    record = climbed.to_json()
    assert record["verification"][4]["waived"] == "two outputs nobody reads"
    assert "waived: two outputs" in record["verification"][4]["detail"]
    assert Demand.parse("parity").lacks(record) == ""


def test_a_threshold_of_the_catalog_is_the_limit(lab: Lab) -> None:
    noisy = model(WEIGHTS + np.float32(0.05) * RNG.standard_normal((8, 8)).astype(np.float32))
    assert failed(lab.climb(noisy, claim())) == ["parity"]
    loose = {"parity": {"fp32": {"cosine": 0.98, "max_abs": None, "reason": "noise on purpose"}}}
    climbed = lab.climb(noisy, claim(rules=rules_from(loose)))
    assert not climbed.failed
    assert climbed.rungs[4].evidence["limits"]["reason"] == "noise on purpose"


def test_inputs_of_the_catalog_are_run_too(lab: Lab, tmp_path: Path) -> None:
    np.savez(tmp_path / "more.npz", x=np.ones((2, 2, 8), np.float32))
    rules = rules_from({"inputs": str(tmp_path / "more.npz")})
    climbed = lab.climb(model(), claim(rules=rules))
    assert climbed.seen.runs[0].models["model.onnx"]["sets"] == 5


@pytest.mark.parametrize(("weights", "holds"), [(WEIGHTS, True), (-WEIGHTS, False)])
def test_the_task_metric_is_the_source_models(
    lab: Lab, tmp_path: Path, weights: Any, holds: bool
) -> None:
    rows = RNG.standard_normal((40, 2, 8)).astype(np.float32)
    labels = (rows @ WEIGHTS)[:, 0].argmax(-1)
    np.savez(tmp_path / "eval.npz", x=rows, label=labels)
    rules = rules_from(
        {"task": {"dataset": str(tmp_path / "eval.npz"), "metric": "accuracy", "within": 0.02}}
    )
    lab.verifier.level = "task"
    climbed = lab.climb(model(weights), claim(rules=rules))
    assert (climbed.rungs[5].passed) is holds, climbed.rungs[5]
    if holds:
        assert climbed.rungs[5].evidence["models"]["model.onnx"]["accuracy"] == 1.0


def test_without_an_export_parity_cannot_be_told(lab: Lab) -> None:
    subject = replace(lab.subject(lab.place(model()), claim()), export=None)
    climbed = lab.verifier.climb(subject)
    assert [rung.passed for rung in climbed.rungs] == [True, True, True, None, None]
    assert [rung.name for rung in climbed.failed] == ["shapes", "parity"]
    assert "--export" in told(climbed, "parity")


FAKE = Kind("qnn", "", ("QNNExecutionProvider",), ("no-such-distribution",), "qnn")
SERVICE = """
import os, signal, time
from workers.runtimes.ort import OrtOpener
from workers.runtimes.service import RuntimeService
class Bad(RuntimeService):
    def __init__(self):
        super().__init__(OrtOpener())
    def call(self, op, args, progress):
        if op == "discover":
            return [dict(kind="qnn", provider="QNNExecutionProvider", device="npu", version="0")]
        if os.environ["VENDOR"] == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(600)
"""


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtimes:
    """A vendor library that misbehaves, in a process of its own."""
    (tmp_path / "bad_vendor.py").write_text(SERVICE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    bad = replace(FAKE, target="bad_vendor:Bad", distributions=("onnx",))
    monkeypatch.setattr("workers.runtimes.pool.KINDS", (ORT, bad, KINDS[2]))
    monkeypatch.setattr("workers.runtimes.pool.kind_for", lambda _provider: bad)
    return Runtimes(tmp_path / "logs")


@pytest.mark.parametrize(
    ("how", "timeout", "text"),
    [("crash", 60.0, "died with"), ("hang", 2.0, "no answer within 2 s")],
)
def test_a_vendor_library_that_fails_costs_one_rung_of_one_cell(
    lab: Lab, vendor: Runtimes, monkeypatch: pytest.MonkeyPatch, how: str, timeout: float, text: str
) -> None:
    monkeypatch.setenv("VENDOR", how)
    verifier = Verifier(vendor)
    subject = lab.subject(lab.place(qdq()), claim("w8a16", NPU))
    climbed = verifier.climb(subject, Watching(timeout))
    assert failed(climbed) == ["loads"]
    assert "QNNExecutionProvider npu" in told(climbed, "loads")
    assert text in told(climbed, "loads")
    assert text in Demand.parse("parity@ep").lacks(climbed.to_json()) or how == "hang"
    # The next cell is none the worse for it.
    assert (
        not verifier.climb(lab.subject(lab.place(model()), claim(target=MLAS)))
        .seen.runs[0]
        .problem("crash")
    )
    verifier.close()


def test_a_missing_package_is_told_and_the_rest_still_verified(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.runtimes.pool.KINDS", (ORT, FAKE))
    monkeypatch.setattr("workers.runtimes.pool.kind_for", lambda _provider: FAKE)
    lab.runtimes.allowed = None
    climbed = lab.climb(qdq(), claim("w8a16", NPU))
    assert not climbed.failed
    record = climbed.to_json()
    assert record["runtimes"][1]["not_run"] == "no-such-distribution is not installed"
    assert Demand.parse("parity").lacks(record) == ""
    assert "not installed" in Demand.parse("parity@ep").lacks(record)
    waived = {**record, "rules": {"waive": {"ep": "no NPU in the lab"}}}
    assert Demand.parse("parity@ep").lacks(waived) == ""
