from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.observe.summaries.document import summary_document
from flows.observe.summaries.markdown import markdown
from flows.report.collect import collect
from flows.report.page import render, write
from flows.report.timeline import stretches
from matrix.errors import UsageError
from matrix.model import Target, is_export
from matrix.status import FailureClass, Status
from state.records import Facts, StageRun
from tests.states.reported import reported
from tests.states.samples import FOREIGN, add_stages, begin, cell, take
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

BAD = "b/bad:fill-mask@vitisai_npu"


def document(harness: SweepHarness, **flags: Any) -> dict[str, Any]:
    bad = small_model("b/bad", act={"quantize": "fail:QUANTIZE"})
    skipped = (replace(bad.cells[0], skip="does not fit"), *bad.cells[1:])
    plan = make_plan(small_model("a/good", cells=8), replace(bad, cells=skipped))
    harness.sweep(plan, slots=1, **flags)
    assert harness.begun is not None
    info = harness.state.find_sweep()
    assert info is not None
    return reported(harness.state, info)


def find(made: dict[str, Any], cell_id: str) -> dict[str, Any]:
    (found,) = (one for one in made["cells"] if one["id"] == cell_id)
    assert isinstance(found, dict)
    return found


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    parsed: dict[str, object] = json.loads(found[1])
    return parsed


def test_the_grid_has_models_down_and_targets_across_in_their_order(harness: SweepHarness) -> None:
    made = document(harness)
    assert [row["name"] for row in made["rows"]] == ["a/good:fill-mask", "b/bad:fill-mask"]
    assert [column["label"] for column in made["columns"]][:4] == [
        "export",
        "qnn_npu",
        "qnn_gpu",
        "ov_cpu",
    ]
    for one in made["cells"]:
        label = one["id"].rpartition("@")[2]
        assert made["columns"][one["column"]]["label"] == label
        assert one["id"].startswith(made["rows"][one["row"]]["name"])


def test_a_column_of_a_target_of_ones_own_has_its_provider_and_device(
    harness: SweepHarness,
) -> None:
    own = Target("my_npu", "qnn", "npu", "QNNExecutionProvider")
    model = small_model(cells=1)
    (cell,) = model.cells
    mine = replace(cell, target=own, id=cell.id.replace(cell.target.label, own.label))
    harness.sweep(make_plan(replace(model, cells=(mine,))))
    assert harness.begun is not None
    made = reported(harness.state, harness.begun.info)
    assert made["columns"] == [
        {"label": "export"},
        {"label": "my_npu", "ep": "qnn", "device": "npu"},
    ]


def test_totals_agree_with_the_state(harness: SweepHarness) -> None:
    made = document(harness)
    assert made["totals"]["counts"] == {"published": 9, "build_failed": 1, "skipped": 1}
    assert (made["totals"]["cells"], made["totals"]["models"], made["totals"]["open"]) == (11, 2, 0)
    assert (made["totals"]["failed"], made["totals"]["failed_exports"]) == (1, 0)
    assert harness.begun is not None
    runs = harness.state.stage_runs(harness.begun.info.id)
    assert made["totals"]["stage_runs"] == len(runs)
    assert made["totals"]["stages_reused"] == sum(run.reused for run in runs) > 0
    assert made["totals"]["bytes_saved"] == sum(run.bytes for run in runs if run.reused)
    known = harness.state.real_seconds(harness.begun.info.id)
    assert made["totals"]["seconds_saved"] == pytest.approx(
        sum(known[run.key] for run in runs if run.reused), abs=0.05
    )


def test_a_failed_cell_tells_everything(harness: SweepHarness) -> None:
    made = document(harness)
    one = find(made, BAD)
    assert (one["status"], one["failure"], one["stage"]) == ("build_failed", "QUANTIZE", "quantize")
    assert one["message"] == "told to fail"
    assert one["hint"] == "do not tell it to"
    assert made["policies"][one["policy"]]["precision"] == "w8a16"
    assert [step["what"] for step in one["steps"]] == ["building", "build_failed"]
    assert one["steps"][-1]["why"] == "QUANTIZE in quantize: told to fail"


def test_a_last_run_that_took_up_a_part_does_not_make_a_sweep_good(harness: SweepHarness) -> None:
    document(harness)
    assert harness.begun is not None
    harness.state.end(harness.begun.info.id, 0)
    info = harness.state.find_sweep()
    assert info is not None
    heading = reported(harness.state, info)["heading"]
    assert (heading["exit_code"], heading["verdict"]) == (1, "some cells failed")
    text = markdown(summary_document(harness.state, info))
    assert "Exit code 0" in text
    assert "every cell" not in text.partition("##")[0]


