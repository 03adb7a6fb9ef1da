"""The entry of an onboarding: made, or taken from a catalog, and written as TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from flows.onboard.entry import Wanted, bare, default_folder, entry_of
from matrix.cellid import model_fault
from matrix.errors import UsageError
from matrix.toml import as_toml

CATALOG = """
[defaults]
priority = "P1"
[[model]]
id = "our/encoder"
task = "fill-mask"
folder = "models/encoder"
dataset = { path = "samples.npz" }
[model.target."*_npu".build]
calibration = "percentile"
[[model]]
id = "our/encoder"
task = "feature-extraction"
folder = "models/encoder"
"""


def test_a_folder_becomes_an_entry_with_its_path_from_the_new_catalog(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    found = entry_of(Wanted("models/mine", "fill-mask"), tmp_path, tmp_path / "out" / "mine")
    assert found == {"id": "local/mine", "task": "fill-mask", "folder": "../../models/mine"}


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("all MiniLM ünï", "local/all-MiniLM-ünï"),
        ("v1 (50%), new", "local/v1-(50-)--new"),
        ("模型", "local/模型"),
    ],
)
def test_a_folder_of_any_name_becomes_an_entry(tmp_path: Path, name: str, named: str) -> None:
    (tmp_path / name).mkdir()
    found = entry_of(Wanted(name, "fill-mask"), tmp_path, tmp_path / "out")
    assert found == {"id": named, "task": "fill-mask", "folder": f"../{name}"}
    assert model_fault(named) == ""


def test_every_model_has_a_folder_of_its_own_for_its_proof() -> None:
    assert default_folder("microsoft/resnet-50") == Path("onboarding/resnet-50")
    names = {default_folder(model).name for model in ("模型", "другая", "..", ".", "our/模型")}
    assert len(names) == 5
    assert all(names)


def test_a_hub_id_needs_nothing_but_a_task(tmp_path: Path) -> None:
    found = entry_of(Wanted("google/vit", "image-classification"), tmp_path, tmp_path / "out")
    assert found == {"id": "google/vit", "task": "image-classification"}
    assert bare(found) is None


def test_an_entry_of_a_catalog_keeps_its_defaults_and_its_files(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(CATALOG)
    wanted = Wanted("our/encoder", "fill-mask", "ours.toml")
    found = entry_of(wanted, tmp_path, tmp_path / "out")
    assert found["priority"] == "P1"
    assert found["folder"] == "../models/encoder"
    assert found["dataset"] == {"path": "../samples.npz"}
    assert tomllib.loads(as_toml("model", found))["model"] == [found]
    plain = bare(found)
    assert plain is not None
    assert found.keys() - plain.keys() == {"target"}


def test_a_dataset_becomes_the_task_of_the_entry(tmp_path: Path) -> None:
    wanted = Wanted("google/vit", "image-classification", None, Path("eval.npz"), "agreement")
    found = entry_of(wanted, tmp_path, tmp_path / "out")
    assert found["verify"] == {"task": {"dataset": "../eval.npz", "metric": "agreement"}}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted("our/encoder", None, "ours.toml"), "add --task"),
        (Wanted("our/encodr", "fill-mask", "ours.toml"), "our/encoder"),
        (Wanted("our/encoder", "image-classification", "ours.toml"), "has no entry"),
        (Wanted("our/encoder", "fill-mask", "registry.json"), "is not a TOML catalog"),
        (Wanted("a/b/c/d", "fill-mask"), "is neither a folder nor an id of the Hub"),
        (Wanted("./away", "fill-mask"), "'./away' is neither a folder nor an id of the Hub"),
        (Wanted("google/vit"), "a new entry needs a task"),
    ],
)
def test_what_cannot_be_an_entry_is_one_clear_line(
    tmp_path: Path, wanted: Wanted, said: str
) -> None:
    (tmp_path / "ours.toml").write_text(CATALOG)
    with pytest.raises(UsageError) as failed:
        entry_of(wanted, tmp_path, tmp_path / "out")
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


def test_toml_holds_texts_of_all_kinds() -> None:
    table = {"id": 'a"b\\c', "x.y": {"list": [1, 2.5, True, "ü"], "empty": {}}}
    assert tomllib.loads(as_toml("model", table)) == {"model": [table]}


@pytest.mark.parametrize("value", ["2026-06-09", "nan", "[{ x = inf }]"])
def test_an_entry_that_cannot_be_written_again_is_told(tmp_path: Path, value: str) -> None:
    text = f'[[model]]\nid = "our/encoder"\ntask = "fill-mask"\nsince = {value}\n'
    (tmp_path / "ours.toml").write_text(text)
    with pytest.raises(UsageError, match="has a value that cannot be kept"):
        entry_of(Wanted("our/encoder", None, "ours.toml"), tmp_path, tmp_path / "out")


def test_a_dataset_takes_the_place_of_a_verification_of_no_form(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(
        '[[model]]\nid = "our/encoder"\ntask = "fill-mask"\nverify = 3\n'
    )
    wanted = Wanted("our/encoder", None, "ours.toml", Path("eval.npz"))
    found = entry_of(wanted, tmp_path, tmp_path / "out")
    assert found["verify"]["task"]["dataset"] == "../eval.npz"
