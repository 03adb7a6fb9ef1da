"""A private folder for temporary files of a stage, and fixed seeds: no litter, no chance."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDER = ".scratch"


@contextlib.contextmanager
def scratch(out: Path) -> Iterator[Path]:
    """A folder below a stage's output, gone at the end, that the tools use as temp folder.

    It is inside the output because that disk was reserved for the stage, and because whoever
    throws away a killed stage's output then throws this away too.
    """
    folder = out / FOLDER
    folder.mkdir(parents=True)
    before, env = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        if env is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = env
        shutil.rmtree(folder)


def seed_everything(seed: int) -> None:
    """Seed every generator that Optimum's and Transformers' code draws from."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # the generators of Optimum use the global one
    torch.manual_seed(seed)


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a read-only file; a copy where links cannot be had."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
