"""The files that a worker keeps of each sweep that it has led."""

from __future__ import annotations

from pathlib import Path

from flows.fleet.parent import _write_files
from flows.observe.summaries import REPORT_NAME
from flows.observe.summaries.document import summary_document
from flows.settings.resolution import resolve
from tests.states.samples import sql
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


def test_they_are_below_the_folder_of_the_setting_whatever_the_state_says(
    harness: SweepHarness, tmp_path: Path
) -> None:
    kept = tmp_path / "kept" / "summaries"
    given = {"summary": str(kept), "summary_url": "https://reports.example/"}
    settings = resolve(given, {}, tmp_path)
    harness.sweep(make_plan(small_model(cells=1)))
    assert harness.begun is not None
    info = harness.begun.info

    def written() -> str | None:
        return _write_files(harness.state, summary_document(harness.state, info), settings)

    assert written() == f"https://reports.example/{info.stamp}/{REPORT_NAME}"
    files = {path.name for path in (kept / info.stamp).iterdir()}
    assert files == {REPORT_NAME, "summary.json", "summary.md", "junit.xml"}
    sql(harness.state, "UPDATE sweep SET stamp = '../../victim'")
    assert written() == f"https://reports.example/victim/{REPORT_NAME}"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["summaries"]
    assert not (tmp_path / "victim").exists()
