"""The operations of a runtime's host; a model is released before the reply, except in benchmarks.

`measure` opens a model, runs it on every sample and reports ports, nodes per provider, and how far
every output is from the reference. It judges nothing. An exception of the runtime is
part of the answer, with the point where it was raised; the owner handles the loss of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from matrix.verification import Limit
from workers.host.child import give_back, memory
from workers.host.service import environment
from workers.numerics.compare import compare
from workers.runtimes import generate, values
from workers.runtimes.bench import Benches
from workers.runtimes.compile import compile_models
from workers.runtimes.runtime import AGAIN, UNSUPPORTED
from workers.runtimes.trace import Traces
from workers.runtimes.values import describe, joined
from workers.samples import files
from workers.session import CPU, Session
from workers.sources.errors import one_line

Answer = dict[str, Any]


class RuntimeService:
    """A kind of runtime in the host.

    Operations: `discover`, `measure`, `generate`, `trace`, `optimized`, `compile`, `join`,
    `keep`, `exercise`, and those of `bench.Benches`.
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

    def compatibility(self, _file: str, _runtime: Mapping[str, Any], /) -> str:
        """What the provider says of a compiled model before it opens it; empty: nothing."""
        return ""

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
        if op in {"measure", "generate"}:
            what = args.get("component") or "the model"
            progress(f"running {what} on {args['runtime']['provider']}")
        answers: dict[str, Callable[[], Any]] = {
            "discover": self.discover,
            "measure": lambda: self._measure(args),
            "generate": lambda: self._generate(args),
            "trace": lambda: self.traces.call(args, progress),
            "optimized": lambda: self._write_optimized(args),
            "compile": lambda: compile_models(self.session_options, args, progress),
            "join": lambda: _join(args),
            "keep": lambda: values.keep_outputs(args),
            "exercise": lambda: values.exercised(args),
        }
        if op not in answers:
            raise ValueError(f"a runtime has no operation {op!r}")
        return answers[op]()

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
            if args.get("compiled"):
                answer["compatibility"] = self.compatibility(args["file"], args["runtime"])
                if answer["compatibility"] == UNSUPPORTED:
                    raise RuntimeError("its provider cannot use what it was compiled by: " + AGAIN)
            before, began = memory("VmRSS"), time.monotonic()
            with closing(self.open(args["file"], args["runtime"])) as session:
                session.expect(args.get("outputs") or ())
                answer["open_seconds"] = round(time.monotonic() - began, 3)
                answer["open_memory"] = max(0, memory("VmRSS") - before)
                answer["inputs"] = [port.to_json() for port in session.inputs]
                answer["outputs"] = [port.to_json() for port in session.outputs]
                answer["nodes"] = session.nodes()
                if args["runtime"]["provider"] != CPU:
                    answer["assigned"] = session.assigned()
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
        values.save_sets(Path(args["save"]), found)
    if args.get("reference"):
        answer["parity"] = _compared(found, args["reference"], args)
    if linked := args.get("linked"):
        _run_linked(session, linked, sets, answer, args)
    if task := args.get("task"):
        answer["task"] = _task(session, task, args)


def _compared(found: list[Any], files: list[str] | str, args: Mapping[str, Any]) -> Answer:
    """With the files of a reference, or with all outputs of another model in one file."""
    wanted: list[Mapping[str, Any]]
    if isinstance(files, str):
        wanted = [*values.load_sets(Path(files))]
    else:
        wanted = [values.reference(Path(file)) for file in files[: len(found)]]
    return compare(found, wanted, Limit(**args["limit"]), task=args.get("agree", ""))


def _run_linked(
    session: Session,
    linked: Mapping[str, Any],
    sets: list[values.Feeds],
    answer: Answer,
    args: Mapping[str, Any],
) -> None:
    """End to end: on the outputs of earlier components of the same package."""
    given = _given(linked["inputs"], sets)
    ends = [
        session.run(values.feeds({**one, **more}, session.inputs))
        for one, more in zip(sets, given, strict=False)
    ]
    if ends:
        values.save_sets(Path(linked["save"]), ends)
    if files := linked.get("reference"):
        lost = {"": {"absent": "the outputs of the earlier components do not fit"}}
        answer["end_to_end"] = _compared(ends, files, args) if ends else lost


def _given(inputs: Mapping[str, Any], sets: list[values.Feeds]) -> list[values.Feeds]:
    """The linked inputs of every set; empty unless all exist in the shapes of the sets."""
    import numpy as np

    files = {one["file"]: values.load_sets(Path(one["file"])) for one in inputs.values()}
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
    """The samples; synthetic ones if there are none."""
    if given := args.get("samples"):
        return [files.sample(Path(file)) for file in given]
    shapes, beside = args.get("shapes", {}), Path(args["file"]).parent
    return [
        values.made(session.inputs, number, shapes, beside) for number in range(int(args["sets"]))
    ]


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
    """The join of two components' outputs, compared with that of the reference: every row of the
    first output is one sample."""
    name, limit = args["name"], Limit(**args["limit"])
    try:
        left, right = (
            [one[side["output"]] for one in values.load_sets(Path(side["file"]))]
            for side in args["found"]
        )
        wanted = [
            [values.whole_output(Path(file), side["output"]) for file in side["files"][: len(left)]]
            for side in args["wanted"]
        ]
        pairs = [list(zip(*sides, strict=True)) for sides in ([left, right], wanted)]
        found, theirs = (joined(one, args["scale"], args["bias"]) for one in pairs)
    except (ValueError, KeyError) as error:
        return {name: {"absent": f"the outputs cannot be joined: {one_line(error)}"}}
    ours, others = ([{name: row[None]} for row in matrix] for matrix in (found, theirs))
    return compare(ours, others, limit, task=args.get("agree", ""))
