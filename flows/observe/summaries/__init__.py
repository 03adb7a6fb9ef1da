"""What pipelines read when a sweep is over: summary.json, summary.md and junit.xml in one folder.

They are made from the state, so they say the same wherever they are made, and each is replaced as
a whole: a pipeline that looks while they are written sees the last complete one.
"""

from __future__ import annotations

import json
from pathlib import Path

from flows.observe.masking import masked, masked_json
from flows.observe.summaries.document import tell
from flows.observe.summaries.junit import junit
from flows.observe.summaries.markdown import markdown
from flows.observe.textfile import replace_text
from state.ledger import State
from state.records import SweepInfo

JSON_NAME = "summary.json"
MARKDOWN_NAME = "summary.md"
JUNIT_NAME = "junit.xml"
REPORT_NAME = "report.html"
_HINT = "choose another folder with --summary"


def write_summaries(folder: Path, state: State, info: SweepInfo) -> None:
    """Write the three files."""
    told = tell(state, info)
    document = masked_json(told.to_json())
    replace_text(folder / JUNIT_NAME, junit(told), hint=_HINT)
    replace_text(folder / MARKDOWN_NAME, masked(markdown(told)), hint=_HINT)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    replace_text(folder / JSON_NAME, f"{text}\n", hint=_HINT)


def clear_summaries(folder: Path) -> None:
    """Before a run: what an earlier one left must not be taken for this one's; finds out early
    whether the folder can be written at all."""
    replace_text(folder / JSON_NAME, "{}\n", hint=_HINT)
    for name in (JSON_NAME, MARKDOWN_NAME, JUNIT_NAME):
        (folder / name).unlink(missing_ok=True)
