"""What holds for the tests themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULES = sorted([*TESTS.rglob("test_*.py"), *TESTS.glob("states/suites/*.py")])


def functions(module: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def test_pytest_passes_over_no_folder(pytestconfig: pytest.Config) -> None:
    folders = {part for module in MODULES for part in module.relative_to(TESTS).parts[:-1]}
    left_out = pytestconfig.getini("norecursedirs")
    assert [one for one in folders if any(fnmatchcase(one, name) for name in left_out)] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_no_test_module_imports_another(module: Path) -> None:
    others = {name for name in imported(module) if name.startswith("tests.")}
    assert [name for name in others if name.rpartition(".")[2].startswith("test_")] == []
    assert [name for name in others if name.endswith(".conftest")] == []


def checking(tree: ast.AST) -> bool:
    """Whether something in it can fail: an assertion, an error, or a helper that asserts."""
    helpers = {"fail", "raises"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in helpers or name in HELPERS:
                return True
    return False


def helpers() -> set[str]:
    """Functions of the tests that assert, by name."""
    found = set()
    for module in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_"):
                asserts = any(isinstance(one, ast.Assert) for one in ast.walk(node))
                found |= {node.name} if asserts else set()
    return found


HELPERS = helpers()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_every_test_checks_something(module: Path) -> None:
    assert [test.name for test in functions(module) if not checking(test)] == []
