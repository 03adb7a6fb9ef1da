"""The gate before a view: what a version's recorded ladder must reach to enter it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed.errors import Rejected
from feed.interface import write_description
from flows.packages.promotion import demand_of, promote
from flows.packages.run_records import statement_files
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.champions import keep_champion
from matrix.champions import Champion
from matrix.digest import LocalFile
from matrix.errors import UsageError
from matrix.status import FailureClass
from matrix.verification import RUNGS
from tests.fakes.attested import AttestationHarness, rewritten
from tests.fakes.feed import MemoryFeed, tree_of, write_files
from tests.plans.cells import make_cell
from tests.plans.models import TARGETS
from tests.tunings.champions import a_champion, write_champions
from tests.tunings.fakes import Stage, cell, hypothesis, step
from tests.verification.evidence import proven
from workers.attest.attester import Attester
from workers.errors import BuildFailed

NAME, VERSION = "modelmill-a", "0.0.0-1-qnn-npu-a"
OWN = {"provider": "QNNExecutionProvider", "device": "npu", "own": True}
RAN = {**OWN, "ran": True}
TOOK_NOTHING = {**OWN, "ran": False, "why": "it took no node of the graph"}
MISSING = {**OWN, "not_run": "onnxruntime-qnn is not installed"}


def record(*runtimes: dict[str, Any], failed: str = "", **rules: Any) -> dict[str, Any]:
    """The record of a package that has climbed up to parity, but for one rung."""
    rungs = [
        {"name": name, "passed": name != failed, "detail": f"of {name}"}
        for name in RUNGS
        if name != "task"
    ]
    return {"verification": rungs, "runtimes": list(runtimes), "rules": rules}


class PromotionHarness:
    """A feed with one version, and settings."""

    def __init__(self, folder: Path, *, demand: tuple[str, ...] = (), config: str = "") -> None:
        self.folder = folder
        self.feed = MemoryFeed()
        (folder / "modelmill.toml").write_text(config, "utf-8")
        flags = {"demand": demand} if demand else {}
        self.settings: Settings = resolve(flags, {}, folder)
        self.tree = ""
        self.cell = make_cell("a/b", opset=19)

    def publish(self, told: dict[str, Any], kind: str = "cell", **more: Any) -> None:
        """A package with this evidence, attested; `more`: files beside it, added afterwards."""
        works = AttestationHarness(self.folder / "works")
        named = replace(self.cell, package=NAME, version=VERSION)
        built = works.builder.build(named, export_version=VERSION if kind == "export" else None)
        engine = {**built.manifest["engine"], "name": "optimum"}
        changed = replace(
            built,
            manifest={**built.manifest, "engine": engine, "kind": kind},
            build_record={**built.build_record, **told},
        )
        attested = Attester(works.host).attest(rewritten(changed), named)
        contents = {name.replace("_", "."): json.dumps(one) for name, one in more.items()}
        added = write_files(
            self.folder / "added", {name: text.encode() for name, text in contents.items()}
        )
        self.hold([*attested.files, *added])
        works.close()

    def publish_record(self, kind: str, name: str) -> None:
        """A version without a model."""
        folder = self.folder / kind
        files = write_files(folder, {name: b'{"stamp": "1"}'})
        stated = statement_files(self.settings, kind, NAME, VERSION, files, folder)
        self.hold([*files, *stated])

    def hold(self, files: Sequence[LocalFile]) -> None:
        self.tree = tree_of(files)
        self.feed.publish(NAME, VERSION, files, write_description(self.tree))

    def refusal(self, view: str = "release", champions: Path | None = None) -> str:
        """Why the version does not enter; empty: it does."""
        try:
            promote(self.settings, self.feed, NAME, VERSION, view, champions)
        except Rejected as error:
            return error.message if error.hint else "without a hint"
        return ""


@pytest.fixture
def harness(tmp_path: Path) -> PromotionHarness:
    return PromotionHarness(tmp_path)


def test_by_default_release_asks_parity_on_the_targets_own_provider(
    harness: PromotionHarness,
) -> None:
    harness.publish(record(RAN))
    assert harness.refusal() == ""


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (record(MISSING), "own execution provider: onnxruntime-qnn is not installed"),
        (record(TOOK_NOTHING), "own execution provider: it took no node of the graph"),
        (record(), "it was not run on the target's own execution provider"),
        (record(RAN, failed="parity"), "the rung parity does not hold: of parity"),
        (record(RAN, failed="integrity"), "the rung integrity does not hold"),
        ({}, "the rung integrity was not judged"),
        (
            {**record(RAN), "verification": record(RAN)["verification"][:3]},
            "shapes was not judged",
        ),
    ],
)
def test_what_falls_short_of_it_is_refused_with_the_reason(
    harness: PromotionHarness, told: dict[str, Any], why: str
) -> None:
    harness.publish(told)
    assert f"{NAME} {VERSION} cannot enter Release, which demands parity on" in harness.refusal()
    assert why in harness.refusal()
    assert harness.refusal("prerelease") == ""  # nothing is asked there


@pytest.mark.parametrize(
    ("rungs", "why", "step"),
    [
        (proven("synthetic"), "synthetic samples say nothing", "dataset = { path"),
        (proven("synthetic", reason="a sensor"), "(accepted: a sensor) say", "dataset = { path"),
        (
            [one for one in proven("dataset") if one["name"] != "samples"],
            "before",
            "build it again",
        ),
    ],
)
def test_synthetic_samples_of_a_trained_model_do_not_enter(
    harness: PromotionHarness, rungs: list[dict[str, Any]], why: str, step: str
) -> None:
    harness.publish({**record(RAN), "verification": rungs})
    with pytest.raises(Rejected) as caught:
        promote(harness.settings, harness.feed, NAME, VERSION, "release")
    assert why in caught.value.message
    assert step in str(caught.value.hint)
    assert harness.refusal("prerelease") == ""


def test_random_weights_enter_and_say_so(
    harness: PromotionHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    rungs = proven("synthetic", trained=False, needs_real=False)
    harness.publish({**record(RAN), "verification": rungs})
    assert harness.refusal() == ""
    said = f"{NAME} {VERSION} is verified on synthetic samples (random weights)"
    assert said in capsys.readouterr().err


def test_a_waiver_takes_the_place_of_the_run_and_of_nothing_else(
    harness: PromotionHarness, tmp_path: Path
) -> None:
    harness.publish(record(MISSING, waive={"ep": "no NPU in the lab"}))
    assert harness.refusal() == ""
    (tmp_path / "other").mkdir()
    other = PromotionHarness(tmp_path / "other")
    other.publish(record(MISSING, failed="parity", waive={"ep": "no NPU in the lab"}))
    assert "the rung parity does not hold" in other.refusal()


@pytest.mark.parametrize(
    ("how", "told", "why"),
    [
        ({"demand": ("release=parity",)}, record(MISSING), ""),
        ({"demand": ("release=policy",)}, record(failed="parity"), ""),
        ({"demand": ("release=policy",)}, record(RAN, failed="policy"), "the rung policy"),
        ({"config": 'demand = ["other=parity"]\n'}, record(failed="integrity"), ""),
        ({"config": 'demand = ["release=loads@ep"]\n'}, record(RAN, failed="parity"), ""),
        ({"config": 'demand = ["release=loads@ep"]\n'}, record(MISSING), "is not installed"),
        ({"demand": ("release=task",)}, record(RAN), "the rung task was not judged"),
    ],
)
def test_what_a_view_asks_is_a_setting(
    tmp_path: Path, how: dict[str, Any], told: dict[str, Any], why: str
) -> None:
    harness = PromotionHarness(tmp_path, **how)
    harness.publish(told)
    assert why in harness.refusal()
    assert bool(harness.refusal()) == bool(why)


@pytest.mark.parametrize(
    ("model", "champion", "why"),
    [
        ("a/b", a_champion(opset=19), ""),
        ("a/b", a_champion(opset=21), "its opset is 19, not 21"),
        ("a/b", a_champion("c"), "is not a champion: there is no champion of 'a/b:fill-mask@mlas"),
        ("a/b", a_champion(proof={"emulated": True}), "on an emulator, which proves nothing"),
        ("other", a_champion(), "is not a champion"),
    ],
)
def test_a_view_can_demand_the_champions_build(
    harness: PromotionHarness,
    tmp_path: Path,
    model: str,
    champion: Champion,
    why: str,
) -> None:
    file = tmp_path / "champions.toml"
    write_champions(file, [champion])
    harness.cell = make_cell(model, opset=19)
    harness.publish(record(RAN))
    assert why in harness.refusal(champions=file)
    assert bool(harness.refusal(champions=file)) == bool(why)
    published = harness.feed.find(NAME, VERSION)
    assert published is not None
    assert bool(published.views) == (not why)


def test_the_evidence_of_a_champion_is_published_beside_it(
    harness: PromotionHarness, tmp_path: Path
) -> None:
    write_champions(tmp_path / "champions.toml", [a_champion()])
    harness.publish(record(RAN))
    for _again in range(2):
        assert harness.refusal(champions=Path("champions.toml")) == ""
    (published,) = harness.feed.versions("modelmill-champions", "")
    assert published.version.startswith(f"0.0.0-champion-{harness.tree[:12]}-")
    harness.feed.fetch("modelmill-champions", published.version, tmp_path / "record")
    told = json.loads((tmp_path / "record" / "record.json").read_text("utf-8"))
    assert told["of"] == {"package": NAME, "version": VERSION, "tree": harness.tree}
    assert (told["kind"], told["tuning"], told["gain"]["percent"]) == ("champion", "monday", 12.5)
    champion = json.loads((tmp_path / "record" / "champion.json").read_text("utf-8"))
    assert champion["changes"]["opset"] == 19


def test_the_tuning_that_is_published_with_a_champion_holds_no_password(
    harness: PromotionHarness, tmp_path: Path
) -> None:
    work = Workspace(harness.settings)
    work.prepare()
    times = {"opset17": 1_000_000, "opset19": 800_000}
    with work.open_state() as state:
        one = Stage(state, cell(tmp_path), times, [step(hypothesis(19)), step(hypothesis(20))])
        refused = "the hub at https://me:hunter22secret@hub.example refuses"
        one.maker.failing["opset20"] = BuildFailed(FailureClass.NETWORK, "export", refused)
        one.begin()
        found = one.run()
    keep_champion(tmp_path / "champions.toml", found, TARGETS, {"onnx": "1"}, "2026-06-09")
    harness.publish(record(RAN))
    assert harness.refusal(champions=Path("champions.toml")) == ""
    (published,) = harness.feed.versions("modelmill-champions", "")
    harness.feed.fetch("modelmill-champions", published.version, tmp_path / "record")
    text = (tmp_path / "record" / "tuning.json").read_text("utf-8")
    assert "refuses" in text
    assert "hunter22secret" not in text


def test_exports_belong_to_no_champion(harness: PromotionHarness, tmp_path: Path) -> None:
    write_champions(tmp_path / "champions.toml", [a_champion()])
    harness.publish({}, kind="export")
    assert harness.refusal(champions=Path("champions.toml")) == ""


def test_later_evidence_of_this_machine_counts_for_that_content_alone(
    harness: PromotionHarness,
) -> None:
    harness.publish(record(MISSING))
    assert harness.refusal()
    later = Workspace(harness.settings).evidence_of(harness.tree)
    later.parent.mkdir(parents=True)
    later.with_name(f"{'0' * 64}.json").write_text(json.dumps(record(RAN)), "utf-8")
    assert harness.refusal()
    later.write_text(json.dumps(record(RAN, failed="parity")), "utf-8")
    assert "the rung parity does not hold" in harness.refusal()
    later.write_text(json.dumps(record(RAN)), "utf-8")
    assert harness.refusal() == ""
    later.write_text("{half", "utf-8")
    assert "is not installed" in harness.refusal()


def test_exports_and_indexes_go_with_their_cells_and_nothing_else_does(tmp_path: Path) -> None:
    def refusal(name: str, publish: Callable[[PromotionHarness], None]) -> str:
        (tmp_path / name).mkdir()
        harness = PromotionHarness(tmp_path / name)
        publish(harness)
        return harness.refusal()

    assert refusal("export", lambda one: one.publish({}, "export")) == ""
    assert refusal("index", lambda one: one.publish_record("index", "index.json")) == ""
    assert "not judged" in refusal("trace", lambda one: one.publish_record("trace", "index.json"))
    assert "has no index.json" in refusal("none", lambda one: one.publish_record("index", "x.json"))
    assert "index.json is present but not listed" in refusal(
        "added", lambda one: one.publish({}, index_json={"stamp": "1"})
    )
    assert "its kind is 'else'" in refusal("else", lambda one: one.publish({}, "else"))


def test_a_cell_that_is_called_an_export_is_refused(tmp_path: Path) -> None:
    """Nobody asks an export for evidence: the name alone would be enough to enter."""
    harness = PromotionHarness(tmp_path)
    works = AttestationHarness(tmp_path / "works")
    named = replace(harness.cell, package=NAME, version=VERSION)
    built = works.builder.build(named)
    forged = rewritten(replace(built, manifest={**built.manifest, "kind": "export"}))
    harness.hold(Attester(works.host).attest(forged, named).files)
    assert "it says that it is an export, but it is not" in harness.refusal()
    works.close()


def test_views_without_a_demand_ask_nothing(harness: PromotionHarness) -> None:
    assert demand_of(harness.settings, "release") is not None
    assert demand_of(harness.settings, "local") is None


@pytest.mark.parametrize("spelled", ["release", "Release", "RELEASE"])
def test_no_spelling_of_a_view_leads_past_its_demand(
    harness: PromotionHarness, spelled: str
) -> None:
    harness.publish(record())
    assert "was not run" in harness.refusal(spelled)
    published = harness.feed.find(NAME, VERSION)
    assert published is not None
    assert published.views == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"demand": ("relase=parity",)}, "--demand relase=parity is not about the view Release"),
        ({"config": 'demand = ["@relase=parity"]\n'}, "demand @relase=parity: "),
    ],
)
def test_a_misspelled_demand_does_not_open_the_gate(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    harness = PromotionHarness(tmp_path, **given)
    harness.publish(record(failed="integrity"))
    with pytest.raises(UsageError) as caught:
        promote(harness.settings, harness.feed, NAME, VERSION, "release")
    assert said in str(caught.value)
    published = harness.feed.find(NAME, VERSION)
    assert published is not None
    assert published.views == ()


def test_a_demand_holds_for_its_view_however_it_is_spelled(tmp_path: Path) -> None:
    harness = PromotionHarness(tmp_path, demand=("Release=parity",))
    harness.publish(record(failed="parity"))
    assert "of parity" in harness.refusal("release")


def test_the_version_enters_the_view_that_the_feed_names(harness: PromotionHarness) -> None:
    harness.publish(record(RAN))
    assert promote(harness.settings, harness.feed, NAME, VERSION, "rELEASE") == "Release"
    published = harness.feed.find(NAME, VERSION)
    assert published is not None
    assert published.views == ("Release",)
