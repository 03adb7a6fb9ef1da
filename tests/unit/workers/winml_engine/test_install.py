"""Making winml-cli's environment and looking into one, without starting anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from workers.host import venv as venvs
from workers.host.venv import Diagnosis, InstallFailed
from workers.winml_engine.install import ENVIRONMENT, TORCH

GOOD = {
    "python": [3, 11, 7],
    "winml": "0.4.0",
    "onnxruntime": "1.27.0",
    "torch": "2.13.0",
    "problem": "",
}
Answer = Callable[[Sequence[str]], subprocess.CompletedProcess[bytes]]


def done(code: int = 0, out: str = "", err: str = "") -> subprocess.CompletedProcess[bytes]:
    return subprocess.CompletedProcess([], code, out.encode(), err.encode())


@pytest.fixture
def python(tmp_path: Path) -> Path:
    file = tmp_path / "python"
    file.write_text("")
    return file


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[list[str]]]:
    """Answer in the place of child processes; the list fills with their commands."""

    def use(answer: Answer) -> list[list[str]]:
        commands: list[list[str]] = []

        def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
            commands.append(list(command))
            found = answer(command)
            if options.get("check") and found.returncode:
                raise subprocess.CalledProcessError(
                    found.returncode, command, found.stdout, found.stderr
                )
            return found

        monkeypatch.setattr(subprocess, "run", run)
        return commands

    return use


def probed(children: Any, interpreter: Path, **change: Any) -> Diagnosis:
    found = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    children(lambda _command: done(out=f"a banner\n{json.dumps(found)}"))
    return ENVIRONMENT.check(interpreter)


def test_an_environment_that_works(children: Any, python: Path) -> None:
    found = probed(children, python)
    assert found.ok
    assert found.detail == "winml 0.4.0, torch 2.13.0, onnxruntime 1.27.0, python 3.11.7"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"python": [3, 12, 1]}, "is Python 3.12.1, winml-cli needs 3.11"),
        ({"winml": None}, "winml-cli is not installed"),
        ({"winml": "0.5.0"}, "has winml-cli 0.5.0, this engine drives 0.4.0"),
        ({"problem": "ImportError: libGL"}, "is broken: ImportError: libGL"),
    ],
)
def test_one_that_does_not(children: Any, python: Path, change: dict[str, Any], line: str) -> None:
    found = probed(children, python, **change)
    assert not found.ok
    assert line in found.detail
    assert found.hint == "modelmill engine install winml"


@pytest.mark.parametrize("out", ["", "not json", "[]", "{}"])
def test_what_is_no_python_does_not_run(children: Any, python: Path, out: str) -> None:
    children(lambda _command: done(out=out))
    assert "does not run" in ENVIRONMENT.check(python).detail


def test_there_may_be_no_interpreter(tmp_path: Path) -> None:
    assert "there is no interpreter" in ENVIRONMENT.check(tmp_path / "python").detail


def test_our_own_paths_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    found = venvs.foreign_environment()
    assert not {"PYTHONPATH", "VIRTUAL_ENV"} & set(found)
    assert found["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert found["ORT_DISABLE_TELEMETRY"] == "1"


def test_pip_gets_the_password_of_its_index_and_no_other_credential(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hunter2@index.example/simple")
    monkeypatch.setenv("AZURE_DEVOPS_EXT_PAT", "feed-token")
    monkeypatch.setenv("HF_TOKEN", "hub-token")
    found = venvs.foreign_environment()
    assert found["PIP_INDEX_URL"] == "https://me:hunter2@index.example/simple"
    assert not {"AZURE_DEVOPS_EXT_PAT", "HF_TOKEN"} & set(found)


class Machine:
    """Where torchvision can be had, works, or neither."""

    def __init__(self, venv: Path, *, downloads: bool = True, imports: bool = True) -> None:
        self.site = venv / "site-packages"
        self.target = venvs.interpreter_of(venv)
        self._downloads, self._imports = downloads, imports

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        text = " ".join(command)
        if "-m venv" in text:
            self.site.mkdir(parents=True)
            self.target.parent.mkdir(parents=True)
            self.target.write_text("")
        if "sysconfig" in text:
            return done(out=f"{self.site}\n")
        if "--no-deps torchvision" in text:
            return done(0 if self._downloads else 1)
        if "import torchvision" in text:
            return done(0 if self._imports else 1)
        return done(out=json.dumps(GOOD))


@pytest.mark.parametrize(
    ("downloads", "imports", "left_out"),
    [(True, True, False), (True, False, True), (False, False, True)],
)
def test_torchvision_is_kept_only_where_it_works(
    children: Any, tmp_path: Path, downloads: bool, imports: bool, left_out: bool
) -> None:
    venv = tmp_path / "venv"
    machine = Machine(venv, downloads=downloads, imports=imports)
    commands = children(machine)
    said: list[str] = []
    assert ENVIRONMENT.install(venv, Path("python3.11"), say=said.append) == machine.target
    notes = list(machine.site.glob("torchvision-*.dist-info"))
    assert bool(notes) is left_out
    assert any("left out" in text for text in said) is left_out
    removed = [command for command in commands if "uninstall" in command]
    assert bool(removed) is (downloads and not imports)
    if notes:
        assert "Name: torchvision\n" in (notes[0] / "METADATA").read_text()


def test_torch_comes_first_and_stays(children: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    commands = children(Machine(venv))
    ENVIRONMENT.install(venv, Path("python3.11"))
    lines = [" ".join(command) for command in commands]
    torch = next(i for i, line in enumerate(lines) if line.endswith(f"torch=={TORCH}"))
    winml = next(i for i, line in enumerate(lines) if "winml-cli==0.4.0" in line)
    assert torch < winml
    assert f"torch=={TORCH}" in (venv / "pins.txt").read_text()
    assert "-c" in commands[winml]


def test_one_that_is_complete_is_left_alone(children: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    machine = Machine(venv)
    commands = children(machine)
    ENVIRONMENT.install(venv, Path("python3.11"))
    del commands[:]
    ENVIRONMENT.install(venv, Path("python3.11"))
    assert len(commands) == 1, "it is looked into and nothing else"


def test_a_failure_of_pip_is_one_line(children: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    machine = Machine(venv)

    def offline(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        if "install" in command:
            return done(1, err="WARNING: retry\nERROR: no matching distribution\nmore")
        return machine(command)

    children(offline)
    with pytest.raises(InstallFailed) as caught:
        ENVIRONMENT.install(venv, Path("python3.11"))
    assert caught.value.message == "pip cannot be updated: ERROR: no matching distribution"


def test_without_a_python_that_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(InstallFailed, match=r"no Python 3\.11 here"):
        ENVIRONMENT.install(tmp_path / "venv")


def test_an_environment_that_turns_out_broken_is_told(children: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    machine = Machine(venv)
    broken = json.dumps({**GOOD, "problem": "ImportError: x"})

    def answer(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        found = machine(command)
        return done(out=broken) if found.stdout == json.dumps(GOOD).encode() else found

    children(answer)
    with pytest.raises(InstallFailed, match="is broken: ImportError: x"):
        ENVIRONMENT.install(venv, Path("python3.11"))
