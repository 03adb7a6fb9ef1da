"""What keeps `modelmill ui` from opening Prefect's interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.main import main
from matrix.errors import Exit


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_a_server_of_the_users_own_has_its_own_interface(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://me:secret@prefect.example:4200/api")
    assert main(["ui"]) == Exit.USAGE
    told = capsys.readouterr().err
    assert "open https://prefect.example:4200/, or unset the variable" in told
    assert "secret" not in told


def test_without_a_sweep_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--home", "elsewhere"]) == Exit.USAGE
    assert "no sweep of the folder" in capsys.readouterr().err
    assert not list(Path.cwd().iterdir())
