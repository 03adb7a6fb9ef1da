"""The real `winml` command, run in one process that lives as long as the tests.

A start of it costs seconds, and its analyzer works the same answers out again for every target.
What is kept between two commands here are answers of winml-cli's own two slowest functions, by
all that they depend on; `test_it_is_the_command_line` and the benchmark compare with a process
for each command, in which nothing is kept.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.winml import (
    FLAGS,
    arguments,
    clean_environment,
    final_files,
    winml_python,
)

ROOMY = {"MALLOC_MMAP_THRESHOLD_": str(8 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}
"""glibc keeps what it has been given: half of the time with larger models went into page faults."""

SERVER = """
import contextlib, hashlib, json, os, sys

sys.path.pop(0)  # the folder of this file
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from winml.modelkit.analyze.core import pattern_extractor, runtime_checker_query as query
from winml.modelkit.analyze.utils import model_utils
from winml.modelkit.cli import main

grow, flatten = query._build_condition_tree, query.make_hashable
trees, flat = {}, {}


def tree(table):
    known = trees.get(id(table))
    if known is None or known[0] is not table:
        known = trees[id(table)] = (table, grow(table))
    return known[1]


def hashable(value, replace_float_with_dummy=True):
    if getattr(value, "nbytes", 0) < 4096 or value.dtype.hasobject:
        return flatten(value, replace_float_with_dummy)
    digest = hashlib.sha256(value.tobytes()).digest()
    key = (value.dtype.str, value.shape, digest, replace_float_with_dummy)
    if key not in flat:
        flat[key] = flatten(value, replace_float_with_dummy)
    return flat[key]


query._build_condition_tree = tree
for module in (query, pattern_extractor, model_utils):
    module.make_hashable = hashable
for line in sys.stdin:
    arguments = json.loads(line)
    if not arguments:
        flat.clear()  # another model
        answer = None
    else:
        try:
            main(arguments, standalone_mode=False)
            answer = None
        except (Exception, SystemExit) as error:
            answer = f"{type(error).__name__}: {error}"
    answers.write(json.dumps(answer) + "\\n")
    answers.flush()
"""


@dataclass(slots=True)
class CommandLine:
    """Runs `winml` commands, one after the other."""

    popen: subprocess.Popen[str]
    complaints: Path
    model: str = ""

    def run(self, *arguments: str) -> None:
        """One command; its complaints if it fails."""
        failed = self._ask(arguments)
        if failed is not None:
            tail = self.complaints.read_text("utf-8", errors="replace")[-3000:]
            raise AssertionError(f"winml {' '.join(arguments)}: {failed}\n{tail}")

    def build(
        self, folder: Path, out: Path, labels: Sequence[str] = tuple(FLAGS), *more: str
    ) -> dict[str, dict[str, str]]:
        """`winml build` for some targets: digests of the final files, by target and name."""
        if self.model != str(folder):
            self.model = str(folder)
            self._ask(())
        for label in labels:
            self.run("build", *arguments(label, folder, out / label, *more))
        return {label: final_files(out / label) for label in labels}

    def _ask(self, arguments: Sequence[str]) -> str | None:
        assert self.popen.stdin
        assert self.popen.stdout
        self.popen.stdin.write(json.dumps(arguments) + "\n")
        self.popen.stdin.flush()
        answer = self.popen.stdout.readline()
        if not answer:
            tail = self.complaints.read_text("utf-8", errors="replace")[-3000:]
            raise AssertionError(f"winml {' '.join(arguments)} ends its process\n{tail}")
        found: str | None = json.loads(answer)
        return found


@contextmanager
def command_line() -> Iterator[CommandLine]:
    """The process, started and ended."""
    with tempfile.TemporaryDirectory(prefix="winml-line-") as temporary:
        script, complaints = Path(temporary, "server.py"), Path(temporary, "stderr")
        script.write_text(SERVER, encoding="utf-8")
        with complaints.open("w", encoding="utf-8") as stderr:
            popen = subprocess.Popen(
                [str(winml_python()), str(script)],
                cwd=temporary,
                env={**clean_environment(), **ROOMY},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
            )
            with popen:
                try:
                    yield CommandLine(popen, complaints)
                finally:
                    popen.kill()
