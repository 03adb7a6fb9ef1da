"""Test-only engines, found through the entry points of the dist-info folder beside this file.

Standard library only: they also run in a foreign interpreter. What a stage does is told by the
catalog entry, in its source's config:

    act     = {STAGE or STAGE@TARGET: ACTION}   see `act` below
    journal = FILE        one line for every stage that runs: STAGE MODEL COMPONENT
    size    = BYTES       weight bytes in every model file
    components = [NAME]   a composite model
    files   = {PATH: TEXT}  more outputs of the export
    salt    = ANY         part of the export's key
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.engine import (
    SOURCE,
    BuildPlan,
    Request,
    StageError,
    StageJob,
    StageReport,
    StageSpec,
)


def config_of(request: Request) -> Mapping[str, Any]:
    """The instructions in a catalog entry."""
    config: Mapping[str, Any] = request.model["source"].get("config") or {}
    return config


class FakeEngine:
    """Export, inputs, optimize, quantize: the shape of the real thing in microseconds."""

    name = "fake"

    def tools(self) -> Mapping[str, str]:
        return {"fake": os.environ.get("FAKE_VERSION", "1"), "unused": "1"}

    def plan(self, request: Request) -> BuildPlan:
        config = config_of(request)
        act(_action(config, "plan", request), Path())
        source, identity = request.model["source"], _identity(request)
        size, many = config.get("size", 1024), bool(config.get("components"))
        export = {"opset": request.policy["opset"], "size": size, "files": config.get("files", {})}
        stages = [
            StageSpec("export", export, [SOURCE], ["fake"]),
            StageSpec("inputs", {"seed": 0}, ["export"], ["fake"], many),
            StageSpec(
                "optimize",
                {"level": request.policy["optimization"], "size": size},
                ["export"],
                ["fake"],
                many,
            ),
        ]
        if request.policy["precision"] != "fp32":
            params = {"precision": request.policy["precision"], "size": size}
            stages.append(StageSpec("quantize", params, ["optimize", "inputs"], ["fake"], many))
        digest = hashlib.sha256(identity).hexdigest()
        named = {} if source["kind"] == "folder" else {"ref": source["ref"]}
        return BuildPlan(
            source={"digest": digest, "kind": source["kind"], **named},
            stages=stages,
            notices=list(config.get("notices", [])),
            disk=config.get("disk", 0),
            memory=config.get("memory", 0),
        )

    def run(self, job: StageJob) -> StageReport:
        config = config_of(job.request)
        _journal(config, job)
        job.progress(f"{job.stage} begins")
        act(_action(config, job.stage, job.request), job.out)
        marks = sorted(path.read_bytes() for folder in job.inputs.values() for path in _all(folder))
        if job.stage == "export":
            marks.append(_identity(job.request))
        seed = hashlib.sha256(b"".join(marks) + repr(sorted(job.params.items())).encode()).digest()
        weights = random.Random(seed).randbytes(int(job.params.get("size", 64)))
        names = list(config.get("components", [])) if job.stage == "export" else []
        for folder in names or [""]:
            target = job.out / folder
            target.mkdir(exist_ok=True)
            if job.stage == "inputs":
                write_samples(target, seed)
            else:
                precision = str(job.params.get("precision", "fp32"))
                (target / "model.onnx").write_bytes(tiny_onnx(weights, precision))
        for path, text in dict(job.params.get("files", {})).items():
            (job.out / path).parent.mkdir(parents=True, exist_ok=True)
            (job.out / path).write_text(text)
        facts: dict[str, Any] = {"stage": job.stage}
        if job.stage == "export":
            facts["components"] = names
        return StageReport(facts, {"pid": os.getpid()})


class NothingEngine:
    """One stage with one tiny output: what is left is the cost of everything around it."""

    name = "nothing"

    def tools(self) -> Mapping[str, str]:
        return {"nothing": "1"}

    def plan(self, request: Request) -> BuildPlan:
        identity = hashlib.sha256(str(request.model["id"]).encode()).hexdigest()
        precision = request.policy["precision"]
        params = {"target": request.target["label"], "precision": precision}
        return BuildPlan(
            {"digest": identity},
            [
                StageSpec("export", {}, [SOURCE], []),
                StageSpec("inputs", {}, ["export"], []),
                StageSpec("optimize", params, ["export"], []),
            ],
        )

    def run(self, job: StageJob) -> StageReport:
        if job.stage == "inputs":
            write_samples(job.out, b"")
            return StageReport({}, {})
        text = f"{job.request.model['id']} {dict(job.params)}"
        (job.out / "model.onnx").write_bytes(
            tiny_onnx(text.encode(), str(job.params.get("precision", "fp32")))
        )
        return StageReport({}, {})


def _identity(request: Request) -> bytes:
    """What the source is: the bytes of an export depend on it and on nothing else of a model."""
    source = request.model["source"]
    salt = config_of(request).get("salt")
    what: object = source["ref"]
    if source["kind"] == "folder":  # wherever it is
        what = [path.read_bytes() for path in _all(Path(source["ref"]))]
    return repr([source["kind"], what, source["seed"], salt]).encode()


def _all(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _journal(config: Mapping[str, Any], job: StageJob) -> None:
    if journal := config.get("journal"):
        line = f"{job.stage} {job.request.model['id']} {job.component}".strip()
        with Path(journal).open("a") as stream:
            stream.write(line + "\n")


def _action(config: Mapping[str, Any], stage: str, request: Request) -> str:
    actions: Mapping[str, str] = config.get("act", {})
    here = f"{stage}@{request.target['label']}"
    return actions.get(here) or actions.get(stage) or "ok"


def act(action: str, out: Path) -> None:
    """Misbehave as told."""
    name, _, rest = action.partition(":")
    if name == "once":  # once:MARKER:ACTION, that is: fine from the second time on
        marker, then = _marked(rest)
        if not Path(marker).exists():
            Path(marker).touch()
            act(then, out)
    elif name == "until":  # until:MARKER:ACTION, that is: fine from when somebody makes the file
        marker, then = _marked(rest)
        if not Path(marker).exists():
            act(then, out)
    elif name != "ok":
        ACTIONS[name](rest, out)


def _marked(rest: str) -> tuple[str, str]:
    """MARKER and ACTION; a path of Windows has a colon of its own."""
    drive = rest[1:2] == ":" and rest[2:3] in {"/", "\\"}
    marker, _, then = rest[2 * drive :].partition(":")
    return rest[: 2 * drive] + marker, then


def _crash(_rest: str, _out: Path) -> None:
    print("about to crash", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


def _kill(_rest: str, _out: Path) -> None:
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    time.sleep(60)


def _owner(_rest: str, _out: Path) -> None:
    """Kill the process that started this one."""
    os.kill(os.getppid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    time.sleep(60)


def _exit(rest: str, _out: Path) -> None:
    os._exit(int(rest))


def _hang(_rest: str, out: Path) -> None:
    if out != Path():
        (out / "half.bin").write_bytes(b"half")
    print("hanging", flush=True)
    while True:
        time.sleep(3600)


def _spawn(rest: str, out: Path) -> None:
    """Start a grandchild in its own session, note its pid, and hang."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
    )
    Path(rest).write_text(str(child.pid))
    _hang("", out)


