"""Cells as JUnit test cases, which every CI dashboard can show.

A model is a suite, a cell a case. A cell that was not finished (planned, cancelled, in work) is an
error, and so is an index that was not published: an interrupted sweep never looks green. Exports
are not cells: a failed export is an error of its own only if no cell of its model shows one. The
causes of the failures are properties of the suite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree as ET

from flows.observe.evidence import judged_of, run_on
from flows.observe.summaries.document import SummaryDocument
from flows.output.masking import masked
from flows.output.quantity import brief, plain_text
from matrix.model import is_export
from matrix.status import Status
from state.records import Outcome

_LOG_LENGTH = 4_000
_COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 cannot hold these characters, not even as references."""


def junit(document: SummaryDocument) -> str:
    """The file's content."""
    root = ET.Element("testsuites", name=_text(f"modelmill {document.summary.stamp}"))
    by_model = groupby(sorted(document.outcomes, key=lambda one: one.model), lambda one: one.model)
    for name, outcomes in by_model:
        _suite(root, name, _cases(list(outcomes), document), document)
    if document.summary.unindexed:
        index = ET.SubElement(root, "testsuite", name="index")
        case = ET.SubElement(index, "testcase", classname="index", name="index", time="0.000")
        again = f"modelmill resume {document.summary.stamp}{document.summary.flags}"
        message = f"not published; next: {again}"
        ET.SubElement(case, "error", type="unfinished", message=_text(message))
        _count(index)
    _count(root)
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _causes(suite: ET.Element, cases: Iterable[Outcome], document: SummaryDocument) -> None:
    models = {one.model for one in cases}
    groups = [group for group in document.summary.groups if not models.isdisjoint(group.models)]
    properties = ET.SubElement(suite, "properties") if groups else suite
    for group in groups:
        value = f"{group.failure} {group.extent}: {group.text}; next: {brief(group.hint)}"
        ET.SubElement(properties, "property", name="cause", value=_text(value))


def _cases(outcomes: list[Outcome], document: SummaryDocument) -> list[Outcome]:
    """The cells, and the exports if they alone went wrong."""
    cells = [one for one in outcomes if not is_export(one.cell)]
    if any(_wrong(one, document) for one in cells):
        return cells
    return cells + [one for one in outcomes if is_export(one.cell) and _wrong(one, document)]


def _suite(root: ET.Element, name: str, outcomes: list[Outcome], document: SummaryDocument) -> None:
    suite = ET.SubElement(root, "testsuite", name=_text(name))
    _causes(suite, outcomes, document)
    for one in outcomes:
        target, took = _text(one.cell.rpartition("@")[2]), one.seconds or 0.0
        facts = {"classname": _text(name), "name": target, "time": f"{took:.3f}"}
        case = ET.SubElement(suite, "testcase", facts)
        told = {"verified on": judged_of(one), "run on": run_on(one.evidence)}
        if known := {about: _text(str(value)) for about, value in told.items() if value}:
            properties = ET.SubElement(case, "properties")
            for about, value in known.items():
                ET.SubElement(properties, "property", name=about, value=value)
        if one.status.failed:
            _failure(case, one)
        elif one.status is Status.SKIPPED:
            ET.SubElement(case, "skipped", message=_text(one.message or "skipped on purpose"))
        elif _unended(one, document):
            ET.SubElement(case, "error", type="unfinished", message=f"still {one.status}")
    _count(suite)
    suite.set("time", f"{sum(one.seconds or 0.0 for one in outcomes):.3f}")


def _count(element: ET.Element) -> None:
    for name, tag in _COUNTED.items():
        element.set(name, str(len(list(element.iter(tag)))))


def _wrong(one: Outcome, document: SummaryDocument) -> bool:
    return one.status.failed or _unended(one, document)


def _unended(one: Outcome, document: SummaryDocument) -> bool:
    return one.status.unfinished(publish=document.info.publish)


def _failure(case: ET.Element, one: Outcome) -> None:
    message = _text(f"{one.status}: {one.message or ''}".splitlines()[0])
    tag = "error" if is_export(one.cell) else "failure"
    failure = ET.SubElement(case, tag, type=str(one.failure), message=message)
    hint = f"next: {one.hint}" if one.hint else ""
    failure.text = _text("\n".join(filter(None, (one.message, hint))))
    if one.log_tail:
        ET.SubElement(case, "system-out").text = _text(one.log_tail[-_LOG_LENGTH:])


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", masked(plain_text(text)))
