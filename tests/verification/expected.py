"""What the verification of every target is made on, on this machine."""

from __future__ import annotations

TARGETS = {
    "qnn_npu", "qnn_gpu", "ov_cpu", "ov_npu", "ov_gpu", "mlas_cpu", "dml_gpu", "vitisai_npu",
}  # fmt: skip


OWN = {
    "mlas_cpu": "CPUExecutionProvider cpu",
    "ov_cpu": "OpenVINOExecutionProvider cpu",
    "qnn_npu": "QNNExecutionProvider npu (emulated)",
}
