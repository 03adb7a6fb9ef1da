"""A private folder for the temporary files of a stage."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from machine.files import remove_tree

FOLDER = ".scratch"
_FOLDERS = ("TMPDIR", "TMP", "TEMP", "TORCHINDUCTOR_CACHE_DIR")
# Telemetry keeps a database in the home folder.
_QUIET = {"ORT_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


@contextlib.contextmanager
def temporary_folder(out: Path) -> Iterator[Path]:
    """A folder inside a stage's output that its tools use for temporary files; removed at the end.

    There the disk is reserved for the stage, and removing the output of a killed stage removes
    this folder too.
    """
    folder = out / FOLDER
    folder.mkdir(parents=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        with _environment({**_QUIET, **dict.fromkeys(_FOLDERS, str(folder))}):
            yield folder
    finally:
        tempfile.tempdir = before
        gc.collect()  # Windows cannot remove a file that a session still maps
        remove_tree(folder)  # what a virus scanner still holds is not the stage's output
    # What is left are the modules of the tools: looking through them again after every stage takes
    # longer than most stages. After an error, what it holds is still to be collected.
    gc.freeze()


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
