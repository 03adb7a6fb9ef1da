"""The operations of a runtime's host; a model is released before the reply, except in benchmarks.

`measure` opens a model, runs it on every set of inputs and reports ports, nodes per provider, and
the distance of every output from the reference. It judges nothing. An exception of the runtime is
part of the answer, with the point where it was raised; the owner handles the loss of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from workers.host.service import environment
from workers.runtimes import generate, values
from workers.runtimes.bench import Benches
from workers.runtimes.compile import compile_models
from workers.runtimes.session import Session, give_back, resident
from workers.runtimes.trace import Traces
from workers.runtimes.values import compare, describe, joined
from workers.samples import files
from workers.sources.errors import one_line

Answer = dict[str, Any]


class RuntimeService:
    """A kind of runtime in the host.

    Operations: `discover`, `measure`, `generate`, `trace`, `optimized`, `compile`, `join`, and
    those of `bench.Benches`.
    """

    @cached_property
    def benches(self) -> Benches:
        """The models that stay open from one request to the next."""
        self.load()  # what it takes counts for no opening
        return Benches(self.open)

    @cached_property
    def traces(self) -> Traces:
        """Watched runs, one after the other."""
        return Traces(self.open)

    def load(self) -> None:
        """Import the runtime, for kinds that do so when they first need it."""

    def discover(self) -> list[dict[str, Any]]:
        """Every runtime of this kind, as `runtime.Runtime` JSON."""
        raise NotImplementedError

    def open(
        self, file: str, runtime: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> Session:
        """Open a model, with further options of the session (`workers.runtimes.trace.Monitor`).

        May raise anything, and may crash the process.
        """
        raise NotImplementedError

    def session_options(self, runtime: Mapping[str, Any]) -> Any:
        """ONNX Runtime's session options, for kinds that can compile."""
        raise ValueError(f"{runtime['provider']} cannot compile here")

    def call(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> Any:
        """Answer one request."""
        if op == "environment":
            return environment()
        if op in {"bench_open", "bench_run", "bench_close"}:
            return self.benches.call(op, args, progress)
        try:
            return self._answer(op, args, progress)
        finally:
            give_back()

    def _answer(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> Any:
        match op:
            case "discover":
                return self.discover()
            case "measure" | "generate":
                what = args.get("component") or "the model"
                progress(f"running {what} on {args['runtime']['provider']}")
                return self._measure(args) if op == "measure" else self._generate(args)
            case "trace":
                return self.traces.call(args, progress)
            case "optimized":
                return self._write_optimized(args)
            case "compile":
                return compile_models(self.session_options, args, progress)
            case "join":
                return _join(args)
        raise ValueError(f"a runtime has no operation {op!r}")

    def _generate(self, args: Mapping[str, Any]) -> Answer:
        return generate.answer(lambda file: self.open(file, args["runtime"]), args)

    def _write_optimized(self, args: Mapping[str, Any]) -> Answer:
        """The graph as ONNX Runtime executes it, which it writes when it opens the model."""
        path = Path(args["to"])
        options = {
            "optimized_model_filepath": str(path),
            # Beside the model: a file of more than two gigabytes could not be written.
            "session.optimized_model_external_initializers_file_name": f"{path.stem}.data",
        }
        self.open(args["file"], args["runtime"], options).close()
        return {}

    def _measure(self, args: Mapping[str, Any]) -> Answer:
        answer: Answer = {"at": "open"}
        with values.told(answer):
            before, began = resident(), time.monotonic()
            with closing(self.open(args["file"], args["runtime"])) as session:
                session.expect(args.get("outputs") or ())
                answer["open_seconds"] = round(time.monotonic() - began, 3)
                answer["open_memory"] = max(0, resident() - before)
                answer["inputs"] = [port.to_json() for port in session.inputs]
                answer["outputs"] = [port.to_json() for port in session.outputs]
                answer["nodes"] = session.nodes()
                answer["at"] = "run"
                _run(session, args, answer)
        return answer


def _run(session: Session, args: Mapping[str, Any], answer: Answer) -> None:
    sets = _sets(session, args)
    fed = [values.feeds(one, session.inputs, number) for number, one in enumerate(sets, 1)]
    began = time.monotonic()
    found = [session.run(one) for one in fed]
    answer["run_seconds"] = round((time.monotonic() - began) / max(len(sets), 1), 4)
    answer["sets"] = len(sets)
    answer["seen"] = describe(found)
    if args.get("save"):
        _save(Path(args["save"]), found)
    if args.get("reference"):
        answer["parity"] = compare(found, _load(Path(args["reference"])))
    if linked := args.get("linked"):
        _run_linked(session, linked, sets, answer)
    if task := args.get("task"):
        answer["task"] = _task(session, task, args)


def _run_linked(
    session: Session, linked: Mapping[str, Any], sets: list[values.Feeds], answer: Answer
) -> None:
    """End to end: on the outputs of earlier components of the same package."""
    given = _given(linked["inputs"], sets)
    ends = [
        session.run(values.feeds({**one, **more}, session.inputs))
        for one, more in zip(sets, given, strict=False)
    ]
    if ends:
        _save(Path(linked["save"]), ends)
    if linked.get("reference") and Path(linked["reference"]).is_file():
        wanted = _load(Path(linked["reference"]))
        lost = {"": {"absent": "what the earlier components give does not fit"}}
        answer["end_to_end"] = compare(ends, wanted) if ends else lost


def _given(inputs: Mapping[str, Any], sets: list[values.Feeds]) -> list[values.Feeds]:
    """The linked inputs of every set; empty unless all exist in the shapes of the sets."""
    import numpy as np

    files = {one["file"]: _load(Path(one["file"])) for one in inputs.values()}
    given: list[values.Feeds] = []
    for at, one in enumerate(sets):
        outputs = {
            name: files[link["file"]][at].get(link["output"])
            for name, link in inputs.items()
            if at < len(files[link["file"]])
        }
        if outputs.keys() != inputs.keys() or any(
            value is None or name not in one or np.shape(one[name]) != value.shape
            for name, value in outputs.items()
        ):
            return []
        given.append(outputs)
    return given


def _sets(session: Session, args: Mapping[str, Any]) -> list[values.Feeds]:
    """The engine's first sets and all of the catalog's; seeded ones if there are none."""
    component, count = args.get("component", ""), int(args["sets"])
    found = [files.sample(Path(path)) for path in args.get("inputs", ())[:count]]
    if not found:
        shapes = args.get("shapes", {})
        found = [values.made(session.inputs, seed, shapes) for seed in range(count)]
    for path in args.get("extra", ()):
        given = values.read(Path(path), component, 64)
        found += [{**found[0], **one} for one in given]
    return found


def _task(session: Session, task: Mapping[str, Any], args: Mapping[str, Any]) -> Answer:
    """Top-1 answers on a dataset, compared with its labels or kept to compare with the source's.

    Empty for a component that the dataset has no values for.
    """
    try:
        rows = values.read(Path(task["dataset"]), args.get("component", ""), 100_000)
        if not {port.name for port in session.inputs} & rows[0].keys():
            return {}
        return _answers(session, rows)
    # Whatever a runtime raises on a dataset: on its own input values the model has run.
    except Exception as error:  # noqa: BLE001
        return {"problem": one_line(error)}


def _answers(session: Session, rows: list[values.Feeds]) -> Answer:
    import numpy as np

    answers, right = [], 0
    for number, row in enumerate(rows, 1):
        fed = values.feeds(row, session.inputs, number)
        found = session.run(fed)
        # A classifier of tables gives its label first, which says nothing of the other classes.
        scores = (one for one in found.values() if np.asarray(one).dtype.kind == "f")
        first = next(scores, next(iter(found.values())))
        answers.append(int(np.argmax(first, axis=-1).ravel()[0]))
        if "label" in row:
            right += int(answers[-1] == int(np.ravel(row["label"])[0]))
    labelled = all("label" in row for row in rows)
    return {
        "samples": len(rows),
        "accuracy": right / len(rows) if labelled else None,
        "answers": answers,
    }


def _join(args: Mapping[str, Any]) -> Answer:
    """The join of two components' outputs, compared with the export's."""
    name, results = args["name"], {}
    for who in ("found", "wanted"):
        try:
            left, right = (
                [one[side["output"]] for one in _load(Path(side["file"]))] for side in args[who]
            )
            pairs = list(zip(left, right, strict=False))
            results[who] = joined(pairs, args["scale"], args["bias"])
        except (ValueError, KeyError) as error:
            return {name: {"absent": f"the outputs cannot be joined: {one_line(error)}"}}
    return compare([{name: results["found"]}], [{name: results["wanted"]}])


def _save(path: Path, sets: list[Any]) -> None:
    import numpy as np

    flat: dict[str, Any] = {
        f"{at}/{name}": value.astype(str) if value.dtype == object else value  # never a pickle
        for at, one in enumerate(sets)
        for name, value in one.items()
        if isinstance(value, np.ndarray)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **flat)


def _load(path: Path) -> list[dict[str, Any]]:
    import numpy as np

    found: dict[int, dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            at, _, name = key.partition("/")
            found.setdefault(int(at), {})[name] = arrays[key]
    return [found[at] for at in sorted(found)]
