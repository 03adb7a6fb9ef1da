"""Passwords: made at random, in files of their owner, never twice."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from deploy import environment
from deploy.service import read_environment
from matrix.errors import Exit

NAMES = ["postgres.env", "server.env", "worker.env"]


def made(folder: Path, *arguments: str) -> dict[str, dict[str, str]]:
    assert environment.main([str(folder), *arguments]) == Exit.OK
    return {name: read_environment(folder / name) for name in NAMES}


def test_what_is_made_fits_together(tmp_path: Path) -> None:
    files = made(tmp_path / "new", "--database", "db:5433", "--server", "https://p.example/api")
    server, worker, postgres = files["server.env"], files["worker.env"], files["postgres.env"]
    assert worker["PREFECT_API_AUTH_STRING"] == server["PREFECT_SERVER_API_AUTH_STRING"]
    assert worker["PREFECT_API_URL"] == "https://p.example/api"
    prefect, modelmill = postgres["DB_PASSWORD_PREFECT"], postgres["DB_PASSWORD_MODELMILL"]
    wanted = f"postgresql+asyncpg://prefect:{prefect}@db:5433/prefect"
    assert server["PREFECT_API_DATABASE_CONNECTION_URL"] == wanted
    assert worker["MODELMILL_STATE"] == f"postgresql://modelmill:{modelmill}@db:5433/modelmill"
    assert len(set(postgres.values())) == 3


def test_passwords_are_long_and_of_harmless_characters(tmp_path: Path) -> None:
    seen = set()
    for number in range(20):
        for password in made(tmp_path / str(number))["postgres.env"].values():
            assert re.fullmatch(r"[A-Za-z0-9_-]{32}", password)
            seen.add(password)
    assert len(seen) == 60


@pytest.mark.skipif(os.name != "posix", reason="on Windows the folder decides")
def test_only_the_owner_may_read_them(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made(tmp_path)
    finally:
        os.umask(before)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in NAMES} == {0o600}


def test_what_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server.env").write_text("A=old\n", "ascii")
    assert environment.main([str(tmp_path)]) == Exit.USAGE
    assert (tmp_path / "server.env").read_text("ascii") == "A=old\n"
    assert not (tmp_path / "worker.env").exists()
    assert "already contains server.env" in capsys.readouterr().err


def test_nothing_secret_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = made(tmp_path)
    printed = "".join(capsys.readouterr())
    for variables in files.values():
        assert not [value for value in variables.values() if value in printed]


def test_a_folder_that_cannot_be_made_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert environment.main([str(tmp_path / "file" / "below")]) == Exit.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1
