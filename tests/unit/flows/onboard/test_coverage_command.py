"""`modelmill coverage`: what people and machines are told of a catalog."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from flows.plan.configs import config_of
from matrix.coverage import heads
from matrix.model import Model, Source, SourceKind

ROWS = (
    ("a/bert", "fill-mask", "bert", "P0"),
    ("a/rank", "text-ranking", "bert", "P1"),
    ("a/seamless", "automatic-speech-recognition", "seamless_m4t_v2", "P1"),
    ("a/trees", "tabular-classification", "sklearn", "P3"),
)


def registry(folder: Path, rows: Any = ROWS) -> str:
    entries = [
        {"hf_id": name, "task": task, "model_type": kind, "group": "g", "priority": priority}
        for name, task, kind, priority in rows
    ]
    file = folder / "registry.json"
    file.write_text(json.dumps(entries), "utf-8")
    return str(file)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_people_see_entries_totals_and_engines(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coverage", registry(project)]) == 0
    told = capsys.readouterr().out
    assert "a/bert:fill-mask" not in told  # it simply builds
    assert "text-classification: a ranker is a text classifier with one label" in told
    (row,) = [
        line
        for line in told.splitlines()
        if line.startswith("a/seamless:automatic-speech-recognition")
    ]
    assert row.split()[1:3] == ["seamless_m4t_v2", "needs-exporter"]
    assert "nearest that builds: " in told
    for words in (["P1", "2", "0", "1", "1", "0"], ["bert", "2", "1", "1", "0", "0"]):
        assert words in [line.split() for line in told.splitlines()]
    last = [line for line in told.splitlines() if " entries build (" in line]
    assert last == [
        "optimum: 2 of 4 entries build (1 builds, 1 builds-as, 1 needs-exporter, 1 impossible)",
        "tabular: 0 of 4 entries build (3 impossible, 1 unknown)",
        "winml: 1 of 4 entries build (1 builds, 3 unknown)",
    ]


def test_tiny_models_of_the_zoo_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(f"a/{name}", "fill-mask", name, "P0") for name in ("bert", "squeezebert", "mpnet")]
    assert main(["coverage", registry(project, rows), "--engine", "winml"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert "winml: the tiny models of 3 of 3 entries are verified for mlas_cpu" in told
    assert main(["coverage", registry(project, rows), "--engine", "winml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["entries"]
    assert [one["tiny_model"]["mlas_cpu"] for one in found] == ["verified"] * 3


def test_machines_get_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coverage", registry(project), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in found["entries"]] == [
        "builds", "builds-as", "needs-exporter", "impossible",
    ]  # fmt: skip
    assert found["totals"]["priority"]["P1"] == {"builds-as": 1, "needs-exporter": 1}
    assert found["engines"]["optimum"]["builds"] == 1


def test_the_engine_that_is_asked_for_comes_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coverage", registry(project), "--engine", "winml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second, _tabular = [line for line in lines if " entries build (" in line]
    assert first == "winml: 1 of 4 entries build (1 builds, 3 unknown)"
    assert second.startswith("optimum: 2 of 4")


def test_a_misspelt_engine_and_catalog(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coverage", registry(project), "--engine", "optimun"]) == 2
    assert "did you mean optimum" in capsys.readouterr().err
    assert main(["coverage", "dem"]) == 2
    assert "did you mean demo?" in capsys.readouterr().err


def test_every_architecture_of_transformers_takes_moments(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"org/{name}", task, name, "P2") for name, tasks in heads().items() for task in tasks]
    assert len(rows) > 456
    started = time.process_time()
    assert main(["coverage", registry(project, rows), "--json"]) == 0
    assert time.process_time() - started < 5
    found = json.loads(capsys.readouterr().out)
    assert len(found["entries"]) == len(rows)
    assert found["engines"]["optimum"]["builds"] > 300


def test_a_config_is_read_from_a_folder_and_from_the_cache_of_the_hub(project: Path) -> None:
    folder = project / "mine"
    folder.mkdir()
    mine = Model("a/b", "fill-mask", Source(SourceKind.FOLDER, str(folder)))
    assert config_of(mine) is None
    (folder / "config.json").write_text('{"model_type": "bert"}')
    assert config_of(mine) == {"model_type": "bert"}
    commit = "a" * 40
    place = project / "cache" / "models--org--name"
    (place / "snapshots" / commit).mkdir(parents=True)
    (place / "snapshots" / commit / "config.json").write_text('{"model_type": "vit"}')
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    for revision in (None, "main", commit):
        hub = Model("org/name", "x", Source(SourceKind.HUB, "org/name", revision))
        assert config_of(hub) == {"model_type": "vit"}
    for revision in ("v2", "../refs/main", "/main"):
        hub = Model("org/name", "x", Source(SourceKind.HUB, "org/name", revision))
        assert config_of(hub) is None


@pytest.mark.parametrize(
    ("task", "architecture", "graph"),
    [
        ("summarization", "gpt2", "text-generation-with-past"),
        ("text-generation", "t5", "text2text-generation"),
        ("fill-mask", "seamless_m4t_v2", None),
    ],
)
def test_a_plan_says_of_a_folder_what_the_coverage_says(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    task: str,
    architecture: str,
    graph: str | None,
) -> None:
    (project / "mine").mkdir()
    (project / "mine" / "config.json").write_text(json.dumps({"model_type": architecture}))
    entry = f'[[model]]\nid = "our/own"\ntask = "{task}"\nfolder = "mine"\n'
    (project / "ours.toml").write_text(entry)
    assert main(["coverage", "ours.toml", "--json"]) == 0
    (covered,) = json.loads(capsys.readouterr().out)["entries"]
    main(["plan", "ours.toml", "--target", "mlas_cpu", "--json"])
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["exported_as"] == graph
    if graph:
        assert covered["exported_as"] == graph
    else:
        assert cell["skip"] == f"cannot be built: {covered['why']}"


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"model_type": ', "\xff"])
def test_rubbish_in_place_of_a_config_is_none(project: Path, text: str) -> None:
    (project / "config.json").write_text(text, "latin-1")
    mine = Model("a/b", "fill-mask", Source(SourceKind.FOLDER, str(project)))
    assert config_of(mine) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
def test_a_pipe_in_place_of_a_config_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "config.json")
    assert config_of(Model("a/b", "fill-mask", Source(SourceKind.FOLDER, str(project)))) is None
