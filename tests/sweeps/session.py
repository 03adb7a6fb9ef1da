"""Many `modelmill` commands in one process, one after the other: what is imported is imported once.

Takes a JSON list of argument lists on stdin, answers a JSON line for each command.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from tests.sweeps.plain import without_prefect


def main() -> None:
    """Run them all; a command that fails does not keep the next from running."""
    commands = json.load(sys.stdin)
    without_prefect([word for words in commands for word in words])
    from flows.cli.main import main as command

    for arguments in commands:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = int(command(arguments))
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    main()
