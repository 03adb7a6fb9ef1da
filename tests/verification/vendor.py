"""An environment of its own with a vendor library that does as it is told."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Vendor:
    """Another interpreter, with the stand-in of `tests.fakes.vendor` in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    @property
    def told(self) -> Path:
        return self.folder / "told"

    def tell(self, what: str) -> None:
        """What it does wrong, once."""
        self.told.write_text(what, "utf-8")

    @classmethod
    def make(cls, folder: Path, *, empty: bool = False) -> Vendor:
        """A venv; our own packages are behind its own, so that it has numpy and a runtime."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        found = cls(folder)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(subprocess.check_output([found.python, "-c", ask], text=True).strip())
        if not empty:
            (site / "ours.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
            origin = find_spec("tests.fakes.vendor")
            assert origin is not None
            assert origin.origin is not None
            (site / "openvino.py").write_bytes(Path(origin.origin).read_bytes())
        return found
