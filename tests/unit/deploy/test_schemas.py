"""Every file of `deploy/` and every pipeline of our own for which there is a schema, against it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.deployments.files import AZURE, COMPOSE, GITHUB, ROOT, load, manifests

KUBERNETES = ["1.34", "1.37"]


def errors(schema: str, document: Any) -> list[str]:
    from check_jsonschema.builtin_schemas import get_builtin_schema
    from jsonschema.validators import validator_for

    wanted = get_builtin_schema(f"vendor.{schema}")
    return [one.message[:200] for one in validator_for(wanted)(wanted).iter_errors(document)]


def pipeline(path: Path = AZURE) -> Any:
    """Azure's schema knows no scalars but texts, the inputs of tasks excepted, and no `if`."""
    from check_jsonschema.transforms.azure_pipelines import traverse_data

    return _texts(traverse_data(load(path)))


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: one if key == "inputs" else _texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_texts(one) for one in value]
    return json.dumps(value) if isinstance(value, bool) else str(value)


def workflow(path: Path = GITHUB) -> Any:
    """YAML takes GitHub's `on` for a truth value."""
    return {("on" if key is True else key): value for key, value in load(path).items()}


def compose() -> Any:
    return load(COMPOSE)


def spoil_pipeline(document: Any) -> None:
    document["jobs"][0]["steps"][3]["inputs"]["scriptKind"] = "bash"


def spoil_workflow(document: Any) -> None:
    document["jobs"]["sweep"]["runs_on"] = document["jobs"]["sweep"].pop("runs-on")


def spoil_compose(document: Any) -> None:
    document["services"]["worker"]["depends_on"]["deploy"]["condition"] = "service_done"


@pytest.mark.parametrize(
    ("schema", "read", "spoil"),
    [
        ("azure-pipelines", pipeline, spoil_pipeline),
        ("github-workflows", workflow, spoil_workflow),
        ("compose-spec", compose, spoil_compose),
    ],
    ids=["azure-pipelines", "github-workflows", "compose-spec"],
)
def test_files_fit_their_schema(
    schema: str, read: Callable[[], Any], spoil: Callable[[Any], None]
) -> None:
    document = read()
    assert errors(schema, document) == []
    spoilt = copy.deepcopy(document)
    spoil(spoilt)
    assert errors(schema, spoilt)


def test_our_own_pipelines_fit_their_schema_and_run_what_developers_run() -> None:
    github = workflow(ROOT / ".github/workflows/ci.yml")
    gitlab = load(ROOT / ".gitlab-ci.yml")
    azure = pipeline(ROOT / ".ci/azure-pipelines.yml")
    assert errors("github-workflows", github) == []
    assert errors("gitlab-ci", gitlab) == []
    assert errors("azure-pipelines", azure) == []
    commands = [
        github["jobs"]["ci"]["steps"][-1]["run"],
        gitlab["ci"]["script"][-1],
        azure["jobs"][0]["steps"][-1]["bash"],
    ]
    assert commands == [".ci/run"] * 3


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", ["worker", "server"])
def test_manifests_fit_the_schema_of_kubernetes(name: str, version: str) -> None:
    for one in manifests(name):
        kubernetes_validate.validate(one, version, strict=True)
    spoilt = next(one for one in manifests(name) if one["kind"] == "NetworkPolicy")
    spoilt["spec"]["podSelectors"] = spoilt["spec"].pop("podSelector")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoilt, version, strict=True)
