"""Engines with an environment of their own, as the commands speak of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli import doctor
from flows.cli.commands.engine import remember, wanted_environment
from flows.cli.main import main
from flows.settings.engines import check_engine, engine_environment
from flows.settings.resolution import resolve
from machine.installation import install
from matrix.errors import Exit, MillError, UsageError
from workers.errors import EngineNotFound
from workers.host.venv import interpreter_of

WINML = Path(".modelmill", "engines", "winml")


def make_environment(folder: Path) -> Path:
    python = interpreter_of(folder)
    python.parent.mkdir(parents=True)
    python.write_text("")
    return python


def test_an_environment_at_its_place_is_found_without_a_setting(tmp_path: Path) -> None:
    assert "winml" not in resolve({}, {}, tmp_path).engine_pythons
    python = make_environment(tmp_path / WINML)
    assert tmp_path / resolve({}, {}, tmp_path).engine_pythons["winml"] == python
    named = resolve({}, {"MODELMILL_WINML_PYTHON": "/other/python"}, tmp_path)
    assert named.engine_pythons["winml"] == "/other/python"
    assert resolve({"home": "elsewhere"}, {}, tmp_path).engine_pythons == {}
    other = make_environment(tmp_path / "elsewhere" / "engines" / "own")
    settings = resolve({"home": "elsewhere"}, {}, tmp_path)
    assert {name: tmp_path / one for name, one in settings.engine_pythons.items()} == {"own": other}


def test_an_environment_of_an_earlier_version_beside_the_catalog_is_found(tmp_path: Path) -> None:
    python = make_environment(tmp_path / ".venv-winml")
    assert tmp_path / resolve({}, {}, tmp_path).engine_pythons["winml"] == python


def test_an_environment_elsewhere_is_written_into_the_settings_file(tmp_path: Path) -> None:
    python = tmp_path / "far away" / "bin" / "python"
    assert "says where it is" in remember("engine", "winml", python, tmp_path)
    assert resolve({}, {}, tmp_path).engine_pythons == {"winml": str(python)}
    (tmp_path / "modelmill.toml").write_text("jobs = 3\n[engine.other]\npython = 'p'\n", "utf-8")
    remember("engine", "winml", python, tmp_path)
    remember("engine", "winml", python, tmp_path)
    settings = resolve({}, {}, tmp_path)
    assert (settings.jobs, settings.engine_pythons) == (3, {"other": "p", "winml": str(python)})
    told = remember("engine", "winml", tmp_path / "python", tmp_path)
    assert "names another interpreter" in told
    assert resolve({}, {}, tmp_path).engine_pythons["winml"] == str(python)


def test_an_engine_that_is_not_installed_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(
        EngineNotFound, match=r"engine winml is not installed: .* lacks winml"
    ) as one:
        check_engine(resolve({"engine": "winml"}, {}, tmp_path))
    assert one.value.hint == "modelmill engine install winml"
    assert one.value.exit_code is Exit.USAGE
    python = make_environment(tmp_path / WINML)
    site = python.parent.parent / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    with pytest.raises(EngineNotFound, match=r"engines.winml"):
        check_engine(resolve({"engine": "winml"}, {}, tmp_path))
    (site / "winml").mkdir()
    (site / "winml" / "__init__.py").touch()
    check_engine(resolve({"engine": "winml"}, {}, tmp_path))


def test_without_the_build_extra_a_sweep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.host.engines.importable", lambda name: name != "torch")
    with pytest.raises(
        EngineNotFound, match=r"engine optimum is not installed: .* lacks torch"
    ) as one:
        check_engine(resolve({}, {}, tmp_path))
    assert one.value.hint == install("build")


def test_an_engine_with_an_extra_of_its_own_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workers.host.engines.importable", lambda name: name != "skops")
    told = r"engine tabular is not installed: .* lacks skops"
    with pytest.raises(EngineNotFound, match=told) as one:
        check_engine(resolve({"engine": "tabular"}, {}, tmp_path))
    assert one.value.hint == install("tabular")
    assert main(["engine", "ls"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("tabular"))
    assert row.endswith(f"none: {install('tabular')}")
    monkeypatch.setattr(doctor, "installed_engines", lambda: ["tabular"])
    (found,) = doctor._engines(resolve({}, {}, tmp_path), tmp_path)
    assert (found.health, found.detail) == (doctor.Health.NOTE, "lacks skops")
    assert found.mend == install("tabular")


def test_an_engine_that_lives_with_us_has_no_installer() -> None:
    assert engine_environment("optimum") is None
    with pytest.raises(UsageError, match="needs no environment of its own"):
        wanted_environment("optimum")


def test_an_unknown_engine_is_told_with_the_nearest_name() -> None:
    with pytest.raises(MillError, match="there is no engine or runtime 'winlm'") as caught:
        wanted_environment("winlm")
    assert "winml" in caught.value.hint


def test_engine_ls_says_which_environment_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODELMILL_WINML_PYTHON", raising=False)
    assert main(["engine", "ls"]) == Exit.OK
    told = capsys.readouterr().out
    assert "optimum  workers.optimum_engine:OptimumEngine  this one" in told
    assert "none: modelmill engine install winml" in told
    python = make_environment(tmp_path / WINML)
    assert main(["engine", "ls"]) == Exit.OK
    assert str(python.relative_to(tmp_path)) in capsys.readouterr().out
