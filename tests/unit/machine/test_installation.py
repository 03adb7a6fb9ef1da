"""What is missing is installed the way modelmill was, from where it came."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from machine import installation
from machine.installation import EXTRAS, incomplete, install, packages

ROOT = Path(__file__).parents[3]
RECEIPT = '[tool]\nrequirements = [{ name = "modelmill", extras = ["qnn"], path = "x" }]\n'


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment, and modelmill in it from nowhere known."""
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    monkeypatch.setattr(installation, "_ROOT", folder / "site-packages")
    monkeypatch.setenv("PATH", "")
    return folder


def note(prefix: Path, told: Mapping[str, Any]) -> None:
    """What an installer writes of where a distribution came from."""
    info = prefix / "site-packages" / "modelmill-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "direct_url.json").write_text(json.dumps(told))


def file_url(path: Path) -> str:
    return path.as_uri()


def test_each_way_of_installing_has_its_command(prefix: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "with space" / "modelmill-0.1.0-py3-none-any.whl"
    note(prefix, {"url": file_url(wheel), "archive_info": {}})
    wanted = f"{wheel}[build]"

    def words() -> list[str]:
        return typed(install("build"))

    own = str(prefix / "bin" / "python")
    assert words() == [own, "-m", "pip", "install", wanted]
    (prefix / "pyvenv.cfg").write_text("home = x\nuv = 0.9\n")
    assert words() == ["uv", "pip", "install", "--python", str(prefix), wanted]
    (prefix / "uv-receipt.toml").write_text(RECEIPT)
    # uv forgets the extras of a tool that it is not told again.
    assert words() == ["uv", "tool", "install", f"{wheel}[build,qnn]"]
    assert typed(packages("uninstall", "x"))[:3] == ["uv", "pip", "uninstall"]
    (prefix / "pipx_metadata.json").touch()
    assert words() == ["pipx", "runpip", "env", "install", wanted]
    assert typed(install(again=True))[-3:] == ["--force-reinstall", "--no-deps", str(wheel)]


def test_the_pip_on_the_path_is_named_if_it_is_that_of_the_environment(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pip.exe" if os.name == "nt" else "pip"
    (prefix / "bin" / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(prefix / "bin"))
    assert typed(install("sign")) == ["pip", "install", "modelmill[sign]"]
    other = prefix.parent / "other" / "bin" / "python"
    assert typed(install("sign", python=other))[:4] == [str(other), "-m", "pip", "install"]


def test_it_comes_from_where_the_installer_found_it(prefix: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "constraints.txt").touch()
    note(prefix, {"url": file_url(source), "dir_info": {}})
    pins = ["-c", str(source / "constraints.txt")]
    assert typed(install("build"))[-3:] == [*pins, f"{source}[build]"]


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"url": "https://h/m.whl", "archive_info": {}}, "https://h/m.whl"),
        (
            {"url": "https://h/m.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "git+https://h/m.git@abc",
        ),
    ],
)
def test_an_address_is_named_as_it_is(prefix: Path, told: dict[str, Any], place: str) -> None:
    note(prefix, told)
    assert typed(install("azure"))[-1] == f"modelmill[azure] @ {place}"


def test_a_clone_is_installed_as_one(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_ROOT", ROOT)
    pins = str(ROOT / "constraints.txt")
    told = typed(install("build", "sweep", "sign"))
    assert told[-4:] == ["-c", pins, "-e", f"{ROOT}[build,sign]"]


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]

    def parts(name: str) -> set[str]:
        found = {part for line in extras[name] if line.startswith("modelmill[")
                 for part in re.findall(r"[\w-]+", line.partition("[")[2])}  # fmt: skip
        return found.union(*map(parts, found))

    meant = {one for one in extras if one not in {"test", "docs"}}
    for name in meant:
        others = {one for one in meant if name in parts(one)}
        assert set(installation._PART_OF.get(name, ())) == others, name
    assert set(EXTRAS) <= meant


def test_only_what_lacks_a_package_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installation, "importable", lambda name: name not in {"prefect", "securesystemslib"}
    )
    assert incomplete(["azure", "sweep", "sign", "unknown"]) == ["sweep", "sign"]


def typed(command: str) -> list[str]:
    """The words of a command."""
    if os.name == "nt":
        return [one.strip('"') for one in re.findall(r'"[^"]*"|\S+', command)]
    return shlex.split(command)
