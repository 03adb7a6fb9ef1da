"""`modelmill ...`, and `-m MODULE ...` for the processes that modelmill starts itself.

They are started by the path of this file: no folder of the user's can come between.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path


def main() -> None:
    """The installed command."""
    _own_packages()
    if sys.argv[1:2] == ["-m"]:
        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    from flows.cli.main import entry

    entry()


def _own_packages() -> None:
    """Import `modelmill` from here, wherever the import path would lead."""
    if "modelmill" in sys.modules:
        return
    init = Path(__file__).with_name("__init__.py")
    spec = importlib.util.spec_from_file_location(
        "modelmill", init, submodule_search_locations=[str(init.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["modelmill"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
