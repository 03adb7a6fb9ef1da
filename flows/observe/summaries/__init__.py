"""What pipelines read when a sweep is over: summary.json, summary.md and junit.xml in one folder.

They are made from the state, so they say the same wherever they are made. Each is replaced as a
whole, so that nobody reads half of one.
"""

from __future__ import annotations

import json
from pathlib import Path

from flows.observe.summaries.document import SummaryDocument
from flows.observe.summaries.junit import junit
from flows.observe.summaries.markdown import markdown
from flows.output.masking import masked, masked_json
from flows.output.webpage import replace_text
from machine.files import unlink

JSON_NAME = "summary.json"
MARKDOWN_NAME = "summary.md"
JUNIT_NAME = "junit.xml"
REPORT_NAME = "report.html"
_HINT = "choose another folder with --summary"


def write_summaries(folder: Path, content: SummaryDocument) -> None:
    """Write the three files."""
    document = masked_json(content.to_json())
    replace_text(folder / JUNIT_NAME, junit(content), hint=_HINT)
    replace_text(folder / MARKDOWN_NAME, masked(markdown(content)), hint=_HINT)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    replace_text(folder / JSON_NAME, f"{text}\n", hint=_HINT)


def clear_summaries(folder: Path) -> None:
    """Remove the files of an earlier run before a new one begins, and find out early whether the
    folder can be written."""
    replace_text(folder / JSON_NAME, "{}\n", hint=_HINT)
    for name in (JSON_NAME, MARKDOWN_NAME, JUNIT_NAME):
        unlink(folder / name)
