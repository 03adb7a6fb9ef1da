"""Values in the host: read from sample files or made from the graph's own shapes; the outputs that
are kept of a reference, which is what the export computes from the samples of a package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from machine.files import read_file
from matrix.verification import Limit
from workers.engine import StageError
from workers.numerics.compare import exercise, referred
from workers.numerics.kept import Kept, from_arrays, to_arrays
from workers.samples import datasets, files, synthetic
from workers.samples.values import told as told_by
from workers.session import Port
from workers.sources.errors import one_line

Feeds = dict[str, Any]
_MOST_CONFIG = 2**22


def read(path: Path, component: str, limit: int) -> list[Feeds]:
    """At most `limit` samples; a file for all components names its arrays COMPONENT/INPUT."""
    return [_own(one, component) for one in datasets.read(path, limit)]


def first(path: Path, component: str, ports: Sequence[Port]) -> Feeds:
    """The first sample of a file, or the only one of a file that has values as the graph takes
    them."""
    if path.suffix == ".npz":
        one = _own(files.sample(path), component)
        if any(port.shape and one[port.name].ndim == len(port.shape)
               for port in ports if port.name in one):  # fmt: skip
            return one
    return read(path, component, 1)[0]


def _own(one: Feeds, component: str) -> Feeds:
    return {name.removeprefix(f"{component}/"): value for name, value in one.items()}


class Misfit(ValueError):
    """Input values do not fit the graph: a missing name, or another shape."""


@contextmanager
def told(answer: dict[str, Any]) -> Iterator[None]:
    """What goes wrong in the block becomes part of the answer, which says where (`at`)."""
    try:
        yield
        answer["at"] = ""
    except Misfit as error:
        answer |= {"at": "feed", "error": str(error)}
    # A runtime raises anything at all; the owner judges it.
    except Exception as error:  # noqa: BLE001
        answer["error"] = one_line(error)


def feeds(sample: Mapping[str, Any], ports: Sequence[Port], number: int = 1) -> Feeds:
    """The values of a sample that a graph takes, in its types. Raises `Misfit`."""
    import numpy as np

    found = {}
    for port in ports:
        if port.name not in sample:
            raise Misfit(f"set {number} of the input values has no value for input {port.name}")
        value = np.asarray(sample[port.name], dtype=port.dtype or None)
        if not port.fits(value.shape):
            raise Misfit(
                f"set {number} of the input values has the shape {list(value.shape)} for input "
                f"{port.name}, which takes {list(port.shape)}"
            )
        found[port.name] = value
    return found


def made(
    ports: Sequence[Port], number: int, shapes: Mapping[str, Sequence[int]], beside: Path
) -> Feeds:
    """The synthetic sample of this number for a graph without given inputs.

    Where no shape is given, open dimensions get the size that the `config.json` beside the model
    tells, else a usual one. Raises `Misfit` for inputs that no values can be made for.
    """
    config = _config(beside / "config.json")
    wanted = {
        port.name: Port(
            port.name, port.dtype or "float32", tuple(shapes.get(port.name, port.shape))
        )
        for port in ports
    }
    try:
        return synthetic.sample(wanted, _sizes(config), config, number)
    except StageError as error:
        raise Misfit(f"{error}; give input values with --inputs") from error


def _config(file: Path) -> Any:
    """The configuration of the model as Transformers wrote it; empty if there is none."""
    try:
        text = read_file(file, _MOST_CONFIG)
        found = json.loads(text, object_hook=lambda of: SimpleNamespace(**of))
    except (OSError, ValueError, RecursionError):
        return SimpleNamespace()
    return found if isinstance(found, SimpleNamespace) else SimpleNamespace()


def _sizes(config: Any) -> dict[str, int]:
    vision = getattr(config, "vision_config", config)
    side, channels = told_by(vision, "image_size"), told_by(vision, "num_channels")
    longest = told_by(config, "max_position_embeddings", "n_positions")
    bins = told_by(config, "num_mel_bins")
    usual = synthetic.USUAL["sequence_length"]
    found = {
        "height": side,
        "width": side,
        "num_channels": channels,
        "feature_size": bins,
        "sequence_length": min(longest, usual) if longest else None,
    }
    return {name: size for name, size in found.items() if size and size > 0}


Outputs = Mapping[str, Any]


def describe(sets: Sequence[Outputs]) -> dict[str, Any]:
    """Type and shapes of every output, and whether all values are finite."""
    return {
        name: {
            "dtype": str(getattr(value, "dtype", type(value).__name__)),
            "shapes": _shapes([one[name] for one in sets]),
            "finite": all(_finite(one[name]) for one in sets),
        }
        for name, value in (sets[0] if sets else {}).items()
    }


def _shapes(several: Sequence[Any]) -> list[list[int]]:
    """Every shape once, in the order of the sets."""
    return [list(one) for one in dict.fromkeys(getattr(value, "shape", ()) for value in several)]


def _finite(value: Any) -> bool:
    import numpy as np

    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return True
    return bool(np.isfinite(value).all())


def joined(sets: Sequence[tuple[Any, Any]], scale: float, bias: float) -> Any:
    """The scaled cosine of every left value with every right one."""
    import numpy as np

    def unit(values: list[Any]) -> Any:
        rows = np.concatenate([np.atleast_2d(value) for value in values]).astype(np.float64)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    left, right = unit([pair[0] for pair in sets]), unit([pair[1] for pair in sets])
    return scale * (left @ right.T) + bias


Json = Mapping[str, Any]


def reference(file: Path) -> dict[str, Kept]:
    """The outputs of a reference."""
    return from_arrays(files.sample(file))


def whole_output(file: Path, output: str) -> Any:
    """An output that is kept as it is. Raises `ValueError` if only some of its rows are."""
    found = files.sample(file)
    if f"{output}#rows" in found:
        raise ValueError(f"the package lacks some of {output}")
    return found[output]


def keep_outputs(args: Json) -> Json:
    """Write what is kept of saved outputs, one file for each sample, in at most `most` bytes."""
    inputs = {name: dims for name, _, dims in args["inputs"]}
    declared = {name: dims for name, _, dims in args["outputs"]}
    for number, outputs in enumerate(load_sets(Path(args["saved"]))[: len(args["to"])]):
        sample = files.sample(Path(args["samples"][number]))
        kept = referred(
            outputs, sample, inputs, declared, task=args["agree"], most=float(args["most"])
        )
        found: dict[str, Any] = {}
        for name, one in kept.items():
            found |= to_arrays(name, one)
        write_kept(Path(args["to"][number]), found)
    return {}


def write_kept(file: Path, found: Mapping[str, Any]) -> None:
    """Equal arrays give equal bytes on every machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_arrays(file, found)


def exercised(args: Json) -> dict[str, Any]:
    """How far a reference varies between samples, and which values the samples take."""
    wanted = [reference(Path(file)) for file in args["reference"]]
    samples = [files.sample(Path(file)) for file in args["samples"]]
    inputs = {
        name: {
            "low": float(min(one[name].min() for one in samples)),
            "high": float(max(one[name].max() for one in samples)),
        }
        for name, value in samples[0].items()
        if value.dtype.kind in "fiub" and value.size
    }
    return {
        "outputs": exercise(wanted, Limit(**args["limit"]), args.get("agree", "")),
        "inputs": inputs,
    }


def save_sets(path: Path, sets: list[Any]) -> None:
    """Outputs of several samples in one file, for use within a verification."""
    import numpy as np

    flat: dict[str, Any] = {
        f"{at}/{name}": value.astype(str) if value.dtype == object else value  # never a pickle
        for at, one in enumerate(sets)
        for name, value in one.items()
        if isinstance(value, np.ndarray)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **flat)


def load_sets(path: Path) -> list[dict[str, Any]]:
    """What `save_sets` has written."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in files.sample(path).items():
        at, _, name = key.partition("/")
        found.setdefault(int(at), {})[name] = value
    return [found[at] for at in sorted(found)]
