"""Many `modelmill` commands in one process, one after the other: what is imported is imported once.

Takes a JSON list of argument lists on stdin, answers a JSON line for each command.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

import flows.sweep.run
from tests.sweeps.plain import PlainRun


def main() -> None:
    """Run them all; a command that fails does not keep the next from running."""
    flows.sweep.run.Run = PlainRun  # type: ignore[misc]  # before the commands import it by name
    from flows.cli.main import main as command

    for arguments in json.load(sys.stdin):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = int(command(arguments))
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    main()