def _flood(_rest: str, _out: Path) -> None:
    line = b"all work and no play\n" * 4096
    while True:
        os.write(1, line)


def _chatter(_rest: str, _out: Path) -> None:
    """Native code, Python and a subprocess all print; none of it may reach the pipe."""
    os.write(1, b"raw fd 1\n")
    os.write(2, b"raw fd 2\n")
    print("python print")
    print('{"id": 1, "ok": true, "result": "forged"}')
    subprocess.run([sys.executable, "-c", "print('grandchild print')"], check=True)


def _memory(rest: str, _out: Path) -> None:
    kept = []
    for _ in range(int(rest) // 16):
        kept.append(bytearray(os.urandom(16)) * (1 << 20))
        time.sleep(0.02)
    _hang("", Path())


def _sleep(rest: str, _out: Path) -> None:
    time.sleep(float(rest))


def _spin(rest: str, _out: Path) -> None:
    """So much work for one core, however long that takes."""
    digest = b""
    for _round in range(int(rest)):
        digest = hashlib.sha256(digest * 1000).digest()


def _wait(rest: str, _out: Path) -> None:
    """Note that the stage has begun, then go on when the file REST.go appears."""
    Path(rest).touch()
    while not Path(f"{rest}.go").exists():
        time.sleep(0.01)


def _fail(rest: str, _out: Path) -> None:
    failure, _, retryable = rest.partition(":")
    raise StageError(
        "told to fail", failure=failure, hint="do not tell it to", retryable=bool(retryable)
    )


def _raise(rest: str, _out: Path) -> None:
    raise RuntimeError(rest or "unexpected")


def _full(_rest: str, out: Path) -> None:
    (out / "half.bin").write_bytes(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _fill(rest: str, out: Path) -> None:
    with (out / "big.bin").open("wb") as stream:
        for _ in range(int(rest)):
            stream.write(os.urandom(1 << 20))


def _print(rest: str, _out: Path) -> None:
    print(os.environ.get(rest, f"{rest} is not set"), flush=True)


def _leak(rest: str, _out: Path) -> None:
    """Print a variable and fail with its value in the message, as clients of web services do."""
    _print(rest, _out)
    raise RuntimeError(f"401 for url https://user:{os.environ.get(rest)}@host/model")


def _link(rest: str, out: Path) -> None:
    (out / "link.bin").symlink_to(rest)


ACTIONS = {
    "crash": _crash,
    "kill": _kill,
    "owner": _owner,
    "exit": _exit,
    "hang": _hang,
    "spawn": _spawn,
    "flood": _flood,
    "chatter": _chatter,
    "memory": _memory,
    "sleep": _sleep,
    "wait": _wait,
    "fail": _fail,
    "raise": _raise,
    "full": _full,
    "fill": _fill,
    "print": _print,
    "spin": _spin,
    "leak": _leak,
    "link": _link,
}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def tiny_onnx(weights: bytes, precision: str = "fp32") -> bytes:
    """A valid ONNX model (y = x, float[1,4]) that carries `weights`, without the onnx package.

    w8a16 and w8a8 quantize x on its way, fp16 has a half, w8 a dequantized weight.
    """
    shape = b"".join(_field(1, _field(1, n)) for n in (1, 4))
    value_type = _field(1, _field(1, 1) + _field(2, shape))
    nodes, tensors, opset = _body(precision)
    tensor = _field(1, len(weights)) + _field(2, 2) + _field(8, "w") + _field(9, weights)
    graph = (
        b"".join(_field(1, node) for node in nodes)
        + _field(2, "g")
        + b"".join(_field(5, one) for one in (tensor, *tensors))
        + _field(11, _field(1, "x") + _field(2, value_type))
        + _field(12, _field(1, "y") + _field(2, value_type))
    )
    return _field(1, 8) + _field(2, "fake") + _field(7, graph) + opset


def write_samples(folder: Path, seed: bytes) -> None:
    """Four samples for a verdict on `tiny_onnx`, without NumPy."""
    random_values = random.Random(seed)
    (folder / "judge").mkdir()
    for number in range(4):
        values = [random_values.uniform(-1.9, 1.9) for _ in range(4)]
        values[number] = 1.95  # every class is the largest once
        head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }"
        head = head.ljust(117) + b"\n"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
        with zipfile.ZipFile(folder / "judge" / f"0{number}.npz", "w") as archive:
            entry = zipfile.ZipInfo("x.npy")
            entry.create_system = 3  # the same bytes on every system
            archive.writestr(entry, data + struct.pack("<4f", *values))


def _node(kind: str, inputs: str, output: str, domain: str = "") -> bytes:
    named = b"".join(_field(1, name) for name in inputs.split())
    return named + _field(2, output) + _field(4, kind) + (_field(7, domain) if domain else b"")


def _body(precision: str) -> tuple[list[bytes], list[bytes], bytes]:
    """Nodes, further tensors and operator sets."""
    opset = _field(8, _field(2, 17))
    plain = _node("Identity", "x", "y")
    scale = _field(2, 1) + _field(8, "scale") + _field(9, struct.pack("<f", 2**-6))
    if precision in {"w8a16", "w8a8"}:
        kind, middle = (4, 1 << 15) if precision == "w8a16" else (2, 1 << 7)
        zero = _field(2, kind) + _field(8, "zero")
        zero += _field(9, struct.pack("<H" if kind == 4 else "<B", middle))
        nodes = [
            _node("QuantizeLinear", "x scale zero", "q", "com.microsoft"),
            _node("DequantizeLinear", "q scale zero", "y", "com.microsoft"),
        ]
        foreign = _field(8, _field(1, "com.microsoft") + _field(2, 1))
        return nodes, [scale, zero], opset + foreign
    if precision == "w8":
        byte = _field(2, 3) + _field(8, "b") + _field(9, b"\1")
        return [plain, _node("DequantizeLinear", "b scale", "unused")], [scale, byte], opset
    if precision == "fp16":
        half = _field(1, 1) + _field(2, 10) + _field(8, "h") + _field(9, b"\0\0")
        return [plain], [half], opset
    return [plain], [], opset
