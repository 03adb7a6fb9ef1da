"""The default matrix row by row, and adding to it as data only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from matrix.errors import MillError, PlanError, UsageError
from matrix.model import REWRITES
from matrix.policy import for_task, takes
from matrix.selector import Selection
from matrix.targets import Targets, load_targets
from tests.plans.models import TARGETS, a_model, plan_of, plan_options, write

CUDA = '[[target]]\nlabel = "cuda_gpu"\nep = "cuda"\ndevice = "gpu"\nauto = "fp16"\n'


def test_the_default_matrix_is_the_references_in_its_order() -> None:
    assert [(row.label, row.ep, row.device, row.provider) for row in TARGETS] == [
        ("qnn_npu", "qnn", "npu", "QNNExecutionProvider"),
        ("qnn_gpu", "qnn", "gpu", "QNNExecutionProvider"),
        ("ov_cpu", "openvino", "cpu", "OpenVINOExecutionProvider"),
        ("ov_npu", "openvino", "npu", "OpenVINOExecutionProvider"),
        ("ov_gpu", "openvino", "gpu", "OpenVINOExecutionProvider"),
        ("mlas_cpu", "cpu", "cpu", "CPUExecutionProvider"),
        ("dml_gpu", "dml", "gpu", "DmlExecutionProvider"),
        ("vitisai_npu", "vitisai", "npu", "VitisAIExecutionProvider"),
    ]


def test_their_policies() -> None:
    rows = {row.label: row for row in TARGETS}
    assert [label for label, row in rows.items() if row.internal_quantization] == ["vitisai_npu"]
    assert [label for label, row in rows.items() if not row.qdq] == ["qnn_gpu"]
    assert [label for label, row in rows.items() if row.optimization != "basic"] == ["mlas_cpu"]
    assert rows["mlas_cpu"].optimization == "extended"
    assert [label for label, row in rows.items() if row.static_shapes] == [
        "qnn_npu",
        "ov_npu",
        "vitisai_npu",
    ]
    assert all(row.why for row in TARGETS)


def test_only_qnns_targets_get_what_is_rewritten_for_the_htp() -> None:
    one, two = TARGETS.get("qnn_npu"), TARGETS.get("ov_npu")
    names = {"label": "", "ep": "", "provider": "", "why": "", "rewrites": (), "aliases": ()}
    assert replace(one, **names) == replace(two, **names)  # type: ignore[arg-type]
    assert {row.ep for row in TARGETS if row.rewrites} == {"qnn"}
    assert set(one.rewrites) == set(REWRITES)


def test_the_limits_of_a_provider_are_those_of_its_targets_unless_a_row_differs(
    tmp_path: Path,
) -> None:
    file = tmp_path / "targets.toml"
    row = '[[target]]\nlabel = "mine"\nep = "qnn"\ndevice = "npu"\n'
    file.write_text(row + 'channels = ["Conv"]\n', "utf-8")
    mine = load_targets(file).get("mine")
    assert (set(mine.rewrites), mine.channels) == (set(REWRITES), ("Conv",))
    file.write_text(row + 'rewrites = ["pols"]\n', "utf-8")
    with pytest.raises(PlanError, match="unknown rewrite 'pols' in rewrites"):
        load_targets(file)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("qnn", "qnn"), ("QNN", "qnn"), ("openvino", "openvino"), ("ov", "openvino"),
     ("vitisai", "vitisai"), ("cpu", "cpu"), ("MLAS", "cpu"), ("cuda", "cuda"), ("dml", "dml"),
     ("nvtensorrtrtx", "nvtensorrtrtx"), ("nv_tensorrt_rtx", "nvtensorrtrtx"),
     ("migraphx", "migraphx"), ("tensorrt", "tensorrt"), ("winmlcg", "winmlcg"),
     ("QNNExecutionProvider", "qnn"), ("dmlexecutionprovider", "dml")],
)  # fmt: skip
def test_ep_aliases(alias: str, name: str) -> None:
    assert TARGETS.ep(alias) == name


def test_a_target_may_have_a_default_for_language_models(tmp_path: Path) -> None:
    file = tmp_path / "targets.toml"
    row = '[[target]]\nlabel = "mine"\nep = "cpu"\ndevice = "cpu"\nlanguage = "int4"\n'
    file.write_text(row + 'weight_form = "MatMulNBits"\n', "utf-8")
    mine = load_targets(file).get("mine")
    assert (for_task(mine, "text-generation-with-past").precision, mine.weight_form) == (
        "w4",
        "MatMulNBits",
    )
    assert for_task(mine, "fill-mask") == mine
    file.write_text(row + 'weight_form = "MatMul4Bits"\nqdq = false\n', "utf-8")
    with pytest.raises(PlanError) as caught:
        load_targets(file)
    assert "did you mean MatMulNBits" in str(caught.value)
    assert "the default w4 is quantized" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (lambda: TARGETS.ep("opnvino"), "did you mean openvino?"),
        (lambda: TARGETS.ep(""), "valid: qnn, openvino"),
        (lambda: TARGETS.device("nqu"), "did you mean npu"),
        (lambda: TARGETS.get("qnn_nup"), "did you mean qnn_npu"),
        (lambda: TARGETS.match("zz_*"), "valid: qnn_npu"),
        (lambda: TARGETS.get("\x1b[31m"), "unknown target"),
    ],
)
def test_a_malformed_name_is_an_error_with_the_nearest_valid_one(call: object, near: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError) as caught:
        call()
    assert near in str(caught.value)
    assert str(caught.value).isprintable()


def test_lookup_by_label_alias_and_glob() -> None:
    assert TARGETS.get("QNN-NPU").label == "qnn_npu"
    assert TARGETS.get("cpu").label == "mlas_cpu"
    assert [row.label for row in TARGETS.match("*_npu")] == ["qnn_npu", "ov_npu", "vitisai_npu"]
    assert [row.label for row in TARGETS.match("dml")] == ["dml_gpu"]


def test_adding_a_target_is_adding_data(tmp_path: Path) -> None:
    targets = load_targets(write(tmp_path, CUDA))
    assert targets.labels == (*TARGETS.labels, "cuda_gpu")
    plan = plan_of([a_model()], targets=targets)
    cell = list(plan.cells())[-1]
    assert cell.id == "microsoft/resnet-50:image-classification@cuda_gpu"
    assert cell.version.startswith("0.0.0-20260609-cuda-gpu-microsoft-resnet-50-")
    assert cell.policy.precision == "fp16"
    assert cell.target.provider == "CUDAExecutionProvider"


def test_a_new_ep_is_data_too_and_a_known_label_is_replaced_in_place(tmp_path: Path) -> None:
    text = (
        '[[ep]]\nname = "acme"\nprovider = "AcmeExecutionProvider"\ndevices = ["xpu"]\n'
        "internal_quantization = true\n"
        '[[target]]\nlabel = "acme_xpu"\nep = "Acme"\ndevice = "xpu"\n'
        '[[target]]\nlabel = "dml_gpu"\nep = "dml"\ndevice = "gpu"\nauto = "fp16"\n'
        'blocked_passes = ["ConvActivationFusion"]\nblocked_ops = ["Gelu"]\n'
    )
    targets = load_targets(write(tmp_path, text))
    assert targets.labels == (*TARGETS.labels, "acme_xpu")
    assert targets.get("acme_xpu").internal_quantization
    assert targets.device("xpu") == "xpu"
    row = targets.get("dml_gpu")
    assert (row.auto, row.blocked_passes, row.blocked_ops) == (
        "fp16",
        ("ConvActivationFusion",),
        ("Gelu",),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[target]]\n", "label is missing"),
        ("[[targets]]\n", "unknown key 'targets' (did you mean target?)"),
        ("target = 3\n", "must be a list of tables"),
        ("target = [3]\n", "must be a table"),
        (CUDA.replace('"cuda"', '"cudda"'), "did you mean cuda"),
        (CUDA.replace('"gpu"', '"npu"'), "CUDAExecutionProvider has no device 'npu'"),
        (CUDA.replace("fp16", "fp61"), "auto 'fp61' is not a precision (did you mean fp16"),
        (CUDA.replace("fp16", "auto"), "auto 'auto' is not a precision"),
        (CUDA + 'precsion = "fp16"\n', "unknown key 'precsion' (did you mean precision?)"),
        (CUDA + "opset = [21, 13]\n", "opset must be"),
        (CUDA + "opset = [13, true]\n", "opset must be"),
        (CUDA + "opset = 17\n", "opset must be"),
        (CUDA + 'optimization = "all"\n', "unknown optimization 'all'"),
        (CUDA + "qdq = 1\n", "qdq must be true or false, not 1"),
        (CUDA + 'qdq = false\nprecision = "w8a16"\n', "quantized, which this target cannot take"),
        (CUDA + 'aliases = ["qnn_npu"]\n', "'qnn_npu' also names"),
        (CUDA.replace("cuda_gpu", "export_gpu"), "begins with a reserved word"),
        (CUDA.replace("cuda_gpu", "Cuda GPU"), "may hold only a-z"),
        (CUDA.replace("cuda_gpu", "x" * 33), "32 characters at most"),
        ('[[ep]]\nname = "x"\n', "provider is missing"),
        ('[[ep]]\nname = "x y"\nprovider = "X"\ndevices = ["gpu"]\n', "may hold only a-z"),
        ('[[ep]]\nname = "x"\nprovider = "cpu"\ndevices = ["gpu"]\n', "'cpu' also names cpu"),
        ("label =\n", "is not valid TOML"),
    ],
)
def test_faults_in_a_targets_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_targets(write(tmp_path, text, "mine.toml"))
    assert says in str(caught.value)


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    text = CUDA.replace('"cuda"', '"cudda"') + "qdq = 1\n" + '[[target]]\nlabel = "a"\n'
    with pytest.raises(PlanError) as caught:
        load_targets(write(tmp_path, text, "mine.toml"))
    assert len(caught.value.problems) >= 4
    assert any("mine.toml: target 2 (a)" in problem.where for problem in caught.value.problems)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(MillError, match=r"none\.toml: no such file"):
        load_targets(tmp_path / "none.toml")


def test_targets_is_a_plain_collection() -> None:
    assert len(TARGETS) == 8
    assert isinstance(TARGETS, Targets)


NEW = ("nvtrtrtx_gpu", "migraphx_gpu", "webgpu_gpu", "cuda_gpu")


def test_another_matrix_has_more_targets_and_the_default_one_stays() -> None:
    assert TARGETS.of("default").labels == TARGETS.labels
    assert TARGETS.of("2026").labels == (*TARGETS.labels, *NEW)
    assert TARGETS.of("default", ["WebGPU-GPU", "qnn_npu"]).labels[8:] == ("webgpu_gpu",)
    assert TARGETS.of("default", ["migraphx"]).labels[8:] == ("migraphx_gpu",)
    assert TARGETS.get("cuda_gpu").provider == "CUDAExecutionProvider"
    assert [row.label for row in TARGETS.match("*_gpu")] == ["qnn_gpu", "ov_gpu", "dml_gpu"]
    with pytest.raises(UsageError, match="there is no matrix '2062'") as caught:
        TARGETS.of("2062")
    assert "did you mean 2026" in str(caught.value)


def test_a_target_of_ones_own_may_belong_to_a_matrix(tmp_path: Path) -> None:
    row = '[[target]]\nlabel = "mine"\nep = "cuda"\ndevice = "gpu"\nmatrix = "lab"\n'
    own = load_targets(write(tmp_path, row, "mine.toml"))
    assert (len(own), own.of("lab").labels[-1]) == (8, "mine")
    # A row that replaces another one says again which matrix it belongs to.
    cuda = row.replace("mine", "cuda_gpu").replace('matrix = "lab"\n', "")
    assert load_targets(write(tmp_path, cuda, "cuda.toml")).labels[8:] == ("cuda_gpu",)


def test_quantized_activations_go_only_where_they_are_taken(tmp_path: Path) -> None:
    kinds = {row.label: row.activations for row in TARGETS.every if row.activations != (8, 16)}
    assert kinds == {
        "nvtrtrtx_gpu": (), "migraphx_gpu": (8,), "webgpu_gpu": (), "cuda_gpu": (),
    }  # fmt: skip
    migraphx = TARGETS.get("migraphx_gpu")
    assert [takes(migraphx, one) for one in ("w8a8", "w8a16", "w4", "fp16")] == [
        True, False, True, True,
    ]  # fmt: skip
    text = '[[target]]\nlabel = "a"\nep = "cuda"\ndevice = "gpu"\nactivations = [4]\n'
    with pytest.raises(PlanError, match="activations must be a list of 8 and 16"):
        load_targets(write(tmp_path, text, "bad.toml"))


def test_a_precision_that_is_not_taken_is_dropped_with_the_reason() -> None:
    web = TARGETS.of("default", ["webgpu_gpu"])
    plan = plan_of(
        [a_model("a")],
        targets=web,
        selection=Selection(targets=("webgpu_gpu",)),
        options=plan_options(precision=("w8a16", "w4")),
    )
    one, two = (cell.policy for cell in plan.cells())
    assert (one.precision, two.precision, two.quantizer) == ("fp32", "w4", "MatMulNBits")
    assert "w8a16 is dropped on webgpu_gpu: WebGpuExecutionProvider cannot run" in one.notices[0]
