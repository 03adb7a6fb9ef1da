"""`modelmill ...`, and `-m MODULE ...` for the processes that modelmill starts itself.

They are started by the path of this file: no folder of the user's can come between.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """The installed command."""
    _own_packages()
    from machine.secrets import hide_credentials

    hide_credentials()
    if sys.argv[1:2] == ["-m"]:
        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    from flows.cli.main import entry

    entry()


def _own_packages() -> None:
    """Import `modelmill` from here, wherever the import path would lead."""
    here = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, here)
    import_module("modelmill")
    sys.path.remove(here)


if __name__ == "__main__":
    main()
