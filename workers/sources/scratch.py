"""A private folder for temporary files of a stage, and fixed seeds: no litter, no chance."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
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
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        with _environment(_settings(folder)):
            yield folder
    finally:
        tempfile.tempdir = before
        gc.collect()  # Windows cannot remove a file that a forgotten session has mapped
        shutil.rmtree(folder)


def _settings(folder: Path) -> dict[str, str]:
    return {
        **{name: str(folder) for name in ("TMPDIR", "TMP", "TEMP", "TORCHINDUCTOR_CACHE_DIR")},
        "ORT_DISABLE_TELEMETRY": "1",  # it keeps a database in the home folder
        "TOKENIZERS_PARALLELISM": "false",
    }


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
