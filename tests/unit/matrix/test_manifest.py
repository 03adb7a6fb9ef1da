from __future__ import annotations

import pytest

from matrix.manifest import checked_manifest


@pytest.mark.parametrize("told", [64, {"kind": "dataset", "origin": "a.csv", "parts": {"fit": 3}}])
def test_stages_say_how_many_samples_they_took_or_what_they_are(told: object) -> None:
    manifest = {"stages": [{"stage": "quantize", "facts": {"samples": told}}]}
    assert checked_manifest(manifest) == manifest


def test_samples_that_are_neither_are_refused() -> None:
    with pytest.raises(ValueError, match="samples"):
        checked_manifest({"stages": [{"stage": "inputs", "facts": {"samples": "many"}}]})
