"""Make the secrets of a fleet: random passwords in files that only their owner can read.

    python -m deploy.environment FOLDER --database HOST --server URL

writes `postgres.env`, `server.env` and `worker.env`: lines of NAME=value, a form that Docker,
systemd, kubectl and `deploy.service` all read. Existing files are never overwritten, because their
passwords may be in use.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.errors import Exit, MillError, UsageError

_BYTES = 24


def environments(database: str, server: str) -> dict[str, dict[str, str]]:
    """The variables by file. Passwords contain only letters, digits, `-` and `_`, which need no
    escapes in URLs, in shells or in these files."""
    admin, prefect, modelmill, api = (secrets.token_urlsafe(_BYTES) for _ in range(4))
    auth = f"modelmill:{api}"
    return {
        "postgres.env": {
            "POSTGRES_PASSWORD": admin,
            "DB_PASSWORD_PREFECT": prefect,
            "DB_PASSWORD_MODELMILL": modelmill,
        },
        "server.env": {
            "PREFECT_API_DATABASE_CONNECTION_URL": (
                f"postgresql+asyncpg://prefect:{prefect}@{database}/prefect"
            ),
            "PREFECT_SERVER_API_AUTH_STRING": auth,
        },
        "worker.env": {
            "PREFECT_API_URL": server,
            "PREFECT_API_AUTH_STRING": auth,
            "MODELMILL_STATE": f"postgresql://modelmill:{modelmill}@{database}/modelmill",
        },
    }


def write(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write all of them or, if one exists, none."""
    existing = [name for name in files if (folder / name).exists()]
    if existing:
        raise UsageError(
            f"{folder} already contains {', '.join(existing)}",
            hint="the passwords may be in use: name another folder, or remove the files if not",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, variables in files.items():
        # Readable only by its owner from the start; on Windows, the folder decides.
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii", newline="\n") as file:
            file.writelines(f"{key}={value}\n" for key, value in variables.items())


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.environment", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path)
    parser.add_argument("--database", default="database", metavar="HOST[:PORT]")
    parser.add_argument("--server", default="http://server:4200/api", metavar="URL")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    arguments = build_parser().parse_args(argv)
    files = environments(arguments.database, arguments.server)
    try:
        write(arguments.folder, files)
    except (MillError, OSError) as error:
        print(f"deploy.environment: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, MillError) else Exit.USAGE
    print(f"made {', '.join(files)} in {arguments.folder}")
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