def test_a_good_cell_tells_its_stages_evidence_and_way(harness: SweepHarness) -> None:
    made = document(harness)
    one = find(made, "a/good:fill-mask@vitisai_npu")
    assert [stage["stage"] for stage in one["stages"]] == [
        "export",
        "inputs",
        "optimize",
        "quantize",
    ]
    assert one["stages"][0]["reused"]
    assert made["keys"][one["stages"][0]["key"]]
    assert one["tree"]
    assert one["steps"][0]["what"] == "building"
    assert one["steps"][-1]["what"] == "published"
    assert made["owners"][one["steps"][0]["owner"]].startswith("slot-")


def test_the_time_line_holds_every_build_of_every_worker(harness: SweepHarness) -> None:
    made = document(harness)
    built = {
        bar["cell"]
        for worker in made["timeline"]["workers"]
        for bar in worker["bars"]
        if bar["lane"] == 0
    }
    begun = {
        place
        for place, one in enumerate(made["cells"])
        if any(step["what"] == "building" for step in one.get("steps", ()))
    }
    assert built == begun
    cells = [place for place in built if not is_export(made["cells"][place]["id"])]
    assert sum(worker["cells"] for worker in made["timeline"]["workers"]) == len(cells) < len(built)
    for worker in made["timeline"]["workers"]:
        assert all(bar["start"] <= bar["end"] for bar in worker["bars"])


def test_an_attempt_that_failed_is_told_after_a_later_one_went_well(harness: SweepHarness) -> None:
    info = begin(harness.state)
    lease = take(harness.state, info)
    secret = "https://u:s3cr3t@host"
    harness.state.record(lease, info.id, cell(), _status("building"))
    facts = Facts(failure=FailureClass.NETWORK, stage="export", message=f"no {secret}")
    harness.state.record(lease, info.id, cell(), _status("build_failed"), facts)
    harness.state.release(lease, done=True)
    harness.state.retry(info.id, among=[cell()])
    again = take(harness.state, info)
    harness.state.record(again, info.id, cell(), _status("building"))
    harness.state.record(again, info.id, cell(), _status("published"), Facts(tree="a" * 64))
    one = find(reported(harness.state, info), cell())
    assert "failure" not in one
    assert [step["why"] for step in one["steps"] if "why" in step] == [
        "NETWORK in export: no https://***@host"
    ]


def test_the_source_that_was_read_is_told_with_its_commit(harness: SweepHarness) -> None:
    info = begin(harness.state)
    lease = take(harness.state, info)
    parts = {"inputs": {"source": "d" * 64}, "params": {"commit": "c" * 40}}
    later = {"inputs": {"export": "e" * 64}}
    add_stages(
        harness.state,
        lease,
        StageRun(cell(), "qnn_npu", "export", "k1", parts),
        StageRun(cell(), "qnn_npu", "optimize", "k2", later),
    )
    made = reported(harness.state, info)
    assert made["rows"][0]["content"] == {"digest": "d" * 64, "commit": "c" * 40}
    assert "content" not in made["rows"][1]


def test_long_breaks_are_left_out_of_the_time_line() -> None:
    bars = [(at, at + 10) for at in (0.0, 5.0, 100.0, 5000.0)]
    assert stretches(bars) == [(0.0, 110.0), (5000.0, 5010.0)]
    assert stretches([]) == []


def test_work_of_a_lost_worker_is_not_shown_as_another_ones(harness: SweepHarness) -> None:
    info = begin(harness.state)
    lease = take(harness.state, info, FOREIGN, ttl=0.0)
    harness.state.record(lease, info.id, cell(), _status("building"))
    again = take(harness.state, info)
    harness.state.record(again, info.id, cell(), _status("building"))
    harness.state.record(again, info.id, cell(), _status("published"), Facts(tree="a" * 64))
    made = reported(harness.state, info)
    assert [made["owners"][worker["owner"]] for worker in made["timeline"]["workers"]] == [
        again.owner
    ]
    assert find(made, cell())["attempts"] == 2


def _status(name: str) -> Status:
    return Status(name)


def test_a_sweep_under_way_can_be_shown(harness: SweepHarness) -> None:
    info = begin(harness.state)
    made = reported(harness.state, info)
    assert made["heading"]["verdict"] == "running or interrupted"
    assert made["totals"]["open"] == len(made["cells"]) > 0
    assert "data" in render(made)


def test_the_page_is_one_file_that_loads_nothing(harness: SweepHarness) -> None:
    page = render(document(harness))
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"<(?:link|img|script|iframe)[^>]+(?:src|href)=\"(?!data:)", page)
    assert "$" + "{" not in re.sub(r"<script>.*", "", page, flags=re.DOTALL)


def test_the_policy_names_the_script_and_style_that_are_there(harness: SweepHarness) -> None:
    page = render(document(harness))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert inside
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"sha256-{digest}" in html.unescape(policy[1])
    assert html.unescape(policy[1]).startswith("default-src 'none'")
    assert "unsafe" not in policy[1]


