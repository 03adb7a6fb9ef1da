"""A modelmill command under a service manager that gives it no environment, log or stop signal.

    python -m deploy.service --env-file F --stop-file F --log F worker --drain-limit 30m

Windows' Task Scheduler is one: it kills console programs to stop them. Create the stop file
instead: the command then gets a Ctrl-C, and a worker drains.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from machine.files import move, read_file, unlink
from matrix.errors import MillError, UsageError

_LOOK = 1.0
_LOG_SIZE = 10_000_000
_LINE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")


def read_environment(path: Path) -> dict[str, str]:
    """Read NAME=value lines; empty lines and those that begin with `#` are ignored."""
    try:
        lines = read_file(path).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            # Without the line itself: it may be a secret.
            raise UsageError(f"{path}, line {number} is not NAME=value")
        found[match["name"]] = match["value"]
    return found


def stop_when_asked(path: Path) -> threading.Event:
    """Interrupt this process once the file exists; set the event to stop looking."""
    unlink(path)  # left by an earlier stop
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK):
            if path.exists():
                _interrupt()
                return

    threading.Thread(target=look, name="stop-file", daemon=True).start()
    return done


def _interrupt() -> None:
    """Send Ctrl-C to the main thread: a signal ends whatever it waits for."""
    if sys.platform == "win32":
        signal.raise_signal(signal.SIGINT)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def log_to(path: Path) -> None:
    """Append the standard output and error of this process and its children to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_SIZE:
            move(path, path.with_name(path.name + ".1"))
    with path.open("ab") as file:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.service", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--env-file", type=Path, metavar="FILE", help="variables for the command")
    parser.add_argument("--stop-file", type=Path, metavar="FILE", help="stop when it appears")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append all output to this file")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command of modelmill")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare, then run the command in this process."""
    arguments = build_parser().parse_args(argv)
    try:
        if arguments.log:
            log_to(arguments.log)
        if arguments.env_file:
            os.environ.update(read_environment(arguments.env_file))
    except MillError as error:
        print(f"deploy.service: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if arguments.stop_file:
        stop_when_asked(arguments.stop_file)
    # Imported only now, because Prefect reads its variables on import.
    from flows.cli.main import entry

    sys.argv = ["modelmill", *arguments.command]
    entry()


if __name__ == "__main__":
    main()
