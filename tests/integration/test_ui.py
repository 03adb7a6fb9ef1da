"""`modelmill ui`: Prefect's interface on what sweeps have shown."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from prefect.states import Completed

from flows.prefect.display import PAGE
from flows.prefect.server import start_server
from flows.prefect.shown_run import ShownRun, connected
from matrix.errors import Exit
from tests.machine.timing import patient
from tests.sweeps.command import Project, model
from tests.sweeps.in_memory import make_plan


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_interface_has_the_history_and_ends_with_ctrl_c(full_project: Project) -> None:
    sweeps_before(full_project)
    full_project.ok("sweep", full_project.catalog(model()), "--target", "mlas_cpu", "--stamp", "s1")
    with full_project.start("ui", "--port", "0") as running:
        url, _blank, rest = running.line().partition(" ")
        assert rest == "(Ctrl-C ends it)\n"
        assert "<title>Prefect" in asked(f"{url}/")
        assert json.loads(asked(f"{url}/ui-settings"))["api_url"] == f"{url}/api"
        (run,) = json.loads(asked(f"{url}/api/flow_runs/filter", b"{}"))
        assert (run["name"], run["state_type"]) == ("s1", "COMPLETED")
        # The Markdown of a local sweep links here.
        assert "<title>sweep s1</title>" in asked(url + PAGE.format("s1").partition("(")[2][:-1])
        with pytest.raises(urllib.error.HTTPError) as missing:
            asked(f"{url}/reports/s2")
        assert (missing.value.code, missing.value.read()[:12]) == (404, b"no sweep 's2")
        running.signal(signal.SIGINT, group=True)
        ran = running.end()
    assert (ran.code, ran.err) == (0, "")
    assert full_project.alone()


def test_a_port_that_is_taken_is_said(project: Project) -> None:
    (project.home / "prefect").mkdir(parents=True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ran = project.run("ui", "--port", str(port))
    assert ran.code == Exit.USAGE
    assert f"port {port} of this machine is taken" in ran.err


def sweeps_before(project: Project) -> None:
    """Show a sweep as one does that has time to."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT_")}
    server = start_server(project.home, kept)
    try:
        server.wait(threading.Event())
        with connected(server.url) as client:
            shown = ShownRun(make_plan(stamp="s1"), 1, {})
            shown.begin(client)
            shown.end(client, Completed())
    finally:
        server.stop(patient(15))


def asked(url: str, body: bytes | None = None) -> str:
    wanted: dict[str, Any] = {"Content-Type": "application/json", "Accept": "text/html, */*"}
    request = urllib.request.Request(url, body, wanted)
    with urllib.request.urlopen(request, timeout=patient(30)) as reply:
        return str(reply.read().decode())
