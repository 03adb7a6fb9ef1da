"""`modelmill knowledge`: the findings of tuning and onboarding."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from flows.cli.arguments import Arguments, Parser, add_verbs
from flows.output.console import print_result, tell
from flows.output.quantity import counted
from flows.output.table import render
from flows.tune.knowledge import Knowledge, load_knowledge, read_files
from matrix.codec import to_json
from matrix.errors import PlanError, UsageError
from matrix.findings import Evidence, Finding, Kind, Status
from matrix.globs import matches


def add(parser: Parser) -> None:
    # fmt: off
    verb = add_verbs(parser, "home", "knowledge")
    add = verb("ls", "list findings, one per line", _ls).add_argument
    add("--kind", choices=get_args(Kind), help="only findings of this kind")
    add("--status", choices=get_args(Status), help="only findings with this status")
    add("--about", metavar="GLOB", help="only those about a target, model or architecture")
    add = verb("show", "show a finding with its evidence", _show).add_argument
    add("id", metavar="ID", help="the id of the finding")
    text = "report errors in files of findings and evidence"
    add = verb("check", text, _check, as_json=False).add_argument
    add("files", nargs="*", type=Path, metavar="FILE",
        help="files of findings (.toml) or evidence (.jsonl); default: the whole knowledge base")
    # fmt: on


def _known(arguments: Arguments) -> Knowledge:
    folder = arguments.work.knowledge
    if arguments.settings.knowledge and not folder.is_dir():
        text = f"--knowledge: there is no folder {folder}"
        raise UsageError(text, hint="make it, or leave it out")
    return load_knowledge(folder)


def _ls(arguments: Arguments) -> None:
    known = _known(arguments)
    rows = [
        one
        for one in known.findings.values()
        if arguments.kind in (None, one.kind)
        and arguments.status in (None, one.status)
        and (arguments.about is None or _about(one, arguments.about))
    ]
    table = render(("id", "level", "status", "try", "title"), [_row(one) for one in rows])
    none = "no finding matches; 'modelmill knowledge ls' lists all"
    print_result(arguments, [_json(one) for one in rows], [table if rows else none])
    for problem in known.problems:
        tell(str(problem))


def _row(one: Finding) -> tuple[str, str, str, str, str]:
    action = one.action if one.action != "note" else ""
    if action == "skip" and not one.prunes:
        action = "last"
    return one.id, str(one.level), one.status, action, one.title


def _about(one: Finding, pattern: str) -> bool:
    named = {*one.scope.targets, *one.scope.architectures, *one.scope.models}
    for seen in one.evidence:
        named |= {seen.model, seen.architecture, seen.target}
    return any(matches(name, [pattern]) for name in named)


def _json(one: Finding) -> dict[str, object]:
    return {**to_json(one), "level": one.level, "prunes": one.prunes}


def _show(arguments: Arguments) -> None:
    one = _known(arguments).get(arguments.id)
    print_result(arguments, _json(one), _lines(one))


def _lines(one: Finding) -> Iterator[str]:
    yield f"{one.id}: {one.title}"
    yield from textwrap.wrap(one.observation, 90, initial_indent="  ", subsequent_indent="  ")
    yield ""
    yield f"status        {one.status}, level {one.level}, confidence {one.confidence}"
    if one.effect == "none":
        yield f"claims        {', '.join(one.settings)} changes nothing"
    if one.action != "note":
        yield f"advice        {_advice(one)}"
    confirmed = "confirmed" if one.mechanism_confirmed else "not confirmed"
    if one.effort or one.goal:
        yield f"onboarded     {one.goal or 'no goal reached'}, effort: {one.effort or 'unknown'}"
    yield f"mechanism     {one.mechanism or 'unknown'} ({confirmed})"
    yield f"falsified by  {one.falsified_by}"
    for name in ("targets", "devices", "architectures", "models", "not_for"):
        if values := getattr(one.scope, name):
            yield f"{name.replace('_', ' '):13} {', '.join(values)}"
    yield f"file          {one.file}"
    if one.evidence:
        yield ""
        against = sum(not seen.supports for seen in one.evidence)
        devices = counted(len(one.devices), "device") if one.devices else "no device"
        yield f"evidence      {len(one.evidence) - against} for, {against} against, from {devices}"
        yield from (f"  {_evidence(seen)}" for seen in one.evidence)


def _advice(one: Finding) -> str:
    about = ", ".join(one.settings)
    match one.action:
        case "first":
            return f"try {about} first"
        case "skip" if one.prunes:
            return f"leave {about} out"
        case "skip":
            return f"try {about} last; from level 3 on, uncontradicted, leave it out"
    return f"try {about} last"


def _evidence(seen: Evidence) -> str:
    said = "for    " if seen.supports else "against"
    gain = "" if seen.gain is None else f" {seen.gain:+.1f} %"
    if seen.low is not None and seen.high is not None:
        gain += f" [{seen.low:+.1f}, {seen.high:+.1f}]"
    place = " on ".join(part for part in (seen.target, seen.device) if part)
    emulated = ", emulated" if seen.emulated else ""
    how = f", {seen.protocol}" if seen.protocol != "none" else ""
    return f"{said} {seen.model}{gain} {place}{how}{emulated}".rstrip()


def _check(arguments: Arguments) -> None:
    if arguments.files:
        findings, seen = read_files(arguments.files)
        print(f"{findings} findings with {seen} observations, no problem")
        return
    known = _known(arguments)
    if known.problems:
        raise PlanError(known.problems, "the evidence")
    count = sum(len(one.evidence) for one in known.findings.values())
    print(f"{len(known.findings)} findings with {count} observations, no problem")
