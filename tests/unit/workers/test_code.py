"""The digest of the code behind a stage."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import pytest

from workers import code


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose module `stage` imports `helper`, which imports `constants`."""
    files = {
        "stage.py": "def run() -> None:\n    from workers.own import helper\n",
        "helper.py": "from workers.own.constants import LIMIT\nimport numpy\n",
        "constants.py": "LIMIT = 1\n",
        "other.py": "SPARE = 1\n",
        "__init__.py": "from workers.own import other\n",
        "rows.toml": "a = 1\n",
    }
    folder = tmp_path / "workers" / "own"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    return folder


def digest(*names: str) -> str:
    code.digest.cache_clear()
    code._imports.cache_clear()
    return code.digest(*names)


@pytest.mark.parametrize(
    ("file", "changes"),
    [("stage.py", True), ("helper.py", True), ("constants.py", True), ("other.py", False),
     ("rows.toml", False)],
)  # fmt: skip
def test_what_a_stage_imports_changes_its_digest_and_nothing_else_does(
    tree: Path, file: str, changes: bool
) -> None:
    before = digest("workers.own.stage")
    assert len(before) == 64
    (tree / file).write_text("LIMIT = 2\n", encoding="utf-8", newline="\n")
    assert (digest("workers.own.stage") != before) is changes


def test_a_package_counts_with_its_data(tree: Path) -> None:
    before = digest("workers.own")
    (tree / "rows.toml").write_text("a = 2\n", encoding="utf-8", newline="\n")
    assert digest("workers.own") != before


def test_windows_has_the_same_digest(tree: Path) -> None:
    before = digest("workers.own.stage")
    for file in tree.iterdir():
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert digest("workers.own.stage") == before


def test_without_sources_the_version_stands_for_them(tree: Path) -> None:
    (tree / "stage.py").unlink()
    assert digest("workers.own.stage").startswith("modelmill ")


def test_slots_compute_digests_at_the_same_time(
    tmp_path: Path,
) -> None:
    """A garbage collection inside of `ast.parse` lets another thread begin one: CPython 3.11 then
    raises a SystemError in one of them."""
    source = tmp_path / "long.py"
    source.write_text(
        "def f(a):\n    return [a + (b, (c,)) for b in a for c in b]\n" * 300, "utf-8"
    )
    failures: list[SystemError] = []

    def read() -> None:
        for _ in range(5):
            try:
                list(code._imported(source))
            except SystemError as error:
                failures.append(error)

    def let_others_run(*_: object) -> None:
        sum(range(50))

    interval, limits = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(let_others_run)
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50, 2, 2)
    try:
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*limits)
        sys.setswitchinterval(interval)
    assert not failures
