"""Generation with the components of a package in the host: every step is given PyTorch's token.

So a difference at one step hides no other, and the most likely tokens of all steps equal PyTorch's
exactly if the package generates PyTorch's text by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from matrix.verification import Limit
from workers import generation
from workers.composition import Composition
from workers.engine import from_json
from workers.generation import Graph
from workers.host.child import give_back
from workers.numerics.compare import compare
from workers.numerics.kept import from_arrays, keep, to_arrays
from workers.runtimes import values
from workers.samples import files
from workers.session import Session

Answer = dict[str, Any]
LOGITS = "logits"
_TOKENS, _MARGINS = "#tokens", "#margins"


class _Opener:
    """Opens one component after the other: only one is in memory."""

    def __init__(self, opening: Callable[[str], Session], args: Mapping[str, Any]) -> None:
        self._opening = opening
        self._files: Mapping[str, str] = args["files"]
        self._outputs: Mapping[str, Sequence[str]] = args["outputs"]
        self._open: Session | None = None

    def __call__(self, name: str) -> Graph:
        self.close()
        session = self._open = self._opening(self._files[name])
        session.expect(self._outputs.get(name, ()))
        shapes = {port.name: [_size(one) for one in port.shape] for port in session.inputs}
        return Graph(shapes, lambda feeds: session.run(values.feeds(feeds, session.inputs)))

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
            give_back()


def answer(opening: Callable[[str], Session], args: Mapping[str, Any]) -> Answer:
    """The most likely token of every step beside PyTorch's, and how far the logits are from the
    export's; an exception of the runtime is part of the answer."""
    found: Answer = {"at": "run"}
    with values.told(found), closing(_Opener(opening, args)) as opener:
        import numpy as np

        record = from_json(args["record"], Composition)
        prompt = files.sample(Path(args["prompt"]))
        wanted = [int(one) for one in prompt[generation.TOKENS]]
        steps = generation.generate(record, prompt, opener, lambda number, _logits: wanted[number])
        logits = np.stack([one.logits for one in islice(steps, len(wanted))])
        found["tokens"] = [generation.greedy(0, one) for one in logits]
        found["wanted"] = wanted
        found["behind"] = _behind(logits, wanted)
        if args.get("save"):
            _keep(Path(args["save"]), logits, int(args["most"]))
        if args.get("reference"):
            found |= _compared(Path(args["reference"]), logits, Limit(**args["limit"]))
    return found


def _behind(logits: Any, tokens: Sequence[int]) -> list[float]:
    """How much less likely these tokens are than the most likely ones, in deviations."""
    scale = _deviation(logits)
    steps = zip(logits, tokens, strict=True)
    return [round(float(one.max() - one[token]) / scale, 5) for one, token in steps]


def _deviation(logits: Any) -> float:
    """Of the logits, from what all steps have in common."""
    return max(float((logits - logits.mean(axis=0)).std()), 1e-12)


def _keep(file: Path, logits: Any, most: int) -> None:
    """Of all steps the token and its margin before the second one, in deviations of the logits; of
    the logits as many steps as fit."""
    import numpy as np

    best = np.sort(np.partition(logits, -2, axis=1)[:, -2:], axis=1)
    kept = to_arrays(LOGITS, keep(logits, name=LOGITS, most=most))
    margins = (best[:, 1] - best[:, 0]) / _deviation(logits)
    told = {_TOKENS: logits.argmax(axis=1), _MARGINS: margins}
    values.write_kept(file, {**kept, **told})


def _compared(file: Path, logits: Any, limit: Limit) -> Answer:
    """The steps are the samples. A token that the reference prefers by less than the tolerance is
    a tie."""
    import numpy as np

    kept = files.sample(file)
    row = from_arrays(kept)[LOGITS]
    ours, theirs = (
        [{LOGITS: line[None]} for line in lines] for lines in (row.of(logits), row.values)
    )
    figures = compare(ours, theirs, limit)[LOGITS]
    sure = kept[_MARGINS] > 2 * limit.ratio
    same = np.asarray([generation.greedy(0, one) for one in logits]) == kept[_TOKENS]
    if sure.any():
        figures["agreement"] = round(float(same[sure].mean()), 3)
    figures |= {"decisions": int(sure.sum()), "ties": int((~sure).sum())}
    return {"parity": {LOGITS: figures}}


def _size(dim: int | str | None) -> int | str | None:
    return None if isinstance(dim, int) and dim < 0 else dim
