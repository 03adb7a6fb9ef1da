"""What an installation without extras can do, and what it says of the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from machine.installation import EXTRAS
from tests.machine.timing import patient
from tests.sweeps.command import ROOT, Project, Ran, model

_BARE = """
import sys
from importlib.abc import MetaPathFinder
absent = set(sys.argv.pop(1).split(","))
class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from flows.cli.main import entry
entry()
"""
NEEDS = (
    ("sweep demo", "build"),
    ("sweep demo --state postgresql://127.0.0.1/none", "build,postgres"),
    ("sweep demo --sign-key k.pem", "build,sign"),
    ("sweep demo --fleet", "sweep"),
    ("resume", "build"),
    ("retry", "build"),
    ("status --state postgresql://127.0.0.1/none", "postgres"),
    ("cancel s --state STATE", "sweep"),
    ("explain m:fill-mask@mlas_cpu --state STATE", "build"),
    ("worker", "build"),
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("published"))
    catalog = project.catalog(model())
    project.ok("sweep", catalog, "--target", "mlas_cpu", "--stamp", "s")
    return project


def bare(folder: Path, *arguments: str) -> Ran:
    """The command, where no package of an extra can be imported."""
    absent = ",".join(name for names in EXTRAS.values() for name in names)
    done = subprocess.run(
        [sys.executable, "-c", _BARE, absent, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(120),
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def reads_a_feed(run: Path | None, folder: Path, feed: Path) -> None:
    """`feed ls`, `show`, `pull`, by version and by stamp, and `verify`."""

    def ok(*arguments: str) -> str:
        if run is None:
            done = bare(folder, *arguments)
        else:
            ended = subprocess.run(
                [run, *arguments], cwd=folder, capture_output=True, text=True, check=False
            )
            done = Ran(ended.returncode, ended.stdout, ended.stderr)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    where = ("--feed", str(feed))
    package = "modelmill-tiny-a"
    assert package in ok("feed", "ls", *where)
    listed = ok("feed", "ls", package, *where)
    version = re.search(r"0\.0\.0-s-mlas-cpu-\S+", listed)
    assert version
    assert "modelmill.json" in ok("feed", "show", package, version[0], *where)
    ok("feed", "pull", package, version[0], "--dest", "one", *where)
    assert (folder / "one" / "modelmill.json").exists()
    ok("feed", "pull", "--stamp", "s", "--dest", "all", *where)
    assert ok("feed", "verify", package, version[0], *where).startswith("ok")
    assert ok("feed", "verify", "--folder", "one").startswith("ok")
    assert "mlas_cpu" in ok("plan", "demo")


def test_a_feed_is_read_without_any_extra(published: Project, tmp_path: Path) -> None:
    reads_a_feed(None, tmp_path, published.feed_folder)


@pytest.mark.parametrize(("line", "extras"), NEEDS)
def test_a_command_names_all_extras_that_it_lacks_and_where_they_are(
    line: str, extras: str, published: Project, tmp_path: Path
) -> None:
    words = [str(published.home / "state.db") if word == "STATE" else word for word in line.split()]
    done = bare(tmp_path, *words)
    assert done.code == 2, done
    assert done.out.count("\n") <= 1  # what it begins with
    assert done.err.count("\n") == 1
    assert f"{ROOT}[{extras}]" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_read_without_any_extra(published: Project, tmp_path: Path) -> None:
    state = str(published.home / "state.db")
    for words in ("status", "status --failed", "diff s s", "report -o report.html", "plan demo"):
        done = bare(tmp_path, *words.split(), "--state", state)
        assert (done.code, done.err) == (0, ""), done


def test_the_azure_feed_names_its_extra(tmp_path: Path) -> None:
    url = "azure:https://dev.azure.com/org/project/feed"
    done = bare(tmp_path, "feed", "ls", "--feed", url)
    assert done.code == 2, done
    assert done.err.count("\n") == 1
    assert f"{ROOT}[azure]" in done.err


def test_doctor_tells_what_is_not_installed_and_finds_nothing_bad(
    published: Project, tmp_path: Path
) -> None:
    states = {
        str(published.home / "state.db"): r"^ok    state: .*, 1 sweep$",
        "postgresql://127.0.0.1/none": "^note  state: this needs sqlalchemy",
    }
    for state, finding in states.items():
        done = bare(tmp_path, "doctor", "--state", state)
        assert "Traceback" not in done.err
        assert re.search(finding, done.out, re.MULTILINE), done


@pytest.mark.slow
def test_a_fresh_environment_with_no_extra_reads_a_feed(published: Project, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    scripts = venv / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    # From a copy: an installation leaves a `build` in the folder that it is made from.
    pip: list[str | Path] = [scripts / "python", "-m", "pip", "install", "-q", "-c"]
    copy = tmp_path / "source"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([*pip, ROOT / "constraints.txt", copy], check=True)
    ask = "from importlib.metadata import distributions; print(len(list(distributions())))"
    counted = subprocess.run(
        [scripts / "python", "-c", ask], capture_output=True, text=True, check=True
    )
    assert int(counted.stdout) < 20
    reads_a_feed(scripts / "modelmill", tmp_path, published.feed_folder)
