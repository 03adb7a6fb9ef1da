from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.plan.recorded import recall
from flows.settings.resolution import misspelt, resolve
from flows.settings.settings import CHANGEABLE, FORM, OPTIONS, ORDERED, RECORDED, Settings
from matrix.errors import UsageError
from matrix.reader import MAX_BYTES


def settings(
    folder: Path, toml: str = "", environ: dict[str, str] | None = None, **flags: object
) -> Settings:
    if toml:
        (folder / "modelmill.toml").write_text(toml, encoding="utf-8")
    return resolve(flags, environ or {}, folder)


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    toml = 'jobs = 3\ntimeout = "10m"\nstamp = "a"\n'
    found = settings(tmp_path, toml, {"MODELMILL_JOBS": "5", "MODELMILL_STAMP": "b"}, stamp="c")
    assert (found.stamp, found.origin("stamp")) == ("c", "flag --stamp")
    assert (found.jobs, found.origin("jobs")) == (5, "variable MODELMILL_JOBS")
    assert (found.timeout, found.origin("timeout")) == (600.0, "modelmill.toml")
    assert (found.engine, found.origin("engine")) == ("optimum", "default")


def test_an_empty_variable_sets_nothing(tmp_path: Path) -> None:
    assert settings(tmp_path, environ={"MODELMILL_JOBS": ""}).origin("jobs") == "default"


def test_a_switch_can_be_turned_off_again(tmp_path: Path) -> None:
    found = settings(tmp_path, "no_publish = true", no_publish=False)
    assert found.no_publish is False


def test_lists_come_from_all_sources(tmp_path: Path) -> None:
    assert settings(tmp_path, 'task = ["a", "b"]').task == ("a", "b")
    assert settings(tmp_path, environ={"MODELMILL_TASK": "a, b,"}).task == ("a", "b")
    assert settings(tmp_path, task=("x",)).task == ("x",)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("jbos = 1", "did you mean jobs"),
        ("jobs = 'many'", "jobs.*whole number"),
        ("jobs = 0", "whole number above zero"),
        ("jobs = true", "jobs has the wrong type"),
        ("jobs = [1]", "jobs has the wrong type"),
        ("stamp = 20260609", "stamp is not text"),
        ("task = [1]", "task is not text or a list"),
        ("no_publish = 'yes'", "neither true nor false"),
        ("timeout = '5 parsecs'", "timeout.*not a time"),
        ("jobs = ", "modelmill.toml cannot be read"),
        ("[engine.winml]\npyhton = 'x'", "knows only the key 'python'"),
        ("[engine.winml]\npython = 3", "not a path"),
        ("[engine]\nwinml = 3", "knows only the key"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_place(
    tmp_path: Path, toml: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        settings(tmp_path, toml)
    assert "modelmill.toml" in str(caught.value)


def test_a_wrong_variable_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="MODELMILL_JOBS: '-2' is not"):
        settings(tmp_path, environ={"MODELMILL_JOBS": "-2"})


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "modelmill.toml").write_bytes("jobs = 1".encode("utf-16"))
    with pytest.raises(UsageError, match="cannot be read"):
        settings(tmp_path)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no settings file at other"):
        resolve({}, {}, tmp_path, Path("other.toml"))


def test_engine_interpreters_come_from_file_and_variable(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "[engine.winml]\npython = 'a'\n[engine.x]\npython = 'b'",
        {"MODELMILL_X_PYTHON": "c"},
    )
    assert found.engine_pythons == {"winml": "a", "x": "c"}


def test_a_recorded_sweep_fills_in_what_is_not_said_again(tmp_path: Path) -> None:
    now = settings(tmp_path, "engine = 'file'", {"MODELMILL_TASK": "said"}, jobs=7)
    recorded = {"jobs": 1, "task": ["recorded"], "engine": "recorded", "target": ["a", "b"]}
    again, _catalog = recall(now, "20260609", {**recorded, "gone": 1, "catalog": "demo"})
    assert (again.jobs, again.task) == (7, ("said",))
    assert (again.engine, again.target) == ("recorded", ("a", "b"))
    assert again.origin("target") == "sweep 20260609"


def test_every_option_has_help_and_a_readable_default() -> None:
    for option in OPTIONS.values():
        assert option.help, option.name
        assert option.default is None or not isinstance(option.default, list)


