"""The command: see the package's docstring."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.bench.truth.cost import compare_cost
from tests.bench.truth.packages import CACHE, Missing, packages
from tests.bench.truth.subject import Array, Subject
from tests.bench.truth.subjects import hearing, reading, writing
from tests.bench.truth.sweeping import Published, Swept, sweep, tree_of
from workers.engine import StageError

SUBJECTS: tuple[type[Subject], ...] = (*writing.SUBJECTS, *reading.SUBJECTS, *hearing.SUBJECTS)
WITHIN = 0.01
"""How much of the float's result a verified w8a16 package may lose."""
WORST, CORRELATION = 0.99, 0.995
"""What embeddings of a verified w8a16 package must reach for `sentences`."""
HEADS = ("model", "cell", "of the task", "float", "quantized", "same as float", "verified",
         "parity", "samples", "quantized again", "embeddings")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One quantized cell beside the float package."""

    subject: Subject
    cell: str
    original: float
    found: float
    agreed: float
    package: Published
    vectors: tuple[float, float] | None
    """Of embeddings: the worst cosine, and the correlation of all similarities."""

    @property
    def broken(self) -> str:
        """Why this row must not be: it is called verified and is not good enough."""
        if not self.package.verified or "w8a16" not in self.cell:
            return ""
        if self.found < (1 - WITHIN) * self.original:
            return f"{self.found:.3f} of the float's {self.original:.3f}"
        if self.vectors and isinstance(self.subject, writing.Sentences):
            worst, correlated = self.vectors
            if worst < WORST or correlated < CORRELATION:
                return f"worst cosine {worst:.4f}, correlation {correlated:.4f}"
        return ""

    def cells(self) -> tuple[str, ...]:
        """For the table."""
        told = "worst {:.4f}, similarities {:.4f}".format(*self.vectors) if self.vectors else ""
        return (
            self.subject.name, self.cell, self.subject.measured, f"{self.original:.3f}",
            f"{self.found:.3f}", f"{self.agreed:.3f}", self.package.verdict, self.package.parity,
            self.package.samples, self.package.notice, told,
        )  # fmt: skip


def rows_of(subject: Subject, swept: Swept) -> Iterator[Row]:
    """Every quantized cell of a subject."""
    exact = swept.find("mlas_cpu", "fp32")
    if exact is None:
        raise Missing(f"{subject.name} has no float package:\n{swept.out[-2000:]}")
    run = exact.open()
    answers, truth, vectors = subject.answers(run), subject.truth(), subject.vectors(run)
    original = subject.score(answers, truth)
    for precision, bare in (("w8a16", False), ("w8a8", False), ("w8a16", True)):
        package = swept.find("qnn_npu", precision, bare=bare)
        if package is None:
            if not bare or subject.calibrated:
                print(f"{subject.name} {precision} was not built:\n{swept.out[-2000:]}")
            continue
        cell = precision + (" without data" if bare else "")
        try:
            run = package.open()
        except StageError:  # nobody can use it
            yield Row(subject, cell, original, 0.0, 0.0, package, None)
            continue
        found = subject.answers(run)
        likeness = None
        if vectors is not None:
            others = subject.vectors(run)
            assert others is not None
            likeness = compared(vectors, others)
        score, agreed = subject.score(found, truth), subject.score(found, answers)
        yield Row(subject, cell, original, score, agreed, package, likeness)


def compared(one: Array, other: Array) -> tuple[float, float]:
    """The worst cosine of two embeddings of the same, and how their similarities correlate."""
    first = one / np.linalg.norm(one, axis=1, keepdims=True)
    second = other / np.linalg.norm(other, axis=1, keepdims=True)
    above = np.triu_indices(len(first), 1)
    correlated = np.corrcoef((first @ first.T)[above], (second @ second.T)[above])[0, 1]
    return float((first * second).sum(1).min()), float(correlated)


def main() -> int:
    """The table of models, or the cost."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.truth", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a model (repeat)")
    parser.add_argument("--cache", help=f"folder of packages (or the variable {CACHE})")
    parser.add_argument("--out", type=Path, help="also write the table there, row by row")
    parser.add_argument("--keep", type=Path, help="leave catalogs, homes and feeds there")
    parser.add_argument("--runtimes", default="none", help="that verify, as of a sweep")
    parser.add_argument("--commit", default="", help="build with the tool of this commit")
    parser.add_argument("--cost", metavar="COMMIT", help="processor time against a commit")
    options = parser.parse_args()
    if options.cache:
        os.environ[CACHE] = options.cache
    if options.cost:
        with tree_of(options.cost) as tree:
            return compare_cost(tree)
    chosen = [kind() for kind in SUBJECTS if not options.only or kind.name in options.only]
    with tree_of(options.commit) as tree:
        return _table(chosen, options, tree)


def _table(chosen: list[Subject], options: argparse.Namespace, tree: Path | None) -> int:
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)
        if options.out:
            options.out.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")

    tell("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
    rows: list[Row] = []
    notes: list[str] = []
    for subject in chosen:
        try:
            with _folder(options.keep, subject) as folder:
                swept = sweep(subject, folder, tree, options.runtimes)
                for row in rows_of(subject, swept):
                    rows.append(row)
                    tell("| " + " | ".join(row.cells()) + " |")
            notes.append(f"- {subject.name}: {swept.processor:.0f} s of processor time")
        except Missing as missing:
            notes.append(f"- {subject.name} is left out: {missing}")
    versions = packages()
    notes += [f"- weights of {one.name}: {one.package} {versions[one.package].version} "
              f"({versions[one.package].licence})" for one in chosen]  # fmt: skip
    verified = [row for row in rows if row.package.verified]
    broken = [f"- **{row.subject.name} {row.cell} is called verified: {row.broken}**"
              for row in rows if row.broken]  # fmt: skip
    tell("")
    tell(f"{len(rows)} cells, {len(verified)} verified, {len(broken)} of them wrongly.\n")
    for note in (*broken, *notes):
        tell(note)
    return 1 if broken else 0


@contextmanager
def _folder(keep: Path | None, subject: Subject) -> Iterator[Path]:
    if keep is not None:
        folder = keep.absolute() / subject.name
        folder.mkdir(parents=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        yield Path(name)


if __name__ == "__main__":
    sys.exit(main())
