"""A distribution that wrote over one of our packages is found and named."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import modelmill
from flows.cli import doctor
from flows.cli.doctor import Health
from flows.cli.installation import PACKAGES, overwritten, sharers
from machine.installation import install, packages


def installed(site: Path, files: Sequence[str]) -> Distribution:
    """A distribution as pip leaves it, with a RECORD of its files."""
    info = site / "modelmill-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: modelmill\nVersion: 0.1.0\n")
    lines = []
    for name in files:
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
        lines.append(f"{name},sha256={digest.rstrip(b'=').decode()},{path.stat().st_size}")
    (info / "RECORD").write_text("\n".join([*lines, "modelmill-0.1.0.dist-info/RECORD,,"]) + "\n")
    return Distribution.at(info)


def test_the_packages_are_those_that_the_start_binds() -> None:
    assert set(PACKAGES) == {*modelmill.ROOMS, "modelmill"}


def test_a_whole_installation_has_nothing_overwritten(tmp_path: Path) -> None:
    assert list(overwritten(installed(tmp_path, ["state/__init__.py", "feed/open.py"]))) == []


def test_files_that_are_changed_or_gone_are_named(tmp_path: Path) -> None:
    ours = installed(tmp_path, ["state/__init__.py", "feed/open.py", "flows/cli/main.py"])
    (tmp_path / "state" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "feed" / "open.py").unlink()
    assert list(overwritten(ours)) == ["state/__init__.py", "feed/open.py"]


def test_only_packages_of_ours_are_looked_at() -> None:
    providers = {"state": ["modelmill", "machines"], "numpy": ["numpy"], "feed": ["modelmill"]}
    assert sharers(providers) == {"state": ["machines"]}


def test_doctor_names_the_package_and_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = installed(tmp_path, ["state/__init__.py"])
    (tmp_path / "state" / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(doctor, "distribution", lambda _name: ours)
    monkeypatch.setattr(doctor, "packages_distributions", lambda: {"state": ["machines"]})
    found = doctor._installation()
    assert found.health is Health.BAD
    assert "state/__init__.py: not modelmill's; machines has a state too" in found.detail
    assert found.mend == f"{packages('uninstall', 'machines')}, then {install(again=True)}"


def test_a_name_that_is_shared_is_told_before_it_hurts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "distribution", lambda _name: installed(tmp_path, []))
    monkeypatch.setattr(doctor, "packages_distributions", lambda: {"feed": ["feedlib"]})
    found = doctor._installation()
    assert found.health is Health.NOTE
    assert "feedlib has a feed too" in found.detail
    assert f"in {Path(modelmill.__file__).parents[1]};" in found.detail
