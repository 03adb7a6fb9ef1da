"""Compiling ahead of time in the child: ONNX models become EPContext models.

Works in a folder of the request's own and names every file relative to it: the QNN compiler puts
a digest of the path that it was given into its result, and equal inputs must give equal bytes.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workers.sources.errors import one_line

Entries = tuple[tuple[str, str], ...]
SHARE = ("ep.share_ep_contexts", "1")
STOP_SHARING = ("ep.stop_share_ep_contexts", "1")
"""Set before the last member: its compilation writes the binary of the whole group."""


def entries(backend: str, outputs: Sequence[str], *, embed: bool) -> Iterator[Entries]:
    """The session entries to add before each model is compiled, all to the same options."""
    last = len(outputs) - 1
    for place, output in enumerate(outputs):
        found: list[tuple[str, str]] = []
        if place == 0 and backend == "session":
            found += [("ep.context_enable", "1"), ("ep.context_embed_mode", str(int(embed)))]
        if place == 0 and last:
            found.append(SHARE)
        if place == last and last:
            found.append(STOP_SHARING)
        if backend == "session":
            found.append(("ep.context_file_path", output))
        yield tuple(found)


def compile_models(
    session_options: Callable[[Mapping[str, Any]], Any],
    args: Mapping[str, Any],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Compile the members of a group in order; the first one that fails ends it.

    The answer has the seconds of each member that was compiled. With an error it also has the
    place of the member that failed, and nothing that was written may be used: the binary of a
    group is complete only after its last member.
    """
    sources, outputs = list(args["sources"]), list(args["outputs"])
    answer: dict[str, Any] = {"seconds": []}
    held: list[Any] = []
    with contextlib.chdir(args["folder"]):  # this process serves one request at a time
        options = session_options(args["runtime"])
        try:
            steps = entries(args["backend"], outputs, embed=args["embed"])
            for place, step in enumerate(steps):
                answer["failed"] = place
                progress(f"compiling {place + 1}/{len(sources)}")
                began = time.monotonic()
                for key, value in step:
                    options.add_session_config_entry(key, value)
                held.append(_compile(args, options, sources[place], outputs[place]))
                answer["seconds"].append(round(time.monotonic() - began, 3))
            del answer["failed"]
        # A compiler raises anything at all; the answer says at which member.
        except Exception as error:  # noqa: BLE001
            answer["error"] = one_line(error)
        finally:
            options = None
            held.clear()
            gc.collect()
    return answer


def _compile(args: Mapping[str, Any], options: Any, source: str, output: str) -> Any:
    """Returns what must live until the whole group is written."""
    import onnxruntime

    if args["backend"] == "session":
        return onnxruntime.InferenceSession(source, options)
    compiler = onnxruntime.ModelCompiler(
        options, source, embed_compiled_data_into_model=args["embed"]
    )
    compiler.compile_to_file(output)
    return compiler
