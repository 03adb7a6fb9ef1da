"""The docs build without a warning, and every command that a page shows does what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, commands, shown
from tests.services.installing import lacking
from tests.sweeps.command import ROOT, Project, Ran, model

OUTSIDE = {
    "azure.md": "needs an organization; tests/integration/feed/azure has a stand-in",
    "compile.md": "needs a compiler; tests/integration/test_compile_*.py, marked vendor",
    "contexts.md": "needs a compiler; tests/integration/test_compile_contexts.py, marked vendor",
    "coverage.md": "needs registries; tests/integration/test_zoo.py, test_abilities.py",
    "deploy": "needs containers, a cluster or services; tests/unit/deploy/test_files.py",
    "fleet": "needs servers; tests/integration/test_fleet_*.py",
    "install.md": "is run before the tests; .ci/run",
    "knowledge.md": "shows findings; tests/unit/flows/tune/test_knowledge.py",
    "measure.md": "needs a quiet machine; tests/integration/test_bench_*.py",
    "onboard.md": "takes minutes; tests/integration/test_onboard.py",
    "provenance.md": "signing needs a key; tests/integration/test_provenance.py",
    "published.md": "needs providers; tests/integration/test_ladder_vendor.py",
    "runtimes.md": "needs providers; tests/integration/test_ladder_vendor.py",
    "trace.md": "needs a quiet machine; tests/integration/test_trace_*.py",
    "tune.md": "takes minutes; tests/integration/test_tun*.py",
    "winml.md": "needs winml-cli; tests/integration/winml/test_*.py",
}
"""Pages (by how their names begin) with commands that need what this test has not, and where those
are run instead."""

RUN = ("tutorial.md", "release-engineer.md", "storage.md", "scheduler.md", "app-team.md",
       "provenance.md", "tabular.md")  # fmt: skip


def test_the_docs_build_strictly_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    arguments = ["-m", "sphinx", "-q", "-W", "-n", "--keep-going", "-E", "-d", str(tmp_path / "d")]
    ran = subprocess.run(
        [sys.executable, *arguments, str(DOCS), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "html" / "index.html").exists()


def test_every_page_with_commands_is_run_or_says_where_else_they_are() -> None:
    pages = {page.name: page for page in DOCS.glob("*.md") if shown(page) or blocks(page, "sh")}
    left = {name: page for name, page in pages.items() if not name.startswith(tuple(OUTSIDE))}
    assert {*left, "provenance.md"} == set(RUN)
    assert [page.name for page in left.values() if shown(page) != commands(page)] == []
    for begun, why in OUTSIDE.items():
        assert any(name.startswith(begun) for name in pages), begun
        for named in re.findall(r"[\w./*-]+\*?\.py|\.ci/run", why):
            found = named if "/" in named else f"tests/integration/{named}"
            assert list(ROOT.glob(found)), (begun, named)


def check(
    project: Project, page: str, codes: Mapping[str, int] | None = None, *, about: str = ""
) -> dict[str, Ran]:
    """Run the commands of a page in order; each ends well, or with the code that is given."""
    shown = [words for words in commands(DOCS / page) if about in " ".join(words)]
    ran = {" ".join(words): one for words, one in zip(shown, project.session(shown), strict=True)}
    for words, one in ran.items():
        assert (one.code, one.err) == ((codes or {}).get(words, 0), ""), (words, one)
    return ran


@pytest.fixture
def reviews(project: Project, reviews_model: Path) -> Project:
    """A project with what the tutorial's script makes."""
    shutil.copytree(reviews_model, project.folder / "reviews")
    return project


@pytest.fixture(scope="module")
def reviews_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "reviews"
    script = str(DOCS / "samples" / "reviews" / "train.py")
    subprocess.run([sys.executable, script, folder], check=True, capture_output=True)
    return folder


def test_the_tutorial_does_what_it_says(reviews: Project) -> None:
    project = reviews
    ran = list(check(project, "tutorial.md").values())
    assert ran[-1].out.splitlines()[-1].endswith(" unchanged")
    assert "now fails" not in ran[-1].out
    summary = json.loads((project.folder / "out" / "summary.json").read_text("utf-8"))
    assert (summary["stamp"], summary["exit_code"]) == ("tutorial", 0)
    assert "Sweep" in (project.folder / "report.html").read_text("utf-8")
    assert list((project.folder / "pulled").rglob("*.onnx"))


