"""What ONNX Runtime itself finds in a model package, as JSON.

    python -m tests.verification.ort_model_package DIR

Python does not bind the model-package API, so it is called through the C API, in a process of its
own. The places of functions in these tables never change: ONNX Runtime only appends to them.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p, c_wchar_p
from pathlib import Path
from typing import Any

from tests.machine.timing import patient

VERSION = 31
ERROR_MESSAGE, CREATE_ENV, CREATE_SESSION_OPTIONS, MODEL_PACKAGE_API = 2, 3, 10, 427
CREATE_OPTIONS, CREATE_CONTEXT, COMPONENTS, VARIANTS, PROVIDER, SELECT, SELECTED = (
    0,
    2,
    6,
    8,
    9,
    11,
    13,
)
WARNING = 2
STRINGS = POINTER(c_char_p)
PATH = c_wchar_p if sys.platform == "win32" else c_char_p


class Base(ctypes.Structure):
    _fields_ = [
        ("get_api", ctypes.CFUNCTYPE(c_void_p, c_uint32)),
        ("version", ctypes.CFUNCTYPE(c_char_p)),
    ]


class Table:
    """A struct of function pointers; each function returns a status."""

    def __init__(self, address: int, message: Any = None) -> None:
        self._table = (c_void_p * 450).from_address(address)
        self._message = message or ctypes.CFUNCTYPE(c_char_p, c_void_p)(
            self._table[ERROR_MESSAGE] or 0
        )

    def below(self, place: int) -> Table:
        """The table that a function without arguments returns."""
        return Table(ctypes.CFUNCTYPE(c_void_p)(self._table[place] or 0)(), self._message)

    def call(self, place: int, types: list[Any], *given: Any) -> None:
        status = ctypes.CFUNCTYPE(c_void_p, *types)(self._table[place] or 0)(*given)
        if status:
            raise RuntimeError(self._message(status).decode())

    def made(self, place: int, types: list[Any], *given: Any) -> c_void_p:
        """The object that a function hands out through its last argument."""
        out = c_void_p()
        self.call(place, [*types, POINTER(c_void_p)], *given, byref(out))
        return out

    def names(self, place: int, types: list[Any], *given: Any) -> list[bytes]:
        out, count = STRINGS(), c_size_t()
        more = [POINTER(STRINGS), POINTER(c_size_t)]
        self.call(place, [*types, *more], *given, byref(out), byref(count))
        return [out[place] or b"" for place in range(count.value)]

    def text(self, place: int, types: list[Any], *given: Any) -> str:
        out = c_char_p()
        self.call(place, [*types, STRINGS], *given, byref(out))
        return (out.value or b"").decode()


def look(folder: str) -> dict[str, Any]:
    """The variants of each component with their providers, and which one the CPU would get."""
    import onnxruntime

    capi = Path(onnxruntime.__file__).parent / "capi"
    found = [*capi.glob("libonnxruntime.so.*"), *capi.glob("onnxruntime.dll")]
    found += capi.glob("libonnxruntime.*.dylib")
    library = ctypes.CDLL(str(found[0]))
    library.OrtGetApiBase.restype = POINTER(Base)
    ort = Table(library.OrtGetApiBase().contents.get_api(VERSION))
    packages = ort.below(MODEL_PACKAGE_API)
    env = ort.made(CREATE_ENV, [c_int, c_char_p], WARNING, b"look")
    session = ort.made(CREATE_SESSION_OPTIONS, [])
    options = packages.made(CREATE_OPTIONS, [c_void_p, c_void_p], env, session)
    path = folder if PATH is c_wchar_p else folder.encode()
    context = packages.made(CREATE_CONTEXT, [PATH], path)
    told = {}
    for component in packages.names(COMPONENTS, [c_void_p], context):
        variants = packages.names(VARIANTS, [c_void_p, c_char_p], context, component)
        three = [c_void_p, c_char_p, c_char_p]
        try:
            types = [c_void_p, c_char_p, c_void_p]
            chosen = packages.made(SELECT, types, context, component, options)
            cpu = packages.text(SELECTED, [c_void_p], chosen)
        except RuntimeError as error:
            cpu = str(error)
        told[component.decode()] = {
            "variants": [
                (one.decode(), packages.text(PROVIDER, three, context, component, one))
                for one in variants
            ],
            "cpu": cpu,
        }
    return told


def opened(folder: Path) -> dict[str, Any]:
    """The same from a process of its own. A package that cannot be opened is an AssertionError."""
    command = [sys.executable, "-m", __name__, str(folder)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
