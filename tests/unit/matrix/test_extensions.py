"""Packages that add architectures: what plans, coverage and keys know of them without importing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix import extensions
from matrix.abilities import abilities_of
from matrix.coverage import Verdict, cover
from matrix.errors import UsageError
from matrix.model import Model, Source, SourceKind
from tests.engines.extension import install
from tests.engines.sources import make_request
from workers.engine import StageError, StageSpec
from workers.optimum_engine import OptimumEngine
from workers.optimum_engine.architectures import rows

CACHES = (extensions.extensions, abilities_of, rows.rows)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for cache in CACHES:
        cache.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for cache in CACHES:
        cache.cache_clear()


def export(architecture: str) -> StageSpec:
    source = {"kind": "random", "ref": architecture, "seed": 1, "config": {}}
    request = make_request(source=source)
    return next(one for one in OptimumEngine().plan(request).stages if one.name == "export")


def test_coverage_knows_its_architecture_and_does_not_import_it(site: Path) -> None:
    install(site)
    model = Model("a/ring", "image-classification", source=Source(SourceKind.RANDOM, "ringnet"))
    assert cover(model, "optimum").verdict is Verdict.BUILDS
    assert cover(model, "winml").verdict is not Verdict.BUILDS
    assert "ringnet" not in sys.modules


@pytest.mark.engine
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_its_version_is_in_the_keys_of_what_it_exports_alone(site: Path, version: str) -> None:
    install(site, version)
    assert export("ringnet").params["extensions"] == [f"ringnet {version}"]
    assert "extensions" not in export("bert").params


@pytest.mark.engine
def test_an_unknown_key_of_a_row_is_told(site: Path) -> None:
    install(site)
    (site / "ringnet" / "architectures.toml").write_text("[ringnet]\ntasks = []\nexportr = 1\n")
    with pytest.raises(StageError, match="unknown key 'exportr'"):
        export("ringnet")


@pytest.mark.parametrize("text", ["[ringnet]\n", "[ringnet", '[ringnet]\ntasks = "all"\n'])
def test_a_broken_file_names_the_package(site: Path, text: str) -> None:
    install(site)
    (site / "ringnet" / "architectures.toml").write_text(text)
    with pytest.raises(UsageError, match=r"architectures\.toml"):
        abilities_of("optimum")
