"""Decoders are built as users run them, and generate what PyTorch does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.verification import SNR
from tests.docs.pages import DOCS
from tests.engines.hosted import SharedHost
from tests.engines.optimum import builder, plan_catalog
from tests.verification.packages import entries, failed, told
from workers import composition, generation
from workers.build.built import Built
from workers.runtimes.pool import Runtimes
from workers.samples import files
from workers.verify.ladder.subject import Subject
from workers.verify.verifier import Climbed, Verifier

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # the tools' own deprecations are theirs to mend
]

CPU = "CPUExecutionProvider cpu"
GPT2 = "tiny/gpt2:text-generation-with-past"
T5 = "tiny/t5:text2text-generation-with-past"
CATALOG = """
[[model]]
id = "tiny/gpt2"
task = "text-generation-with-past"
model_type = "gpt2"

[model.random]
architecture = "gpt2"
seed = 5

[model.random.config]
n_embd = 32
n_layer = 2
n_head = 4
n_positions = 64
vocab_size = 64
bos_token_id = 2
eos_token_id = 3
initializer_range = 0.2

[[model]]
id = "tiny/t5"
task = "text2text-generation-with-past"
model_type = "t5"

[model.random]
architecture = "t5"
seed = 5

[model.random.config]
d_model = 32
d_kv = 8
d_ff = 64
num_layers = 2
num_decoder_layers = 2
num_heads = 4
vocab_size = 64
decoder_start_token_id = 0
"""

Verify = Callable[[Subject], Climbed]


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, optimum: SharedHost
) -> Iterator[dict[str, Built]]:
    root = tmp_path_factory.mktemp("decoders")
    (root / "tiny.toml").write_text(CATALOG, "utf-8")
    cells = plan_catalog("tiny.toml", root).cells()
    wanted = [one for one in cells if one.target.label in {"mlas_cpu", "qnn_npu"}]
    with builder(root, optimum) as made:
        yield {cell.id: made.build(cell) for cell in wanted}


@pytest.fixture(scope="module")
def verify(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verify]:
    verifier = Verifier(Runtimes(tmp_path_factory.mktemp("logs"), allowed=()))
    yield verifier.climb
    verifier.close()


@pytest.mark.parametrize("model", [GPT2, T5])
@pytest.mark.parametrize("target", ["mlas_cpu", "qnn_npu"])
def test_every_package_generates_pytorchs_text(
    built: dict[str, Built], verify: Verify, model: str, target: str
) -> None:
    climbed = verify(Subject.of(built[f"{model}@{target}"]))
    assert not climbed.failed, [rung.detail for rung in climbed.rungs]
    parity = climbed.rungs[5]
    generated = parity.evidence["generation"]
    assert len(generated["pytorch"]) == generation.COUNT
    least = SNR["fp32" if target == "mlas_cpu" else "w8a16"]
    assert parity.evidence[CPU]["generated logits"]["snr"] >= least
    if model == GPT2:
        assert len(set(generated["pytorch"])) > 4  # one that repeats a token would prove little
    if target == "mlas_cpu":
        assert generated[CPU] == {"tokens": generated["pytorch"], "same": generation.COUNT}
        assert "16 of 16 generated tokens are PyTorch's" in parity.detail


@pytest.mark.vendor
@pytest.mark.parametrize("model", [GPT2, T5])
def test_the_emulated_npu_generates_too(
    built: dict[str, Built], tmp_path: Path, model: str
) -> None:
    verifier = Verifier(Runtimes(tmp_path, allowed=("qnn",)))
    try:
        climbed = verifier.climb(Subject.of(built[f"{model}@qnn_npu"]))
    finally:
        verifier.close()
    assert not climbed.failed, [rung.detail for rung in climbed.rungs]
    (name,) = [run.runtime.name for run in climbed.observed.runs if run.own]
    assert name.startswith("QNNExecutionProvider npu")
    assert climbed.rungs[5].evidence["generation"][name]["tokens"]


@pytest.mark.parametrize("model", [GPT2, T5])
@pytest.mark.parametrize("target", ["mlas_cpu", "qnn_npu"])
def test_the_graphs_of_a_decoder_share_one_file_of_weights(
    built: dict[str, Built], model: str, target: str
) -> None:
    one = built[f"{model}@{target}"]
    record = composition.read(one.folder)
    assert record is not None
    assert record.loop is not None
    assert {each.model for each in record.components} == {
        path.name for path in one.folder.glob("*.onnx")
    }
    assert [path.name for path in one.folder.rglob("*.data")] == ["weights.data"]
    (stage,) = [one for one in one.manifest["stages"] if one["stage"] == "share"]
    weights = stage["facts"]["weights"]
    # Its decoder is there twice, and the steps of T5 do not need all of it.
    assert weights["bytes"] < (0.6 if model == GPT2 else 0.9) * weights["apart"]


@pytest.mark.parametrize("model", [GPT2, T5])
def test_the_export_holds_the_weights_once(built: dict[str, Built], model: str) -> None:
    one = built[f"{model}@mlas_cpu"]
    sizes = {file.path: file.size for file in one.export}
    record = composition.read(one.folder)
    assert record is not None
    assert {path for path in sizes if path.endswith((".onnx", ".data"))} == {
        "weights.data", *(f"{each.name}.onnx" for each in record.components)
    }  # fmt: skip
    # The optimized graphs have the same weights, and those that ONNX Runtime computes from them.
    assert sizes["weights.data"] <= (one.folder / "weights.data").stat().st_size


def test_fixed_shapes_have_room_for_prompt_and_text(built: dict[str, Built]) -> None:
    shapes = Subject.of(built[f"{GPT2}@qnn_npu"]).shapes()
    assert shapes["prefill"]["input_ids"] == [1, 32]
    assert shapes["decode"] == {
        "input_ids": [1, 1], "position_ids": [1, 1], "attention_mask": [1, 64],
        **{f"past_key_values.{n}.{kind}": [1, 4, 63, 8]
           for n in (0, 1) for kind in ("key", "value")},
    }  # fmt: skip
    assert Subject.of(built[f"{T5}@qnn_npu"]).shapes()["decoder"]["input_ids"] == [1, 1]


@pytest.mark.parametrize("model", [GPT2, T5])
@pytest.mark.parametrize("target", ["mlas_cpu", "qnn_npu"])
def test_the_program_of_the_docs_runs_a_package(
    built: dict[str, Built], model: str, target: str
) -> None:
    folder = built[f"{model}@{target}"].folder
    program = DOCS / "samples" / "generate.py"
    ran = subprocess.run(
        [sys.executable, str(program), str(folder), "16"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [int(one) for one in ran.stdout.split()]
    wanted = files.sample(folder / generation.FILE)[generation.TOKENS].tolist()
    if target == "mlas_cpu":
        assert found == wanted
    assert len(found) == len(wanted)


def changed(one: Built, folder: Path, damage: Callable[[Path], None]) -> Subject:
    """A copy of a package with some damage, which it does not know of."""
    subject = Subject.of(one)
    for file in subject.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes((subject.folder / file.path).read_bytes())
    damage(folder)
    return replace(subject, folder=folder, files=entries(folder))


def other_tokens(folder: Path) -> None:
    arrays = files.sample(folder / generation.FILE)
    arrays[generation.TOKENS][9] ^= 1
    np.savez(folder / generation.FILE, **arrays)


def wrong_feed(folder: Path) -> None:
    """The cache of one layer goes into the other: no component shows it by itself."""
    record = json.loads((folder / composition.FILE).read_text("utf-8"))
    first, second, *rest = record["loop"]["feeds"]
    swapped: list[Any] = [
        {"output": second["output"], "input": first["input"]},
        {"output": first["output"], "input": second["input"]},
    ]
    record["loop"]["feeds"] = [*swapped, *rest]
    (folder / composition.FILE).write_text(json.dumps(record), "utf-8")


def no_prompt(folder: Path) -> None:
    (folder / generation.FILE).unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (other_tokens, "token 10 that the export generates is "),
        (wrong_feed, " that the export generates is "),
        (no_prompt, "cannot generate: the package has no generation.npz"),
    ],
)
def test_generation_that_is_wrong_fails_parity(
    built: dict[str, Built],
    verify: Verify,
    tmp_path: Path,
    damage: Callable[[Path], None],
    said: str,
) -> None:
    climbed = verify(changed(built[f"{GPT2}@mlas_cpu"], tmp_path / "package", damage))
    assert failed(climbed) == ["parity"]
    assert said in told(climbed, "parity")


@pytest.mark.slow
def test_the_tokens_are_those_that_transformers_generates(built: dict[str, Built]) -> None:
    """Without our own loop: `generate` of Transformers, with its cache."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    for model, made in ((GPT2, AutoModelForCausalLM), (T5, AutoModelForSeq2SeqLM)):
        folder = built[f"{model}@mlas_cpu"].folder
        given = files.sample(folder / generation.FILE)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        torch.manual_seed(5)
        ready = made.from_config(config).eval()
        ready.generation_config.eos_token_id = None
        inputs = {key.partition("/")[2]: torch.from_numpy(value) for key, value in given.items()
                  if key.startswith("encoder/")}  # fmt: skip
        inputs = inputs or {"input_ids": torch.from_numpy(given["prompt"])[None]}
        found = ready.generate(**inputs, max_new_tokens=generation.COUNT, do_sample=False)
        assert found[0, -generation.COUNT :].tolist() == given[generation.TOKENS].tolist()
