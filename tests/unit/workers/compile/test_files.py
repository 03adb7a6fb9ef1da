"""What a compiled model is checked on: the judged samples of its package, where it is in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.compile.files import samples_of


@pytest.mark.parametrize(
    ("model", "samples"),
    [
        ("model.onnx", "samples"),
        ("encoder/model.onnx", "samples/encoder"),
        ("decode.onnx", "samples/decode"),
    ],
)
def test_the_judged_samples_of_the_package_are_used(
    tmp_path: Path, model: str, samples: str
) -> None:
    folder = tmp_path / samples
    folder.mkdir(parents=True)
    for number in range(5):
        for end in (".npz", ".out.npz"):
            (folder / f"{number:02}{end}").touch()
    found = samples_of(tmp_path / model)
    assert found == [str(folder / f"{number:02}.npz") for number in range(3)]


def test_a_model_in_no_package_has_none(tmp_path: Path) -> None:
    assert samples_of(tmp_path / "model.onnx") == []
