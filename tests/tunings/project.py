"""A folder in which the real command tunes, with a small model and hypotheses of a test."""

from __future__ import annotations

from pathlib import Path

from tests.sweeps.command import Project

MODEL = """
[[model]]
id = "demo/bert"
task = "text-classification"
model_type = "bert"
[model.random]
architecture = "bert"
seed = 7
[model.random.config]
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 64
vocab_size = 64
max_position_embeddings = 32
num_labels = 4
"""
SPACE = """
[[hypothesis]]
id = "no-convolutions"
title = "A pass that finds nothing is left out"
targets = ["*"]
axis = "pass"
[hypothesis.changes.optimum]
without_passes = ["ConvBNFusion"]

[[hypothesis]]
id = "plain-session"
title = "The session optimizes nothing"
targets = ["mlas_cpu"]
axis = "runtime"
runtime = { level = "disabled" }

[[hypothesis]]
id = "as-it-is"
title = "The opset that the catalog has"
targets = ["*"]
axis = "opset"
[hypothesis.changes]
opset = 17

[[hypothesis]]
id = "burst"
title = "The NPU at its fastest"
targets = ["qnn_npu"]
axis = "runtime"
runtime = { htp_performance_mode = "burst" }

[[hypothesis]]
id = "one-stream"
title = "One stream of inferences"
targets = ["ov_cpu"]
axis = "runtime"
runtime = { NUM_STREAMS = 1 }
"""
FEW = ("--iterations", "4", "--warmup", "1", "--threads", "1")


def tuning_project(folder: Path, engine: str = "optimum") -> Project:
    """With `catalog.toml` and `space.toml`."""
    made = Project(folder)
    made.catalog(MODEL)
    (folder / "space.toml").write_text(SPACE, "utf-8")
    # A ledger of its own: builds of other tests would make these wait.
    made.env |= {"MODELMILL_MACHINE": str(folder / "machine"), "MODELMILL_ENGINE": engine}
    return made


def words(name: str, target: str, *only: str) -> tuple[str, ...]:
    """The command that begins a tuning."""
    return (
        "tune", "catalog.toml", "--target", target, "--name", name, "--space", "space.toml",
        "--only", *only, *FEW,
    )  # fmt: skip
