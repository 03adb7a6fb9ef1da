"""What `plan` says of samples: by the files on this machine, without loading anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed.rules import STRICTEST
from flows.plan.samples import outlook
from matrix.catalog import Catalog
from matrix.model import Model, PlannedModel, Source, SourceKind
from matrix.plan import make_plan
from matrix.selector import Selection
from matrix.targets import load_targets
from tests.plans.models import plan_options


def planned(model: Model) -> PlannedModel:
    targets = load_targets()
    options = plan_options("20260609", STRICTEST)
    catalog = Catalog("one", (model,), Path("one.toml"))
    (found,) = make_plan(catalog, targets, Selection(), options).models
    return found


def test_a_folder_with_a_tokenizer_has_real_samples(tmp_path: Path) -> None:
    model = Model("a/b", "fill-mask", Source(SourceKind.FOLDER, str(tmp_path)))
    found = outlook(planned(model), "optimum")
    assert found.kind == "synthetic"
    assert found.origin.startswith("no tokenizer or processor; give it a dataset")
    waived = replace(model, samples={"kind": "synthetic", "reason": "a private sensor"})
    assert outlook(planned(waived), "optimum").origin.endswith("; a private sensor")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    found = outlook(planned(model), "optimum")
    assert (found.kind, found.origin) == ("processor", "tokenizer.json")
    assert found.parts == {"fit": 64, "choose": 8, "judge": 16}
    weights = tmp_path / "model.safetensors"
    with weights.open("wb") as file:
        file.truncate(2 << 30)
    assert outlook(planned(model), "optimum").parts == {"fit": 32, "choose": 4, "judge": 8}
    own = replace(model, dataset={"path": "some/lines.jsonl"})
    assert outlook(planned(own), "optimum").origin == "lines.jsonl"


@pytest.mark.parametrize(
    ("source", "engine", "kind"),
    [
        (Source(SourceKind.RANDOM, "bert"), "optimum", "synthetic"),
        (Source(SourceKind.HUB, "no/such-model"), "optimum", "processor or synthetic"),
        (Source(SourceKind.FOLDER, "nowhere", file="x.skops"), "tabular", "synthetic"),
    ],
)
def test_sources_without_files_here(source: Source, engine: str, kind: str) -> None:
    found = outlook(planned(Model("a/b", "fill-mask", source)), engine)
    assert found.kind == kind


def test_decoders_have_fewer_and_the_catalog_decides_of_calibration() -> None:
    model = Model("a/b", "text-generation-with-past", Source(SourceKind.RANDOM, "gpt2"))
    assert outlook(planned(model), "optimum").parts == {"fit": 32, "choose": 4, "judge": 8}
    overrides: Any = replace(model.overrides, build={"samples": 128})
    found = outlook(planned(replace(model, overrides=overrides)), "optimum")
    assert found.parts == {"fit": 128, "choose": 4, "judge": 8}
    # With winml the option counts winml-cli's own samples.
    found = outlook(planned(replace(model, overrides=overrides)), "winml")
    assert found.parts == {"fit": 32, "choose": 4, "judge": 8}
