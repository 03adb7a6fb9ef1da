"""The files of `deploy/`, checked by the tools that read them, where they are here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy import environment
from deploy.service import read_environment
from tests.deployments.files import AZURE, DEPLOY, GITHUB, MANIFESTS, UNITS, manifests, scripts
from tests.deployments.tools import psql, run
from tests.fleets.machines import PrefectServer, copied
from tests.machine.timing import eventually, patient
from tests.services.installing import program
from tests.services.postgres import Server, postgres
from tests.sweeps.command import Project

DEPLOYMENTS = {
    "modelmill-fleet/modelmill",
    "modelmill-slot/modelmill",
    "modelmill-fleet/modelmill-nightly",
}


# systemd


@pytest.fixture(params=list(UNITS.values()), ids=list(UNITS))
def service_unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose commands exist. They need not be installed here; the rest is systemd's."""
    unit: Path = request.param
    copy = tmp_path / unit.name
    text = unit.read_text("utf-8")
    for command in ("modelmill", "prefect"):
        text = text.replace(f"/opt/modelmill/bin/{command}", "/bin/true")
    copy.write_text(text, "utf-8")
    return copy


def test_systemd_takes_every_unit(service_unit: Path) -> None:
    ran = run(program("systemd-analyze"), "verify", "--man=no", service_unit)
    complaints = [line for line in ran.stderr.splitlines() if service_unit.name in line]
    assert (ran.returncode, complaints) == (0, [])


def test_systemd_sees_what_is_wrong(service_unit: Path) -> None:
    text = service_unit.read_text("utf-8")
    service_unit.write_text(text.replace("KillMode=mixed", "KillMode=most") + "[Servis]\n")
    ran = run(program("systemd-analyze"), "verify", "--man=no", service_unit)
    assert service_unit.name in ran.stderr


def test_systemd_finds_little_exposed(service_unit: Path) -> None:
    """Of ten; a service without any option has 9.6. What is left is the network and devices."""
    judge = program("systemd-analyze")
    if "--offline" not in run(judge, "--help").stdout:
        pytest.skip("this systemd judges installed units only")
    ran = run(judge, "security", "--offline=true", "--threshold=25", "--no-pager", service_unit)
    assert ran.returncode == 0, ran.stdout[-300:]


def test_systemd_makes_the_user() -> None:
    ran = run(
        program("systemd-sysusers"), "--dry-run", "--root=/", DEPLOY / "systemd/modelmill.sysusers"
    )
    assert ran.returncode == 0, ran.stderr


# Kubernetes


@pytest.mark.parametrize("name", MANIFESTS)
def test_kustomize_puts_every_set_together(name: str) -> None:
    made = run(program("kubectl"), "kustomize", MANIFESTS[name])
    assert (made.returncode, made.stderr) == (0, "")
    objects = [one for one in yaml.safe_load_all(made.stdout) if one]
    kinds = [one["kind"] for one in manifests(name)]
    assert sorted(one["kind"] for one in objects if one["kind"] != "ConfigMap") == sorted(kinds)
    # Every image has its tag, every object that is named is there.
    assert "image: modelmill-worker:0.1.0" in made.stdout
    maps = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    named = {one["name"] for one in references(objects)}
    assert named == maps


def references(value: Any) -> Iterator[dict[str, str]]:
    """Whatever names a ConfigMap."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in {"configMap", "configMapRef"}:
                yield one
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


# PostgreSQL


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with postgres() as made:
        yield made


@pytest.mark.fleet
def test_roles_have_their_own_database_and_no_other(database: Server, tmp_path: Path) -> None:
    environment.main([str(tmp_path)])
    passwords = read_environment(tmp_path / "postgres.env")
    script = DEPLOY / "databases.sql"
    without = psql(database, "--file", script, DB_PASSWORD_PREFECT="x")
    assert without.returncode != 0
    assert "DB_PASSWORD_MODELMILL is empty" in without.stderr
    made = psql(database, "--file", script, **passwords)
    assert made.returncode == 0, made.stderr
    for role, other in (("prefect", "modelmill"), ("modelmill", "prefect")):
        login = {"PGUSER": role, "PGPASSWORD": passwords[f"DB_PASSWORD_{role.upper()}"]}
        own = psql(database, "--command", "CREATE TABLE t (i int)", **login, PGDATABASE=role)
        assert own.returncode == 0, own.stderr
        theirs = psql(database, "--command", "SELECT 1", **login, PGDATABASE=other)
        assert "permission denied for database" in theirs.stderr


# Bash


@pytest.mark.parametrize("path", [AZURE, GITHUB], ids=["azure-pipelines", "github"])
def test_bash_can_read_every_script(path: Path) -> None:
    for script in scripts(path).values():
        assert run(program("bash"), "-n", text=script).stderr == ""


# Prefect


def described(server: PrefectServer) -> dict[str, dict[str, Any]]:
    """The deployments of the server, without what differs from one to the next."""
    flows = {one["id"]: one["name"] for one in asked(server, "POST", "flows/filter")}
    made = asked(server, "POST", "deployments/filter")
    return {f"{flows[one['flow_id']]}/{one['name']}": clean(one) for one in made}


def asked(server: PrefectServer, method: str, path: str) -> Any:
    """SQLite may be busy for a moment, which the server says with 503."""
    answers: list[httpx.Response] = []

    def answered() -> bool:
        url = f"{server.url}/{path}"
        answers.append(httpx.request(method, url, json={}, trust_env=False, timeout=patient(60)))
        return answers[-1].status_code != 503

    assert eventually(answered, 60.0)
    answers[-1].raise_for_status()
    return answers[-1].json() if answers[-1].content else None


def clean(value: Any) -> Any:
    # The version is the commit of the folder that `prefect deploy` runs in.
    volatile = {"id", "created", "updated", "deployment_id", "labels", "version", "version_id"}
    volatile |= {"version_info", "last_polled", "status"}
    if isinstance(value, dict):
        kept = {key: clean(one) for key, one in value.items() if key not in volatile}
        limit = kept.get("global_concurrency_limit")
        if isinstance(limit, dict):
            kept["global_concurrency_limit"] = limit["limit"]
        if kept.get("definitions") == {}:
            del kept["definitions"]
        return kept
    return [clean(one) for one in value] if isinstance(value, list) else value


@pytest.mark.fleet
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_prefect_deploy_makes_what_modelmill_deploy_makes(
    project: Project, prefect_template: Path, tmp_path: Path
) -> None:
    server = PrefectServer(copied(prefect_template, tmp_path / "prefect"))
    server.start()
    try:
        project.env = {"PREFECT_API_URL": server.url, "PREFECT_HOME": str(tmp_path / "client")}
        nightly = ("--nightly", "0 2 * * *", "--if-changed")
        project.ok("deploy", *nightly, plain=False, MODELMILL_ENGINE="")
        ours = described(server)
        assert set(ours) == DEPLOYMENTS
        for one in asked(server, "POST", "deployments/filter"):
            asked(server, "DELETE", f"deployments/{one['id']}")
        command = (sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all")
        file = DEPLOY / "prefect.yaml"
        ran = run(*command, "--prefect-file", file, env=project.environment())
        assert ran.returncode == 0, ran.stdout + ran.stderr
        for one in ours.values():
            # Prefect's command makes the form from the flow alone.
            assert one["parameter_openapi_schema"].pop("additionalProperties") is False
        assert described(server) == ours
    finally:
        server.stop()