def test_foreign_text_becomes_no_markup(harness: SweepHarness) -> None:
    made = document(harness)
    evil = "</script><script>alert(1)</script><!-- <img onerror=x> & \u2028"
    cells = [one | {"message": evil, "hint": evil, "log": 0} for one in made["cells"]]
    rows = [row | {"id": evil, "task": evil} for row in made["rows"]]
    heading = made["heading"] | {"stamp": evil}
    page = render(made | {"cells": cells, "rows": rows, "logs": [evil], "heading": heading})
    assert evil not in page
    assert page.count("<script") == 2
    assert "<title>sweep &lt;/script&gt;" in page
    assert data_of(page)["logs"] == [evil]


def test_credentials_reach_no_page(harness: SweepHarness) -> None:
    info = begin(harness.state)
    secret = "s3cr3t-v4lue"
    url = f"https://user:{secret}@host/feed"
    facts = Facts(
        message=f"cannot reach {url}",
        hint=f"PASSWORD={secret}",
        log_tail=f"GET {url}",
        evidence={"rungs": [{"name": "x", "passed": False, "detail": url, "evidence": {"u": url}}]},
        detail={"where": url},
    )
    harness.state.record(take(harness.state, info), info.id, cell(), _status("build_failed"), facts)
    told = summary_document(harness.state, info)
    named = replace(told, info=replace(info, feed=url, settings={"feed": url, "x": url}))
    page = render(collect(harness.state, named))
    assert secret not in page
    assert "https://***@host/feed" in page


def test_logs_and_evidence_are_bounded_and_equal_logs_kept_once(harness: SweepHarness) -> None:
    info = begin(harness.state)
    for number in range(2):
        lease = take(harness.state, info)
        for target in ("qnn_npu", "mlas_cpu"):
            facts = Facts(
                log_tail="x" * 15_000,
                evidence={"rungs": [{"name": "n", "passed": None, "evidence": {"a": "y" * 7000}}]},
            )
            harness.state.record(
                lease, info.id, cell(number, target), _status("build_failed"), facts
            )
        harness.state.release(lease, done=True)
    made = reported(harness.state, info)
    assert len(made["logs"]) == 1
    assert len(render(made)) < 150_000


def test_a_comparison_is_a_part_of_the_page(harness: SweepHarness) -> None:
    harness.sweep(make_plan(small_model("a/good")))
    first = harness.state.find_sweep("20260609")
    harness.sweep(make_plan(small_model("a/good", salt="new"), stamp="20260610"))
    second = harness.state.find_sweep("20260610")
    assert first is not None
    assert second is not None
    made = reported(harness.state, second, first)
    told = json.loads(json.dumps(data_of(render(made))["comparison"]))
    assert (told["before"], told["after"]) == ("20260609", "20260610")
    assert told["counts"]["changed"] == len(told["changes"]) == 3
    assert told["changes"][0]["inputs"][0]["origin"] == "source"


def test_the_page_is_replaced_as_a_whole_or_not_at_all(
    harness: SweepHarness, tmp_path: Path
) -> None:
    made = document(harness)
    dest = tmp_path / "out" / "report.html"
    write(made, dest)
    write(made, dest)
    assert [path.name for path in dest.parent.iterdir()] == ["report.html"]
    with pytest.raises(UsageError, match="-o"):
        write(made, dest / "below-a-file.html")


def test_the_page_takes_the_place_of_no_link(harness: SweepHarness, tmp_path: Path) -> None:
    made = document(harness)
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "report.html")
    with pytest.raises(UsageError, match=r"link.html: it is a link"):
        write(made, link)
    assert link.is_symlink()


def test_the_page_takes_the_place_of_no_device(harness: SweepHarness) -> None:
    """As root, the report took that of /dev/stdout and /dev/full."""
    with pytest.raises(UsageError, match="it is not a file"):
        write(document(harness), Path(os.devnull))


def test_a_compiled_cell_tells_what_opening_took_and_that_it_was_emulated(
    harness: SweepHarness,
) -> None:
    info = begin(harness.state)
    name = "QNNExecutionProvider npu (emulated)"
    evidence = {
        "runtimes": [{"own": True, "ran": True, "emulated": True, "name": name}],
        "opening": {
            "model.onnx": {
                "portable": {"seconds": 0.9, "memory": 7_000_000},
                "compiled": {"seconds": 0.05, "memory": 900_000},
            }
        },
    }
    lease = take(harness.state, info)
    for status in ("building", "built", "verifying", "verified"):
        harness.state.record(lease, info.id, cell(), _status(status), Facts(evidence=evidence))
    made = reported(harness.state, info)
    (told,) = [one["opening"] for one in made["cells"] if "opening" in one]
    assert (told["on"], told["emulated"]) == (name, True)
    (model,) = told["models"]
    assert model["portable"] == {"seconds": 0.9, "memory": 7_000_000}
    assert model["compiled"]["seconds"] == 0.05
