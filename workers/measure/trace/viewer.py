"""Qualcomm's profile viewer, which makes the detailed summary (QHAS) of an optrace.

It belongs to Qualcomm's SDK, which cannot be installed with us. It runs as a process of its own
with a time limit, and is ended with all that it has started.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machine.children import ProcessTree, describe_exit
from matrix.credentials import without_credentials
from workers.measure.trace.operators import NoDetail
from workers.measure.trace.result import FallbackReason

TIMEOUT = 300.0
_FEATURES = (
    "qhas_json", "qhas_schema", "htp_json", "runtrace", "memory_info", "traceback",
    "enable_input_output_flow_events", "enable_sequencer_flow_events",
)  # fmt: skip
_VIEWER = "qnn-profile-viewer"
_READER = "QnnHtpOptraceProfilingReader"
_OUTPUT = "optrace.json"
_SUMMARY = "optrace*analysis_summary.json"
"""The viewer appends to the name that it is given."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A viewer and the library with which it reads an optrace."""

    command: tuple[str, ...]
    reader: Path
    timeout: float = TIMEOUT

    def run(self, folder: Path, log: str, schematic: str) -> Path:
        """The summary, in the same folder. Raises `NoDetail`."""
        settings = folder / "viewer.json"
        settings.write_text(
            json.dumps({"features": dict.fromkeys(_FEATURES, True)}), encoding="utf-8"
        )
        self._run(
            [
                *self.command, "--input_log", log, "--output", _OUTPUT,
                "--reader", str(self.reader), "--schematic", schematic, "--config", settings.name,
            ],
            folder,
        )  # fmt: skip
        found = max(folder.glob(_SUMMARY), default=None)
        if found is None:
            text = "the profile viewer wrote no analysis summary"
            raise NoDetail(FallbackReason.QHAS_MISSING, text)
        return found

    def _run(self, command: list[str], folder: Path) -> None:
        env = {**without_credentials(os.environ), **_libraries(self.reader.parent)}
        try:
            tree = ProcessTree(
                command, env, folder, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
            )
        except OSError as error:
            text = f"the profile viewer cannot be started: {error.strerror}"
            raise NoDetail(FallbackReason.VIEWER_FAILED, text) from None
        with tree.popen:
            try:
                output, _none = tree.popen.communicate(timeout=self.timeout)
            except subprocess.TimeoutExpired:
                text = f"the profile viewer was ended after {self.timeout:g} s"
                raise NoDetail(FallbackReason.VIEWER_TIMEOUT, text) from None
            finally:
                tree.kill()
        if code := tree.popen.returncode:
            last = " ".join(output.decode("utf-8", "replace").split())[-300:]
            text = f"the profile viewer ended with {describe_exit(code)}: {last}"
            raise NoDetail(FallbackReason.VIEWER_FAILED, text.rstrip(": "))


def find_viewer(root: str | None) -> Viewer:
    """The viewer of the SDK in that folder, as QNN_SDK_ROOT names it. Raises `NoDetail`."""
    if not root:
        text = "detail needs Qualcomm's SDK: set QNN_SDK_ROOT to its folder"
        raise NoDetail(FallbackReason.SDK_MISSING, text)
    sdk = Path(root)
    if not sdk.is_dir():
        raise NoDetail(FallbackReason.SDK_MISSING, f"QNN_SDK_ROOT is not a folder: {root}")
    windows = sys.platform == "win32"
    viewer = _VIEWER + ".exe" * windows
    reader = f"{_READER}.dll" if windows else f"lib{_READER}.so"
    for arch in _architectures(sdk):
        program, library = sdk / "bin" / arch / viewer, sdk / "lib" / arch / reader
        if program.is_file() and library.is_file():
            return Viewer((str(program.absolute()),), library.absolute())
    text = f"the SDK in {root} has no {viewer} with its {reader} for this system"
    raise NoDetail(FallbackReason.SDK_MISSING, text)


def _architectures(sdk: Path) -> Iterator[str]:
    """The folders for this system, those of this processor first; at last the plain `bin`."""
    system = "windows" if sys.platform == "win32" else "linux"
    machine = platform.machine().lower()
    own = "aarch64" if machine in {"arm64", "aarch64"} else "x86_64"
    names = sorted(path.name for path in (sdk / "bin").glob(f"*{system}*"))
    yield from (name for name in names if name.startswith(own))
    yield from (name for name in names if not name.startswith(own))
    yield ""


def _libraries(folder: Path) -> dict[str, str]:
    name = "PATH" if sys.platform == "win32" else "LD_LIBRARY_PATH"
    before = os.environ.get(name)
    return {name: os.pathsep.join(filter(None, (str(folder), before)))}