def test_a_folder_called_like_the_settings_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "modelmill.toml").mkdir()
    with pytest.raises(UsageError, match="is a folder, not a settings file"):
        resolve({}, {}, tmp_path)


def test_commas_in_braces_belong_to_the_glob(tmp_path: Path) -> None:
    text = "*@{qnn,ov}_npu, google/*,{a,{b,c}}x"
    expected = ("*@{qnn,ov}_npu", "google/*", "{a,{b,c}}x")
    assert OPTIONS["only"].read(text) == expected
    assert resolve({}, {"MODELMILL_SKIP": text}, tmp_path).skip == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MODELMILL_JBOS", "MODELMILL_JOBS"),
        ("modelmill_job", "MODELMILL_JOBS"),
        ("MODELMILL_AZURE_WROK", "MODELMILL_AZURE_WORK"),
        ("MODELMILL_CONFG", "MODELMILL_CONFIG"),
    ],
)
def test_a_misspelt_variable_is_told_with_the_nearest_name(name: str, meant: str) -> None:
    assert list(misspelt({name: "1"})) == [f"variable {name} sets nothing (did you mean {meant}?)"]


@pytest.mark.parametrize(
    "name",
    [
        "MODELMILL_JOBS",
        "MODELMILL_CONFIG",
        "MODELMILL_WINML_PYTHON",
        "MODELMILL_AZURE_TOOL",
        "MODELMILL_SIGN_PASSWORD",
        "MODELMILL_WORKER_CWD",
        "MODELMILL_SOMETHING_ELSE_ENTIRELY",
        "JBOS",
    ],
)
def test_a_variable_of_ours_or_of_others_is_not_told(name: str) -> None:
    assert list(misspelt({name: "1"})) == []


def test_a_list_in_the_file_is_checked_like_a_flag(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"modelmill\.toml: runtimes: there is no runtime 'qn'"):
        settings(tmp_path, 'runtimes = ["qn"]')


def test_a_child_process_reads_the_same_settings_from_its_variables(tmp_path: Path) -> None:
    toml = 'skip = ["*@{qnn,ov}_npu", "a/*"]\ntimeout = "90s"\nkeep_local = true\n'
    found = settings(tmp_path, toml, jobs=3, disk_budget=10**9, keep_local=False)
    variables = found.variables()
    assert variables["MODELMILL_KEEP_LOCAL"] == "false"
    (tmp_path / "modelmill.toml").unlink()
    again = settings(tmp_path, environ=variables)
    assert again.values() == found.values()
    assert set(variables) == {OPTIONS[name].variable for name in found.origins}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("engine", "fake", 3),
        ("store", "x", True),
        ("jobs", 2, "2"),
        ("opset", 17, True),
        ("timeout", 30, "30s"),
        ("no_publish", False, 0),
        ("task", ["a"], ["a", 1]),
        ("only", ("a",), "a"),
    ],
)
def test_a_recorded_value_must_have_the_type_of_its_setting(
    name: str, good: object, bad: object
) -> None:
    kept = tuple(good) if isinstance(good, list) else good
    assert OPTIONS[name].recorded(good) == kept
    with pytest.raises(ValueError, match="Expected"):
        OPTIONS[name].recorded(bad)


def test_every_setting_belongs_to_one_place() -> None:
    """A new setting that goes into the form of a fleet also reaches the fleet's machines."""
    assert set(FORM) - {"feed"} <= set(ORDERED)
    assert set(RECORDED) <= set(ORDERED)
    assert set(CHANGEABLE) <= set(ORDERED)
    assert not {"home", "jobs", "memory", "stamp", "sign_key", "runtimes"} & set(ORDERED)


def test_a_misspelt_setting_and_a_wrong_type_are_type_errors(tmp_path: Path) -> None:
    """mypy refuses an ignore that it does not need, so it checks this test."""
    found = settings(tmp_path)
    with pytest.raises(AttributeError):
        _ = found.jbos  # type: ignore[attr-defined]  # the point of the test
    limit: str = found.timeout  # type: ignore[assignment]  # the point of the test
    assert limit == 1800.0  # type: ignore[comparison-overlap]  # the same


def test_a_settings_file_is_a_file_of_limited_size(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        resolve({}, {}, tmp_path, Path(os.devnull))
    (tmp_path / "modelmill.toml").write_bytes(b"\n" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="more than"):
        resolve({}, {}, tmp_path)
