"""What engines in foreign interpreters import needs nothing but the standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import machine

PLAIN = ("files", "disk")


@pytest.mark.parametrize("name", PLAIN)
def test_plain_modules_import_the_standard_library_and_each_other(name: str) -> None:
    text = Path(machine.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        else:
            continue
        for module in imported:
            plain = module.removeprefix("machine.") in PLAIN
            assert plain or module.partition(".")[0] in sys.stdlib_module_names, module
