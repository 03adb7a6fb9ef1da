"""Whether packages have the same content as those that another commit builds.

    python -m tests.bench.golden COMMIT

Both build the demo for all targets (with a composite and an encoder with its decoder), decoders
with a cache, and the context groups, compiled where the extra qnn is installed. The table has every
package whose files differ; a change that is to move code and nothing else leaves it empty. The
manifest, which names the code that made it, and the records of a run are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from matrix.digest import MANIFEST, FileEntry, files_digest, is_run_record
from tests.bench.command import table
from tests.bench.truth.sweeping import modelmill, tree_of

SWEEPS = (
    ("demo",),
    ("zoo", "--only", "zoo/llama:text-generation-with-past@*,zoo/gpt2:text-generation-with-past@*"),
    ("contexts", "--compile", "htp73", "--emulated"),
)


def trees(tree: Path | None) -> dict[tuple[str, str], str]:
    """Package and version -> digest of the files that a commit builds; none: this one."""
    with tempfile.TemporaryDirectory(prefix="modelmill-golden-") as name:
        folder = Path(name)
        for what in SWEEPS:
            told = modelmill(
                folder, tree, "none", "sweep", *what, "--stamp", "golden", "--home", "home",
                "--publish-unverified", "--jobs", "2",
            )  # fmt: skip
            if "published" not in told:
                raise SystemExit(f"nothing was published of {what[0]}:\n{told[-2000:]}")
        return {
            (told["package"], told["version"]): files_digest(
                FileEntry(one["path"], one["size"], one["sha256"])
                for one in told["files"]
                if one["path"] != MANIFEST and not is_run_record(one["path"])
            )
            for path in (folder / "home" / "feed" / "packages").glob("*/*.json")
            if "index" not in path.parent.name
            for told in [json.loads(path.read_bytes())]
        }


def main() -> int:
    """Compare, and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.golden", description=__doc__)
    parser.add_argument("commit")
    with tree_of(parser.parse_args().commit) as tree:
        before = trees(tree)
    now = trees(None)
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    print(f"{len(now)} packages, {len(differ)} of them differ")
    if differ:
        rows = [(*key, before.get(key, "-")[:12], now.get(key, "-")[:12]) for key in differ]
        table([("package", "version", "before", "now"), *rows])
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
