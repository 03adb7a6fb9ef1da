"""An environment of its own with a vendor library that does as it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Vendor:
    """Another interpreter, with a stand-in of `tests.fakes` in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    @property
    def told(self) -> Path:
        return self.folder / "told"

    def tell(self, what: str) -> None:
        """What it does wrong; once, if it is not `always`."""
        self.told.write_text(what, "utf-8")

    @classmethod
    def make(cls, folder: Path, *, empty: bool = False) -> Vendor:
        """A venv; our own packages are behind its own, so that it has numpy and a runtime."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        found = cls(folder)
        if not empty:
            site = found._site()
            # All of them: a virtual environment may have its packages from another one.
            ours = [folder for folder in sys.path if Path(folder).name == "site-packages"]
            (site / "ours.pth").write_text("\n".join(ours), "utf-8")
            (site / "openvino.py").write_bytes(_source("tests.fakes.vendor"))
        return found

    @classmethod
    def compiling(cls, folder: Path) -> Vendor:
        """One whose ONNX Runtime compiles: the stand-in of `tests.fakes.compiler`."""
        found = cls.make(folder)
        (found._site() / "onnxruntime").mkdir()
        place = found._site() / "onnxruntime" / "__init__.py"
        place.write_bytes(_source("tests.fakes.compiler"))
        return found

    @classmethod
    def windows(cls, folder: Path, offered: Sequence[Mapping[str, Any]]) -> Vendor:
        """One with the stand-in of Windows ML, which offers these providers."""
        found = cls.make(folder)
        (found._site() / "windowsml.py").write_bytes(_source("tests.fakes.windowsml"))
        (folder / "windowsml.json").write_text(json.dumps(offered), "utf-8")
        return found

    def _site(self) -> Path:
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(subprocess.check_output([self.python, "-c", ask], text=True).strip())


def _source(module: str) -> bytes:
    origin = find_spec(module)
    assert origin is not None
    assert origin.origin is not None
    return Path(origin.origin).read_bytes()
