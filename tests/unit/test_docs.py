"""Nothing may be missing from the docs, and what they show must be what there is."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from flows.cli.main import build_parser
from flows.output.meanings import EXITS
from flows.settings.resolution import resolve
from flows.settings.settings import OPTIONS
from matrix.catalog import load_catalog
from matrix.digest import MANIFEST, RUN_RECORDS
from matrix.errors import Exit
from matrix.findings import read_findings
from matrix.status import FailureClass, Status
from matrix.targets import load_targets
from tests.docs.pages import DOCS, ROOT, blocks, commands, shown

REFERENCE = DOCS / "reference"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md")])


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def test_the_reference_is_what_the_code_says() -> None:
    made = generator().pages()
    assert {path.name for path in REFERENCE.iterdir()} == set(made)
    stale = [name for name, text in made.items() if reference(name) != text]
    assert stale == [], "run: python docs/generate.py"


def test_every_command_and_flag_is_there() -> None:
    text = reference("commands.md")
    for name, parser in generator().parsers(build_parser()):
        section = text.partition(f"## modelmill {name}\n")[2].partition("\n## ")[0]
        assert section, name
        own, taken = generator().own_arguments(parser)
        for flag in {flag for action in own for flag in action.option_strings} - {"-h", "--help"}:
            assert f"`{flag}`" in section, (name, flag)
        for option in (OPTIONS[one] for one in taken):
            whole = f"settings.md#{option.group.lower().replace(' ', '-')}"
            assert f"`{option.flag}`" in section or whole in section, (name, option.name)


def test_every_setting_is_there_with_its_variable() -> None:
    text = reference("settings.md")
    for option in OPTIONS.values():
        assert f"| `{option.name}` | `{option.flag}` | `{option.variable}` |" in text


@pytest.mark.parametrize("word", [*Status, *FailureClass])
def test_every_status_and_failure_class_is_there(word: str) -> None:
    assert f"| `{word}` |" in reference("words.md")


@pytest.mark.parametrize("code", list(Exit))
def test_every_exit_code_is_there_and_in_the_readme(code: Exit) -> None:
    assert f"| `{int(code)}` | {code.name} | {EXITS[code]} |" in reference("words.md")
    assert f"| {int(code)} |" in (ROOT / "README.md").read_text("utf-8")


def test_every_key_of_a_catalog_and_a_target_is_described() -> None:
    made = generator()
    found = made.known_keys()
    assert {"[[model]]", "[[target]]", "[[ep]]", "[model.random]"} <= set(found)
    assert set(found) <= set(made.TABLES)
    for table, keys in found.items():
        assert set(keys) <= set(made.KEYS), table


def test_the_sample_catalog_is_one() -> None:
    models = load_catalog(
        str(DOCS / "samples" / "everything.toml"), base=DOCS, targets=load_targets()
    )
    assert models.models


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_is_one(page: Path) -> None:
    parser = build_parser()
    for words in shown(page):
        assert vars(parser.parse_args(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_settings_file_shown_is_one(page: Path, tmp_path: Path) -> None:
    for body in blocks(page, "toml"):
        if body.lstrip().startswith("[[finding]]"):
            (tmp_path / "findings.toml").write_text(body, "utf-8")
            assert read_findings([tmp_path / "findings.toml"])
            continue
        if re.search(r"^\[\[?(?:model|defaults|target|ep)\b", body, re.MULTILINE):
            assert tomllib.loads(body)  # a piece of a catalog or of a targets file
            continue
        (tmp_path / "modelmill.toml").write_text(body, "utf-8")
        assert resolve({}, {}, tmp_path).cwd == tmp_path


def test_the_pages_show_commands_at_all() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 20


def test_every_verdict_of_a_comparison_is_explained() -> None:
    from flows.observe.diff.comparison import ChangeKind

    text = (DOCS / "release-engineer.md").read_text("utf-8")
    assert [verdict for verdict in ChangeKind if verdict not in text] == []


def test_every_command_is_told_of_by_hand_too() -> None:
    prose = "\n".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    names = [name for name, _parser in generator().parsers(build_parser())]
    assert [name for name in names if f"modelmill {name}" not in prose] == []


@pytest.mark.parametrize("name", sorted({MANIFEST, *RUN_RECORDS}))
def test_every_file_beside_a_model_is_explained(name: str) -> None:
    assert f"| `{name}` |" in (DOCS / "provenance.md").read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    ["sign_key", "builder_id", "memory_budget", "disk_budget", "memory", "summary", "verify"],
)
def test_settings_that_need_more_than_a_line_have_it(name: str) -> None:
    flag = OPTIONS[name].flag
    prose = "\n".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert re.search(rf"`{name}`|\b{name} = |{flag}\b", prose)
