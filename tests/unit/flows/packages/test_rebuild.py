"""What is built again, from what a package says of itself; the building is tested as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed.errors import Corrupt
from flows.packages.published import Original
from flows.packages.rebuild import Rebuilt, _cell
from flows.settings.resolution import resolve
from matrix.errors import UsageError
from matrix.model import Cell, Source, SourceKind
from tests.plans.cells import make_cell
from workers.attest.provenance import recipe_of

ALLOW = {"remote_code": False, "pickle": False}
COMMIT = "c" * 40


def sourced(kind: SourceKind, ref: str, revision: str | None = None) -> Cell:
    cell = make_cell()
    return replace(cell, model=replace(cell.model, source=Source(kind, ref, revision)))


def original(cell: Cell, **source: Any) -> Original:
    recipe = json.loads(json.dumps(recipe_of(cell, allow=ALLOW)))
    return Original("p v", {"source": {"digest": "d", **source}}, recipe, "20260609", "t")


def read(
    what: Original, folder: Path, source: str | None = None, recipes: str | None = None
) -> Cell:
    given = {
        "source": Path(source) if source else None,
        "recipes": Path(recipes) if recipes else None,
    }
    return _cell(what, resolve({}, {}, folder), given)


def test_a_branch_is_built_again_from_the_commit_that_it_was(tmp_path: Path) -> None:
    hub = sourced(SourceKind.HUB, "org/model", "main")
    assert read(original(hub, commit=COMMIT), tmp_path).model.source.revision == COMMIT
    assert read(original(hub), tmp_path).model.source.revision == "main"


def test_a_folder_is_asked_for_and_must_be_there(tmp_path: Path) -> None:
    what = original(sourced(SourceKind.FOLDER, "/of/another/machine/weights"))
    with pytest.raises(UsageError, match="'weights'") as caught:
        read(what, tmp_path)
    assert "--source" in caught.value.hint
    with pytest.raises(UsageError, match="no such folder"):
        read(what, tmp_path, "absent")
    (tmp_path / "here").mkdir()
    assert read(what, tmp_path, "here").model.source.ref == str(tmp_path / "here")


def test_recipes_are_asked_for_where_there_were_some(tmp_path: Path) -> None:
    cell = make_cell()
    what = original(replace(cell, model=replace(cell.model, recipes="/elsewhere/authored")))
    with pytest.raises(UsageError, match="with recipes named 'authored'") as caught:
        read(what, tmp_path)
    assert "--recipes" in caught.value.hint
    (tmp_path / "here").mkdir()
    assert read(what, tmp_path, recipes="here").model.recipes == str(tmp_path / "here")
    # Older packages do not tell.
    assert read(original(cell), tmp_path).model.recipes is None
    assert read(original(cell), tmp_path, recipes="here").model.recipes == str(tmp_path / "here")


def _drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def drop(recipe: dict[str, Any]) -> None:
        for name in path[:-1]:
            recipe = recipe[name]
        del recipe[path[-1]]

    return drop


@pytest.mark.parametrize(
    "spoil",
    [
        _drop("model"),
        _drop("model", "source", "kind"),
        _drop("policy", "precision"),
        _drop("target", "ep"),
        _drop("allow", "pickle"),
        lambda recipe: recipe.update(model=3),
        lambda recipe: recipe["model"].update(source=None),
        lambda recipe: recipe["policy"].update(surprise=1),
        lambda recipe: recipe["model"]["source"].update(kind="ftp"),
    ],
)
def test_what_holds_no_recipe_is_corrupt_and_no_crash(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None]
) -> None:
    what = original(make_cell())
    spoil(what.recipe)  # type: ignore[arg-type]  # made here, from JSON
    with pytest.raises(Corrupt, match="holds no recipe"):
        read(what, tmp_path)


def test_the_same_means_the_same_tree() -> None:
    made = Rebuilt("p", "v", "a", "a", (), 1.0)
    assert made.same
    assert not replace(made, rebuilt="b").same
