"""What coverage says builds is built and verified, and so is a task that is exported as another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrix.catalog import load_catalog
from matrix.model import Source
from tests.sweeps.command import Project
from workers.sources import source

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SAMPLE = (
    "zoo/electra:token-classification",
    "zoo/convnext:image-classification",
    "zoo/bart:text2text-generation",
)
RANKER = """
[[model]]
id = "tiny/ranker"
task = "text-ranking"

[model.random]
architecture = "bert"

[model.random.config]
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 64
vocab_size = 64
num_labels = 1
initializer_range = 0.3
"""


def zoo() -> dict[tuple[str, str], Source]:
    models = load_catalog("zoo", base=Path.cwd()).models
    return {(one.source.ref, one.task): one.source for one in models}


def project(folder: Path) -> Project:
    return Project(folder, {"MODELMILL_ENGINE": "optimum", "MODELMILL_JOBS": "1"})


def test_an_entry_is_the_configuration_of_transformers_made_tiny() -> None:
    found = source.configuration(
        {"ref": "detr", "config": zoo()["detr", "object-detection"].config}
    )
    assert found["d_model"] == 32
    assert found["encoder_attention_heads"] == 8  # its own row wins
    assert found["backbone_config"]["layer_type"] == "basic"
    plain = source.configuration({"ref": "bart", "config": zoo()["bart", "fill-mask"].config})
    loop = "text2text-generation-with-past"
    reacting = source.configuration({"ref": "bart", "config": zoo()["bart", loop].config})
    assert plain | {"init_std": 0.2} == reacting
    assert (zoo()["bart", "fill-mask"].seed, zoo()["bart", loop].seed) == (5, 6)


def test_a_configuration_that_is_not_of_the_zoo_stays() -> None:
    given = {"hidden_size": 7, "inner": {"size": 1}}
    found = source.configuration({"ref": "bert", "config": given})
    assert found == given
    assert found["inner"] is not given["inner"]


def test_a_sample_is_built_and_verified_and_a_ranker_as_a_classifier(tmp_path: Path) -> None:
    made = project(tmp_path)
    picked = [word for name in SAMPLE for word in ("--only", f"{name}@mlas_cpu")]
    (tmp_path / "ranker.toml").write_text(RANKER, "utf-8")
    sweep = ("--target", "mlas_cpu", "--stamp")
    first, second = made.session(
        [
            ("sweep", "zoo", *picked, *sweep, "one"),
            ("sweep", "ranker.toml", *sweep, "two"),
        ],
        MODELMILL_RUNTIMES="",
    )
    assert (first.code, second.code) == (0, 0), (first, second)
    assert set(made.statuses("one")) == {"published"}
    feed = made.feed()
    (package,) = [name for name in feed.packages() if name.endswith("ranker")]
    (version,) = [one.version for one in feed.versions(package) if "-mlas-cpu-" in one.version]
    feed.fetch(package, version, tmp_path / "pulled")
    manifest = json.loads((tmp_path / "pulled" / "modelmill.json").read_text("utf-8"))
    assert manifest["model"]["task"] == "text-ranking"
    assert manifest["model"]["exported_as"] == "text-classification"
    provenance = next(path for path in (tmp_path / "pulled").iterdir() if "provenance" in path.name)
    assert "text-classification" in provenance.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_all_of_the_zoo_is_built_and_verified(tmp_path: Path) -> None:
    made = project(tmp_path)
    arguments = ("sweep", "zoo", "--target", "mlas_cpu", "--stamp", "one", "--jobs", "2")
    with made.start(*arguments, plain=True, MODELMILL_RUNTIMES="") as running:
        ran = running.end(3 * 3600)
    assert ran.code == 0, ran
    models = load_catalog("zoo", base=tmp_path).models
    assert made.statuses("one") == {"published": len(models)}
