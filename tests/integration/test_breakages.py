"""Every way to break a graph that we know is caught, in at least three architectures."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import onnxruntime
import pytest

from matrix.verification import RUNGS
from tests.engines.hosted import SharedHost
from tests.engines.optimum import builder, plan_catalog
from tests.verification.breakages import (
    BREAKAGES,
    CACHED,
    COSINES,
    NEED_TRAINING,
    QUANTIZED,
    Break,
    alive,
    old_measure,
    old_samples,
)
from tests.verification.packages import entries, part, warm
from workers import composition
from workers.build.built import Built
from workers.build.claim import Claim
from workers.runtimes import values
from workers.samples import files, synthetic
from workers.sources import model_file, runtime
from workers.store import Store
from workers.verify.ladder.subject import Subject
from workers.verify.verifier import Climbed, Verifier

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),  # the tools' own deprecations are theirs to mend
]

LEAST = 3
"""Architectures in which each breakage is caught."""
_TEXT = (
    "hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 64, "
    "vocab_size = 64, max_position_embeddings = 64, initializer_range = 0.4"
)
_IMAGE = (
    "hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 64, "
    "image_size = 32, patch_size = 8, num_labels = 8, initializer_range = 0.8"
)
_SOUND = (
    "hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 64, "
    "conv_dim = [16, 16], conv_stride = [5, 2], conv_kernel = [10, 3], classifier_proj_size = 16, "
    "num_feat_extract_layers = 2, num_conv_pos_embeddings = 16, num_conv_pos_embedding_groups = 4, "
    "num_labels = 8, initializer_range = 0.8"
)
CONFIGS = {
    "bert": ("question-answering", _TEXT),
    "electra": ("question-answering", f"embedding_size = 32, {_TEXT}"),
    "albert": ("question-answering", f"embedding_size = 32, {_TEXT}"),
    "vit": ("image-classification", _IMAGE),
    "vit_msn": ("image-classification", _IMAGE),
    "beit": ("image-classification", _IMAGE),
    "wav2vec2": ("audio-classification", _SOUND),
}
_GPT = (
    "n_embd = 32, n_layer = 2, n_head = 4, n_positions = 64, vocab_size = 64, "
    "bos_token_id = 2, eos_token_id = 3, initializer_range = 0.2"
)
_LLAMA = (
    "hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, vocab_size = 64, "
    "num_attention_heads = 4, max_position_embeddings = 64, initializer_range = 0.2"
)
_T5 = (
    "d_model = 32, d_kv = 8, d_ff = 64, num_layers = 2, num_decoder_layers = 2, num_heads = 4, "
    "vocab_size = 64, decoder_start_token_id = 0"
)
DECODERS = {
    "gpt2": ("text-generation-with-past", _GPT),
    "llama": ("text-generation-with-past", _LLAMA),
    "t5": ("text2text-generation-with-past", _T5),
}
"""Whose graphs of the first and of every further token are broken alike."""
CONFIG = SimpleNamespace(vocab_size=64, type_vocab_size=2, pad_token_id=0)
TASKS = {"question-answering": "question-answering"}
"""Whose decisions are judged: an image classifier of random weights may see one class alone."""
QUANTIZED_TOO = ("bert", "electra", "vit")
CATALOG = "\n".join(
    f'[[model]]\nid = "broken/{name}"\ntask = "{task}"\nmodel_type = "{name}"\n'
    f'random = {{ architecture = "{name}", seed = 3, config = {{ {config} }} }}\n'
    for name, (task, config) in {**CONFIGS, **DECODERS}.items()
)

Cases = dict[str, dict[str, Built]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, optimum: SharedHost) -> Iterator[Cases]:
    """By precision and architecture."""
    root = tmp_path_factory.mktemp("breakages")
    (root / "broken.toml").write_text(CATALOG, "utf-8")
    cells = plan_catalog("broken.toml", root).cells()
    found: Cases = {"fp32": {}, "w8a16": {}, "cached": {}}
    with builder(root, optimum) as made:
        for cell in cells:
            name = cell.model.model_type
            if cell.target.label == "mlas_cpu":
                found["cached" if name in DECODERS else "fp32"][name] = made.build(cell)
            if cell.target.label == "qnn_npu" and name in QUANTIZED_TOO:
                found["w8a16"][name] = made.build(cell)
        yield found


class Gates:
    """The gate, and the one before it, for one package."""

    def __init__(self, built: Built, precision: str, root: Path, verifier: Verifier) -> None:
        self._built, self._precision, self._verifier = built, precision, verifier
        self._root = root
        root.mkdir(parents=True)
        sound = onnx.load(built.folder / "model.onnx")
        if precision == "fp32":
            alive(sound)
        self.sound = sound
        self._export = root / "export"
        self._export.mkdir()
        onnx.save(sound, self._export / "model.onnx")
        self._store = Store(root / "store")
        self._first = files.sample(built.folder / "samples" / "00.npz")
        self._ports = runtime.signature(self._export / "model.onnx")

    def climb(self, model: Any, name: str) -> Climbed:
        """Whether the package passes with this graph in place of its own."""
        assert self._built.claim is not None
        folder = self._root / name
        folder.mkdir()
        for number in range(8):
            made = synthetic.sample(self._ports, {}, CONFIG, number, self._first)
            values.write_kept(folder / "samples" / f"{number:02}.npz", made)
        onnx.save(model, folder / "model.onnx")
        held = Claim("broken", self._built.claim.target, self._precision,
                     task=TASKS.get(self._built.claim.task, ""))  # fmt: skip
        subject = Subject(held, folder, entries(folder), self._store, {}, part(self._export))
        return self._verifier.climb(subject)

    def old(self, model: Any) -> bool:
        """Whether the gate before would have passed it."""
        sizes = {name: value.shape for name, value in self._first.items()}
        outputs = []
        for one in (model, self.sound):
            session = onnxruntime.InferenceSession(
                one.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            sets = old_samples(session.get_inputs(), sizes)
            outputs.append([session.run(None, sample) for sample in sets])
        return old_measure(*outputs).misses(COSINES[self._precision])


def caught_by(climbed: Climbed) -> str:
    """The first rung above `policy` that fails, with the worst figure; empty: none does."""
    for name in RUNGS[3:]:
        rung = next((one for one in climbed.rungs if one.name == name), None)
        if rung is not None and rung.passed is False:
            evidence: Mapping[str, Any] = rung.evidence
            rows: Mapping[str, Any] = next(
                (one for key, one in evidence.items() if "Provider" in key), {}
            )
            figures = [row["snr"] for row in rows.values() if "snr" in row]
            return f"{name} {min(figures):.0f} dB" if figures else name
    return ""


def table(
    cases: Cases, breakages: dict[str, Break], precision: str, root: Path, verifier: Verifier
) -> dict[str, dict[str, tuple[str, bool]]]:
    """Breakage -> architecture -> what caught it, and whether the old gate passed it."""
    found: dict[str, dict[str, tuple[str, bool]]] = defaultdict(dict)
    for name, one in cases[precision].items():
        gates = Gates(one, precision, root / precision / name, verifier)
        whole = gates.climb(gates.sound, "sound")
        assert whole.rungs[-1].passed, (name, [(rung.name, rung.detail) for rung in whole.rungs])
        assert not caught_by(whole), name
        for number, (what, break_it) in enumerate(breakages.items()):
            model = onnx.ModelProto()
            model.CopyFrom(gates.sound)
            if break_it(model):
                found[what][name] = caught_by(gates.climb(model, str(number))), gates.old(model)
    return found


@pytest.mark.parametrize(("precision", "breakages"), [("fp32", BREAKAGES), ("w8a16", QUANTIZED)])
def test_every_breakage_is_caught_in_three_architectures(
    built: Cases, tmp_path: Path, precision: str, breakages: dict[str, Break],
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    with warm(tmp_path) as runtimes:
        verifier = Verifier(runtimes)
        found = table(built, breakages, precision, tmp_path, verifier)
        verifier.close()
    for what, row in found.items():
        print(f"{what:36} {row}")
        record_property(what, row)
    assert found.keys() == breakages.keys()
    missed = {
        what: [name for name, (how, _) in row.items() if not how] for what, row in found.items()
    }
    assert not any(missed.values()), missed
    few = {what: list(row) for what, row in found.items() if len(row) < LEAST}
    assert not few


def test_a_broken_decoder_is_caught_in_three_architectures(
    built: Cases, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In the graphs of its cache, and in the weights that they share with the first graph."""
    breakages = {name: one for name, one in BREAKAGES.items() if name not in NEED_TRAINING}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    with warm(tmp_path) as runtimes:
        verifier = Verifier(runtimes)
        for name, one in built["cached"].items():
            subject, sound = Subject.of(one), tmp_path / name / "sound"
            shutil.copytree(one.folder, sound)
            whole = verifier.climb(subject)
            assert not whole.failed, (name, [rung.detail for rung in whole.rungs])
            for number, (what, break_it) in enumerate({**breakages, **CACHED}.items()):
                folder = tmp_path / name / str(number)
                shutil.copytree(sound, folder)
                hit = [broken(path, break_it) for path in _stepping(folder)]
                if any(hit):
                    changed = replace(subject, folder=folder, files=entries(folder))
                    found[what][name] = caught_by(verifier.climb(changed))
        verifier.close()
    for what, row in found.items():
        print(f"{what:36} {row}")
        record_property(what, row)
    missed = {what: [name for name, how in row.items() if not how] for what, row in found.items()}
    assert not any(missed.values()), missed
    assert {what for what, row in found.items() if len(row) >= LEAST} >= CACHED.keys()
    assert len([row for row in found.values() if len(row) >= LEAST]) >= 12


def _stepping(folder: Path) -> list[Path]:
    """The graphs of the first and of every further token."""
    record = composition.read(folder)
    assert record is not None
    assert record.loop is not None
    names = {record.loop.begin, record.loop.step}
    return [folder / one.model for one in record.components if one.name in names]


def broken(file: Path, break_it: Break) -> bool:
    """Whether a graph had what is broken in it."""
    model = model_file.load(file)
    hit = break_it(model)
    if hit:
        onnx.save(model, file)
    return hit