@pytest.mark.engine
def test_the_tutorial_judges_a_model_on_its_own_data(reviews: Project) -> None:
    """The same commands with the engine that builds: another one tells of no samples."""
    reviews.env["MODELMILL_ENGINE"] = "optimum"
    ran = check(reviews, "tutorial.md", about="reviews")
    _plan, swept, status, shown, _pulled = ran.values()
    assert "2 cells: 2 published" in swept.out
    for target, least in (("mlas_cpu", 60), ("qnn_npu", 15)):
        (line,) = (one for one in status.out.splitlines() if f"@{target} " in one)
        told = re.search(r"; 16 dataset samples, ([\d.]+) dB, 100\.0% agree$", line)
        assert told, line
        assert float(told[1]) >= least
    assert "verified on 16 dataset samples, " in shown.out
    for target in ("mlas_cpu", "qnn_npu"):
        package = reviews.folder / "apps" / "modelmill-our-reviews" / target
        answers = {
            sample("classify_text.py", package, f"The {thing} {said}")
            for thing in ("kettle", "screen")
            for said in ("broke after a week.", "is great and I use it every day.")
        }
        assert answers == {"bad", "good"}
        assert sample("classify_text.py", package, "The kettle broke after a week.") == "bad"


def test_the_program_for_images_feeds_what_the_processor_makes(tmp_path: Path) -> None:
    onnx, image = pytest.importorskip("onnx"), pytest.importorskip("PIL.Image")
    from onnx import TensorProto, helper

    size, mean = {"height": 4, "width": 6}, [0.5, 0.25, 0.0]
    how = {"size": size, "rescale_factor": 1 / 255, "image_mean": mean, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(how), "utf-8")
    labels = {"0": "red", "1": "green", "2": "blue"}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": labels}), "utf-8")
    given = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [1, 3, 4, 6])
    wanted = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])
    means = helper.make_node("ReduceMean", ["pixel_values"], ["logits"], axes=[2, 3], keepdims=0)
    graph = helper.make_graph([means], "colors", [given], [wanted])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    for at, name in enumerate(labels.values()):
        color = [40, 40, 40]
        color[at] = 250
        file = tmp_path / f"{name}.png"
        image.new("RGB", (30, 20), tuple(color)).save(file)
        assert sample("classify_image.py", tmp_path, file) == name


def sample(name: str, *words: object) -> str:
    """What a program of the docs prints."""
    script = str(DOCS / "samples" / name)
    ran = subprocess.run(
        [sys.executable, "-W", "error", script, *map(str, words)], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.strip()


def test_the_page_of_tabular_models_does_what_it_says(project: Project) -> None:
    for package in ("sklearn", "skl2onnx", "skops"):
        if find_spec(package) is None:
            lacking("skops")
    training, using = blocks(DOCS / "tabular.md", "python")
    (entry,) = blocks(DOCS / "tabular.md", "toml")
    (project.folder / "tables.toml").write_text(entry, "utf-8")
    python(project, training)
    ran = list(check(project, "tabular.md").values())
    assert "tabular: 1 of 1 entries build" in ran[0].out
    assert "8 cells: 1 published, 7 skipped" in ran[1].out
    python(project, using)
    (manifest,) = project.folder.glob("pulled/**/modelmill.json")
    assert json.loads(manifest.read_bytes())["stages"][0]["facts"]["classes"] == ["no", "yes"]


def python(project: Project, code: str) -> None:
    """Run an example of a page, which checks what it claims."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=project.folder,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_how_to_pages_do_what_they_say(project: Project) -> None:
    """Two batches of what the pages name; the second changed, and some of it failed once."""

    def entry(salt: str, **act: str) -> str:
        named = model("microsoft/resnet-50", salt=salt, act=act)
        return named.replace('"fill-mask"', '"image-classification"')

    once = {
        "optimize@mlas_cpu": f"once:{project.folder / 'first'}:fail:NETWORK",
        "quantize@qnn_npu": f"once:{project.folder / 'second'}:fail:QUANTIZE",
    }
    project.catalog(entry("a"))
    project.catalog(entry("b", **once), name="second.toml")
    before, after = project.session(
        [
            ("sweep", "catalog.toml", "--stamp", "20260609"),
            ("sweep", "second.toml", "--stamp", "20260610", "--tries", "1"),
        ]
    )
    assert (before.code, after.code) == (0, 1), (before, after)

    # What is not taken up is still there, and has failed.
    failed = ("retry --class NETWORK --class DISK", "status --exit-code")
    differs = "diff 20260609 20260610 --exit-code"
    ran = check(project, "release-engineer.md", dict.fromkeys((*failed, differs), 1))
    assert "1 now fails" in ran["diff 20260609 20260610"].out
    page = (project.folder / "report.html").read_text("utf-8")
    assert '"comparison":{"before":"20260609","after":"20260610"' in page
    check(project, "storage.md")
    check(project, "scheduler.md")
    assert (
        json.loads((project.folder / "out" / "summary.json").read_text("utf-8"))["exit_code"] == 0
    )
    ran = check(project, "app-team.md")
    assert list((project.folder / "models").rglob("*.onnx"))
    ran = check(project, "provenance.md")
    assert "the same bytes again" in list(ran.values())[-1].out
