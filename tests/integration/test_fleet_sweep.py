"""A sweep on a fleet of two machines: the same result as on one, whatever dies on the way."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.errors import Exit
from state.records import Kind
from state.state import open_state
from tests.fleets.machines import LIMIT, POOL, FleetProject, PrefectServer, copied, fleet_project
from tests.services.postgres import Server, postgres
from tests.sweeps.command import Project, model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]

SECRET = "mill:known-to-few"


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with postgres() as made:
        yield made


@pytest.fixture(scope="module")
def prefect(
    prefect_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrefectServer]:
    home = copied(prefect_template, tmp_path_factory.mktemp("fleet") / "prefect")
    server = PrefectServer(home, env={"PREFECT_SERVER_API_AUTH_STRING": SECRET})
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def project(tmp_path: Path, database: Server, prefect: PrefectServer) -> FleetProject:
    url = database.new_database()
    open_state(url).close()
    made = fleet_project(tmp_path / "project", prefect, url, PREFECT_API_AUTH_STRING=SECRET)
    made.ok("deploy", "--pool", POOL, plain=False)
    return made


def models(project: Project, waiting: str | None = None) -> str:
    act = {"quantize": f"wait:{project.folder / waiting}"} if waiting else {}
    return project.catalog(
        model("tiny/a"), model("tiny/b", act=act, salt="b"), model("tiny/c", size=50_000)
    )


def undisturbed(folder: Path) -> dict[tuple[str, str], str | None]:
    folder.mkdir()
    alone = Project(folder)
    alone.ok("sweep", models(alone), "--stamp", "s1")
    return alone.published()


def check_same(project: FleetProject, tmp_path: Path) -> None:
    """What an undisturbed sweep on one machine publishes, digests included; all of it once."""
    assert project.published() == undisturbed(tmp_path / "alone")
    became = Counter(
        one.cell
        for one in project.events("s1")
        if one.status == "published" and one.kind in {Kind.STATUS, Kind.SEEDED}
    )
    assert set(became.values()) == {1}


@pytest.mark.slow
def test_a_server_with_a_password_is_told_it_or_says_no(project: FleetProject) -> None:
    catalog = project.catalog(model("tiny/a"))
    deploy, guess = ("deploy", "--pool", POOL), {"PREFECT_API_AUTH_STRING": "mill:a-guess"}
    for command, wrong in (
        (project.fleet("sweep", catalog), {}),
        (project.fleet("sweep", catalog), guess),
        (deploy, guess),
        (("worker",), {}),
    ):
        project.env = {
            name: text for name, text in project.env.items() if "AUTH" not in name
        } | wrong
        ran = project.run(*command, plain=False)
        assert ran.code == Exit.UNUSABLE, ran
        assert "answers 401" in ran.err
        assert "PREFECT_API_AUTH_STRING" in ran.err
        assert not any(word in ran.out + ran.err for word in ("a-guess", "Traceback", SECRET))


@pytest.mark.slow  # `test_fleet_faults.py` compares what a fleet makes in every run
def test_two_workers_make_what_one_machine_makes(project: FleetProject, tmp_path: Path) -> None:
    with project.worker("a") as first, project.worker("b", "--sweeps", "0") as second:
        with project.start(*project.fleet("sweep", models(project), "--stamp", "s1")) as order:
            ran = order.end(LIMIT)
        assert (ran.code, ran.err) == (0, ""), ran
        assert "24 published" in ran.out
        assert "index: modelmill-index 0.0.0-s1" in ran.out
        check_same(project, tmp_path)
        for worker in (first, second):
            worker.signal(signal.SIGTERM)
        assert [worker.end(LIMIT).code for worker in (first, second)] == [0, 0]
        assert project.machines.alone()
        assert SECRET not in "".join(path.read_text() for path in project.folder.rglob("*.log"))
    assert not [
        path for home in project.folder.glob("home-*") for path in (home / "fleet").iterdir()
    ]
