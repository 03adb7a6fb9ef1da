"""Every file of `deploy/` against the command line, the settings, and what makes it safe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tree_sitter
import tree_sitter_powershell
import yaml
from prefect.settings import Settings
from prefect.settings.legacy import _get_valid_setting_names

from deploy import environment, service
from flows.cli.installation import PACKAGES
from flows.cli.main import build_parser
from flows.output.quantity import parse_duration
from flows.prefect.server import _BATCHES
from flows.settings.settings import OPTIONS
from matrix.errors import Exit, UsageError
from tests.deployments import files as reading
from tests.deployments.files import (
    AZURE,
    COMPOSE,
    DEPLOY,
    DOCKERFILE,
    FILES,
    GITHUB,
    PAGES,
    ROOT,
    UNITS,
    WINDOWS,
    commands,
    load,
    manifests,
    pods,
    scripts,
    services,
    text_of,
    unit,
)

PIPELINES = [AZURE, GITHUB]
BOTH = ["worker", "server"]


def name_of(path: object) -> str:
    return path.relative_to(ROOT).as_posix() if isinstance(path, Path) else str(path)


def filled(word: str) -> str:
    """What a variable may stand for."""
    return re.sub(r"\$\{?DrainMinutes\}?", "30", word)


# What is named exists.


@pytest.mark.parametrize("path", [*FILES, *PAGES], ids=name_of)
def test_every_command_is_one(path: Path) -> None:
    for words in commands(path):
        assert vars(build_parser().parse_args(words))
    for words in services(path):
        arguments = service.build_parser().parse_args(words)
        assert vars(build_parser().parse_args([filled(word) for word in arguments.command]))
    for words in reading.makers(path):
        assert vars(environment.build_parser().parse_args(words))


def test_commands_are_found_at_all() -> None:
    found = {path.name: commands(path) for path in FILES}
    assert [words[0] for words in found["sweep.yml"]] == ["sweep", "report"]
    assert ["worker", "--drain-limit", "30m"] in found["compose.yaml"]
    assert services(WINDOWS)[0][-5:-1] == ["worker", "--home", "$homeFolder", "--drain-limit"]
    with pytest.raises(UsageError):
        build_parser().parse_args(["worker", "--drain-limits", "30m"])


@pytest.mark.parametrize("path", [*FILES, *PAGES], ids=name_of)
def test_every_variable_is_one(path: Path) -> None:
    ours = {option.variable for option in OPTIONS.values()} | {"MODELMILL_CONFIG"}
    theirs = _get_valid_setting_names(Settings)
    named = set(re.findall(r"\b(?:MODELMILL|PREFECT)_[A-Z_]+\b", text_of(path)))
    assert named - ours - set(theirs) == set()


@pytest.mark.parametrize("path", PIPELINES, ids=name_of)
def test_the_exit_codes_told_are_those_there_are(path: Path) -> None:
    comment = re.sub(r"\n\s*#", "", text_of(path))
    told = re.search(r"The exit code of the sweep is that of the (?:task|step): (.*)", comment)
    assert told
    of_sweeps = set(Exit) - {Exit.REJECTED}
    assert {int(code) for code in re.findall(r"\d+", told[1])} == of_sweeps


def test_every_file_is_told_of_in_the_docs() -> None:
    pages = "\n".join(map(text_of, PAGES))
    assert [name_of(path) for path in FILES if name_of(path) not in pages] == []
    for path in re.findall(r"\bdeploy/[\w./-]*\w", pages):
        assert (ROOT / path).exists(), path


# Nothing secret is written down, nothing is open, nothing changes by itself.


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_secret_is_written_down(path: Path) -> None:
    text = text_of(path)
    named = re.findall(
        r"\b\w*(?:PASSWORD|SECRET|AUTH_STRING|API_KEY|TOKEN)\w*\"?[=:]\s*(\S+)", text
    )
    assert [value for value in named if not value.startswith(("$", "?", '"$', "'$"))] == []
    assert re.findall(r"://[^/\s:@]+:[^@\s/]+@", text) == []


def test_what_would_be_a_secret_is_seen(tmp_path: Path) -> None:
    for line in ("POSTGRES_PASSWORD: postgres", "PREFECT_API_AUTH_STRING=a:b", "x://u:p@host/db"):
        file = tmp_path / "file"
        file.write_text(line, "utf-8")
        with pytest.raises(AssertionError):
            test_no_secret_is_written_down(file)


def test_compose_publishes_on_loopback_only() -> None:
    services = load(COMPOSE)["services"]
    ports = [port for one in services.values() for port in one.get("ports", [])]
    assert ports == ["127.0.0.1:4200:4200"]
    assert load(COMPOSE)["networks"]["inner"]["internal"] is True
    assert services["database"]["networks"] == ["inner"]


def test_who_listens_beyond_loopback_has_an_auth_string() -> None:
    assert "--host 127.0.0.1 " in unit("server")["ExecStart"][0]
    assert "PREFECT_SERVER_API_AUTH_STRING:?" in unit("server")["ExecStartPre"][0]
    for path in (COMPOSE, DEPLOY / "kubernetes/server/server.yaml"):
        documents = list(yaml.safe_load_all(text_of(path)))
        (line,) = [one for one in reading.texts(documents) if "0.0.0.0" in one]
        assert line.index("PREFECT_SERVER_API_AUTH_STRING:?") < line.index("prefect server start")


def test_kubernetes_opens_nothing_to_the_outside() -> None:
    for name in BOTH:
        for one in manifests(name):
            assert one["kind"] not in {"Ingress", "Secret"}
            if one["kind"] == "Service":
                assert one["spec"].get("type", "ClusterIP") == "ClusterIP"
        for pod in pods(name).values():
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
            assert "hostPort" not in str(pod)
    kinds = {one["kind"] for one in manifests("worker")}
    assert kinds == {"ServiceAccount", "Deployment", "NetworkPolicy"}
    assert "ports" not in pods("worker")["modelmill-worker"]["containers"][0]


@pytest.mark.parametrize("name", BOTH)
def test_every_pod_may_do_as_little_as_possible(name: str) -> None:
    for pod in pods(name).values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            mounted = {one["name"] for one in container["volumeMounts"]}
            claimed = {"data"} if "postgres" in container["image"] else set()
            assert mounted == {one["name"] for one in pod["volumes"]} | claimed


def test_our_containers_may_do_as_little_as_possible() -> None:
    for name, one in load(COMPOSE)["services"].items():
        assert one["security_opt"] == ["no-new-privileges:true"], name
        if name != "database":
            assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"]), name


def test_images_are_pinned() -> None:
    named = re.findall(r"^FROM (\S+)(?: AS (\w+))?", text_of(DOCKERFILE), re.MULTILINE)
    stages = {stage for _image, stage in named}
    images = {image for image, _stage in named} - stages
    images |= {one["image"] for one in load(COMPOSE)["services"].values()}
    for name in BOTH:
        tags = {
            one["name"]: one["newTag"]
            for one in load(DEPLOY / "kubernetes" / name / "kustomization.yaml")["images"]
        }
        for pod in pods(name).values():
            for container in pod["containers"]:
                image = container["image"]
                images.add(f"{image}:{tags[image]}" if image in tags else image)
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[a-z-]+:\d+\.\d+(?:\.\d+)?(?:-[a-z-]+)?", image), image


def test_the_dockerfile_takes_the_pins_and_runs_as_nobody_special() -> None:
    text = text_of(DOCKERFILE)
    for line in re.findall(r"pip install .*", text):
        assert "--constraint constraints.txt" in line
        assert "://" not in line
    stages = text.split("\nFROM base AS ")[1:]
    assert [stage.split()[0] for stage in stages] == ["server", "worker"]
    for stage in stages:
        (last,) = re.findall(r"^USER (\S+)$", stage, re.MULTILINE)
        assert last == "10001:10001"
        assert stage.index("USER") > stage.rindex("RUN")


def test_nothing_but_the_source_goes_into_an_image() -> None:
    lines = text_of(DEPLOY / "docker/Dockerfile.dockerignore").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    for rule in rules:
        if rule.startswith("!"):
            assert (ROOT / rule[1:]).exists(), rule
    assert {f"!{room}" for room in PACKAGES} < set(rules)
    assert rules.index("**/*.env") > rules.index("!deploy")


def test_actions_are_pinned_and_may_do_little() -> None:
    used = re.findall(r"uses: (\S+)(.*)", text_of(GITHUB))
    assert len(used) == 4
    for action, comment in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)
    document = load(GITHUB)
    assert document["permissions"] == {}
    assert document["jobs"]["sweep"]["permissions"] == {"contents": "read", "id-token": "write"}
    assert document["concurrency"]["cancel-in-progress"] is False
    assert "secrets." not in text_of(GITHUB)


@pytest.mark.parametrize("path", PIPELINES, ids=name_of)
def test_no_form_is_part_of_a_script(path: Path) -> None:
    for script in scripts(path).values():
        assert "${{" not in script
        assert "$(inputs" not in script
        assert "parameters." not in script


@pytest.mark.parametrize("path", PIPELINES, ids=name_of)
def test_a_pipeline_runs_by_hand_and_at_night(path: Path) -> None:
    text = text_of(path)
    assert '- cron: "0 2 * * *"' in text
    document = load(path)
    if path is GITHUB:
        assert set(document[True]) == {"workflow_dispatch", "schedule"}  # YAML's `on`
    else:
        assert (document["trigger"], document["pr"]) == ("none", "none")


# The files of a kind and those of another say the same.


def test_whoever_stops_a_worker_waits_for_its_drain() -> None:
    drain = {
        parse_duration(words[words.index("--drain-limit") + 1])
        for path in (UNITS["worker"], COMPOSE, DEPLOY / "kubernetes/worker/deployment.yaml")
        for words in commands(path)
        if "--drain-limit" in words
    }
    assert drain == {1800.0}
    compose = load(COMPOSE)["services"]["worker"]["stop_grace_period"]
    waits = [
        parse_duration(unit("worker")["TimeoutStopSec"][0].replace("min", "m")),
        parse_duration(compose),
        float(pods("worker")["modelmill-worker"]["terminationGracePeriodSeconds"]),
    ]
    # It ends itself 30 s after the drain limit at the latest.
    assert min(waits) >= max(drain) + 60.0
    assert "AddMinutes($DrainMinutes + 2)" in text_of(WINDOWS)
    assert unit("worker")["KillMode"] == ["mixed"]


def test_every_server_has_the_same_settings() -> None:
    wanted = {
        **_BATCHES,
        # Prefect cuts it to whole seconds: a fraction is a loop without a pause.
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "7776000",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }

    def served(variables: dict[str, str]) -> dict[str, str]:
        return {name: text for name, text in variables.items() if "_SERVER_" in name}

    systemd = dict(line.split("=", 1) for line in unit("server")["Environment"])
    assert served(systemd) == wanted
    assert served(load(COMPOSE)["services"]["server"]["environment"]) == wanted
    made = load(DEPLOY / "kubernetes/server/kustomization.yaml")["configMapGenerator"]
    (literals,) = [one["literals"] for one in made if one["name"] == "modelmill-server"]
    assert served(dict(line.split("=", 1) for line in literals)) == wanted
    for variables in (systemd, load(COMPOSE)["services"]["server"]["environment"]):
        assert variables["PREFECT_UI_STATIC_DIRECTORY"]
    page = (DEPLOY.parent / "docs" / "fleet.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| `SERVICES_", "| `ANALYTICS"))]
    for name, value in wanted.items():
        end = name.removeprefix("PREFECT_SERVER_")
        short = f"..._{end[end.find('READ_') :]}" if "READ_" in end else end
        told = [row for row in rows if f"`{short}`" in row and end.partition("_READ_")[0] in row]
        assert told, name
        assert value in told[0].split("|")[2].replace("`", "").split(), name


def test_there_is_one_way_to_make_databases() -> None:
    # A copy, because kustomize reads nothing outside its folder.
    assert text_of(DEPLOY / "kubernetes/server/databases.sql") == text_of(DEPLOY / "databases.sql")


def test_the_made_files_are_the_ones_that_are_read() -> None:
    made = environment.environments("database", "http://server:4200/api")
    read = {file for one in load(COMPOSE)["services"].values() if (file := one.get("env_file", ""))}
    assert read == set(made)
    for name, found in made.items():
        if name != "postgres.env":
            assert f"EnvironmentFile=/etc/modelmill/{name}" in text_of(UNITS[name.split(".")[0]])
        assert f"secretRef: {{name: modelmill-{name.split('.')[0]}}}" in "".join(
            map(text_of, FILES)
        )
        assert found
    for variable in ("DB_PASSWORD_PREFECT", "DB_PASSWORD_MODELMILL"):
        assert variable in made["postgres.env"]
        assert f"\\getenv {variable.split('_')[-1].lower()}_password {variable}" in text_of(
            DEPLOY / "databases.sql"
        )


def test_the_version_is_that_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for path in FILES:
        for version in re.findall(r"modelmill-(?:worker|server):(\S+)", text_of(path)):
            assert version == project["version"], path
    prefect = load(DEPLOY / "prefect.yaml")["prefect-version"]
    assert f"prefect=={prefect}" in project["optional-dependencies"]["sweep"]


def test_windows_is_asked_in_words_that_powershell_understands() -> None:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
    assert not parser.parse(WINDOWS.read_bytes()).root_node.has_error
    broken = WINDOWS.read_bytes().replace(b"switch ($Action) {", b"switch ($Action) ")
    assert parser.parse(broken).root_node.has_error
    called = set(re.findall(r"^function ([\w-]+)", text_of(WINDOWS), re.MULTILINE))
    for name in called:
        assert len(re.findall(rf"\b{name}\b", text_of(WINDOWS))) > 1, name
