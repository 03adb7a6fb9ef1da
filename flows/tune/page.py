"""Tunings as one HTML file, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, count, starmap
from pathlib import Path

from flows.output.table import markdown_table, plain
from flows.output.webpage import replace_text, webpage
from flows.tune.document import Document, TrialRow, TuningPart

HINT = "choose another folder with --dest"


def write(told: Document, folder: Path) -> list[Path]:
    """Write `NAME.html`, `NAME.md` and `NAME.json`; returns the paths. Where another report has
    that name, as that of a tuning before its resume, this one is `NAME-r2`, and so on."""
    texts = {
        "html": html(told),
        "md": markdown(told),
        "json": json.dumps(told.to_json(), indent=1, ensure_ascii=False) + "\n",
    }
    names = chain([told.name], (f"{told.name}-r{n}" for n in count(2)))
    files = ({folder / f"{name}.{suffix}": texts[suffix] for suffix in texts} for name in names)
    made = next(one for one in files if not any(starmap(_is_other, one.items())))
    for path, text in made.items():
        replace_text(path, text, hint=HINT)
    return list(made)


def _is_other(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() != text.encode()


def html(told: Document) -> str:
    """The page. Everything that comes from a model is text to it, never markup."""
    mark = " (emulated)" if any(one.emulated for one in told.tunings) else ""
    plainly = "; ".join(f"{one.model}@{one.target}: {one.conclusion}" for one in told.tunings)
    title = f"tuning {told.name}{mark}"
    data = told.to_json()
    return webpage("tune", ("tune",), data, plain=True, title=title, plainly=plainly)


def markdown(told: Document) -> str:
    """A summary that a pull request or a wiki can show."""
    return "\n".join(_lines(told)) + "\n"


def _lines(told: Document) -> Iterator[str]:
    yield f"# Tuning {told.name}"
    yield ""
    rows = [[one.model, one.target, one.status, one.conclusion] for one in told.tunings]
    yield from markdown_table(["model", "target", "status", "conclusion"], rows)
    for one in told.tunings:
        yield from _part(one)


def _part(one: TuningPart) -> Iterator[str]:
    yield ""
    yield f"## {plain(one.model)}@{plain(one.target)}"
    yield ""
    if one.emulated:
        yield "**Emulated: these times say nothing about the device.**"
        yield ""
    yield f"{plain(one.conclusion[0].upper() + one.conclusion[1:])}."
    yield ""
    yield from (f"- {name}: {plain(str(value))}" for name, value in one.facts)
    if one.trials:
        yield ""
        heads = ["trial", "verdict", "gain %", "interval %", "noise floor %", "why"]
        yield from markdown_table(heads, [_trial(row, one.champion) for row in one.trials])
    if one.skipped:
        yield ""
        rows = [[row.key, row.why, row.finding] for row in one.skipped]
        yield from markdown_table(["not tried", "why", "finding"], rows)


def _trial(row: TrialRow, champion: str) -> list[str]:
    name = f"{row.key} (champion)" if row.key == champion else row.key
    if row.gain is None or row.low is None or row.high is None:
        return [name, row.verdict, "", "", "", row.why]
    interval = f"{row.low:+.1f} to {row.high:+.1f}"
    return [name, row.verdict, f"{row.gain:+.1f}", interval, f"{row.floor:.1f}", row.why]
