from __future__ import annotations

import threading

import pytest

from flows.fleet import task_runs


def test_a_task_run_shows_what_the_engine_is_doing_as_one_artifact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, float, str]] = []
    enough = threading.Event()
    texts = ["", "exporting", "exporting", "calibrating 32/128", "calibrating 96/128"]

    def activity() -> str:
        if len(texts) == 1:
            enough.set()
            return texts[0]
        return texts.pop(0)

    def create(progress: float, description: str) -> str:
        told.append(("made", progress, description))
        return "the artifact"

    def update(artifact: str, progress: float, description: str) -> None:
        assert artifact == "the artifact"
        told.append(("moved", progress, description))

    monkeypatch.setattr(task_runs, "_INTERVAL", 0.001)
    monkeypatch.setattr(task_runs, "create_progress_artifact", create)
    monkeypatch.setattr(task_runs, "update_progress_artifact", update)
    with task_runs.activity_shown(activity):
        assert enough.wait(60)
    assert told[:3] == [
        ("made", 0.0, "exporting"),
        ("moved", 25.0, "calibrating 32/128"),
        ("moved", 75.0, "calibrating 96/128"),
    ]
