"""Setting a fleet up on a real Prefect server, and orders that cannot be given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fleets.machines import PrefectServer, prefect_server
from tests.sweeps.command import NOBODY, Project, model

pytestmark = pytest.mark.fleet


@pytest.fixture
def server(prefect_template: Path, tmp_path: Path) -> Iterator[PrefectServer]:
    with prefect_server(prefect_template, tmp_path / "prefect") as made:
        yield made


def test_a_fleet_is_set_up_again_and_again(project: Project, server: PrefectServer) -> None:
    project.env = {
        "PREFECT_API_URL": server.url,
        "PREFECT_HOME": str(project.folder / "client"),
        "MODELMILL_STATE": "postgresql://nobody@127.0.0.1:9/none",
        "NOTIFY_URL": "http://127.0.0.1:9/hook",
    }
    catalog = project.catalog(model())
    nightly = ("deploy", "--nightly", "0 2 * * *", "--timezone", "Europe/Berlin")
    wrong = (
        (("deploy", "--nightly", "at two"), 2, "'at two' (UTC)"),
        (("deploy", "--notify", "slack-webhook/nobody"), 2, "no block slack-webhook/nobody"),
        (("sweep", catalog, "--fleet", "--pool", "other"), 2, "knows no fleet 'other'"),
    )
    *done, at_two, nobody, other = project.session(
        [
            *(
                (*nightly, "--catalog", catalog, *options, "--notify", "webhook")
                for options in (
                    ("--if-changed", "--target", "mlas_cpu,qnn_npu"),
                    ("--target", "mlas_cpu"),
                )
            ),
            *(arguments for arguments, _code, _said in wrong),
        ]
    )
    assert [(ran.code, ran.err) for ran in done] == [(0, "")] * 2, done
    with httpx.Client(base_url=server.url, timeout=60) as api:
        made = api.get("/deployments/name/modelmill-fleet/modelmill-nightly").json()
        names = [one["name"] for one in api.post("/automations/filter", json={}).json()]
    assert sorted(names) == ["modelmill-failed"]
    assert made["parameters"] == {
        "catalog": str(project.folder / catalog),
        "pool": "modelmill",
        "settings": {"target": ["mlas_cpu"], "engine": "fake"},
    }
    (schedule,) = made["schedules"]
    assert schedule["schedule"]["cron"] == "0 2 * * *"
    assert schedule["schedule"]["timezone"] == "Europe/Berlin"
    assert made["global_concurrency_limit"] is None

    for ran, (_arguments, code, said) in zip((at_two, nobody, other), wrong, strict=True):
        assert ran.code == code, ran
        assert said in ran.err
        assert "Traceback" not in ran.err


def test_a_server_that_is_away_is_one_line(project: Project) -> None:
    project.env = {"MODELMILL_STATE": "postgresql://nobody@127.0.0.1:9/none"}
    ran = project.run("sweep", project.catalog(model()), "--fleet", PREFECT_API_URL=NOBODY)
    assert ran.code == 5, ran
    assert ran.err.count("\n") == 1
    assert "cannot be reached" in ran.err
