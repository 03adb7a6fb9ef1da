"""An environment of its own with a vendor library that does as it is told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


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
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(subprocess.check_output([found.python, "-c", ask], text=True).strip())
        if not empty:
            # All of them: a virtual environment may have its packages from another one.
            ours = [folder for folder in sys.path if Path(folder).name == "site-packages"]
            (site / "ours.pth").write_text("\n".join(ours), "utf-8")
            (site / "openvino.py").write_bytes(_source("tests.fakes.vendor"))
        return found

    @classmethod
    def compiling(cls, folder: Path) -> Vendor:
        """One whose ONNX Runtime compiles: the stand-in of `tests.fakes.compiler`."""
        found = cls.make(folder)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(subprocess.check_output([found.python, "-c", ask], text=True).strip())
        (site / "onnxruntime").mkdir()
        (site / "onnxruntime" / "__init__.py").write_bytes(_source("tests.fakes.compiler"))
        return found


def _source(module: str) -> bytes:
    origin = find_spec(module)
    assert origin is not None
    assert origin.origin is not None
    return Path(origin.origin).read_bytes()
