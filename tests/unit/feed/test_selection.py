from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from feed.errors import Corrupt, FeedError, NotFound
from feed.index import IndexCell, SweepIndex
from feed.listing import list_packages, list_versions, show
from feed.publisher import Publisher
from feed.reader import Pulled, listed_files
from feed.selection import index_revisions, pull_selection, resolve_index, version_for
from matrix.errors import NothingSelected, UsageError
from matrix.model import Profile
from matrix.naming import index_name
from matrix.status import Status
from tests.fakes.feed import Fault, FlakyFeed, MemoryFeed, tree_of, write_files

STAMP = "20260609"


class SweepPublisher:
    """Publishes cells and indexes as a sweep does."""

    def __init__(self, folder: Path, template: str = "modelmill-{model}") -> None:
        self.feed = MemoryFeed()
        self.publisher = Publisher(self.feed)
        self.template = template
        self.folder = folder
        self.cells: list[IndexCell] = []

    def cell(self, model: str, target: str, *, status: Status = Status.PUBLISHED) -> IndexCell:
        package = self.template.format(model=model.replace("/", "-"))
        label, _, profile = target.partition("+")
        version = f"0.0.0-{STAMP}-{label.replace('_', '-')}-{model.replace('/', '-')}"
        version += f"-{profile}" if profile else ""
        tree = None
        if status is Status.PUBLISHED:
            tree = self.publish(package, version, {"model.onnx": version.encode()})
        made = IndexCell(
            f"{model}:t@{target}", model, "t", target, "fp32", status, package, version, tree
        )
        self.cells.append(made)
        return made

    def publish(self, package: str, version: str, contents: dict[str, bytes]) -> str:
        files = write_files(self.folder / package / version, contents)
        self.publisher.publish(package, version, files, tree=tree_of(files))
        return tree_of(files)

    def index(self, revision: int = 1, cells: Sequence[IndexCell] | None = None) -> str:
        package, version = index_name(self.template, STAMP, revision)
        index = SweepIndex(STAMP, tuple(self.cells if cells is None else cells))
        self.publish(package, version, {"index.json": index.to_json()})
        return package


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPublisher:
    return SweepPublisher(tmp_path / "src")


@pytest.mark.parametrize("template", ["modelmill-{model}", "one-package"])
def test_the_newest_index_counts_as_a_number(tmp_path: Path, template: str) -> None:
    sweep = SweepPublisher(tmp_path, template)
    sweep.cell("a/b", "ov_cpu")
    for revision in (1, 2, 9, 10):
        package = sweep.index(revision)
    found = resolve_index(sweep.feed, package, STAMP)
    assert found.published.version.endswith("-r10")
    assert found.index.cells == tuple(sweep.cells)
    sweep.feed.delete(package, found.published.version)
    assert resolve_index(sweep.feed, package, STAMP).published.version.endswith("-r9")
    assert sorted(index_revisions(sweep.feed, package, STAMP)) == [1, 2, 9, 10]


def test_other_stamps_and_cells_are_no_index(tmp_path: Path) -> None:
    sweep = SweepPublisher(tmp_path, "one-package")
    for version in (f"{STAMP}1", f"{STAMP}-index-x", f"{STAMP}-rocm-gpu-x", f"{STAMP}-r2x"):
        sweep.publish("one-package", f"0.0.0-{version}", {"x": version.encode()})
    with pytest.raises(NotFound, match=STAMP):
        resolve_index(sweep.feed, "one-package", STAMP)


def test_a_listing_that_fails_is_no_missing_index(sweep: SweepPublisher) -> None:
    package = sweep.index()
    for fault in (Fault.DOWN, Fault.CUT):
        with pytest.raises(Exception, match=r"down|reset"):
            resolve_index(FlakyFeed(sweep.feed).plan("versions", fault), package, STAMP)


Found = list[tuple[IndexCell, Pulled | FeedError]]


def parted(
    found: Found,
) -> tuple[list[tuple[IndexCell, Pulled]], list[tuple[IndexCell, FeedError]]]:
    """What was pulled, and what is lost."""
    pulled = [(cell, one) for cell, one in found if isinstance(one, Pulled)]
    return pulled, [(cell, one) for cell, one in found if isinstance(one, FeedError)]


def test_pull_a_stamp(sweep: SweepPublisher, tmp_path: Path) -> None:
    first = sweep.cell("a/b", "ov_cpu")
    sweep.cell("a/b", "qnn_npu")
    sweep.cell("c/d", "qnn_npu")
    sweep.cell("c/d", "ov_cpu", status=Status.BUILD_FAILED)
    package = sweep.index()
    out = tmp_path / "out"
    pulled, lost = parted(pull_selection(sweep.feed, package, STAMP, out))
    assert (len(pulled), lost) == (3, [])
    assert (out / "modelmill-a-b/ov_cpu/model.onnx").read_text() == first.version
    assert {path.name for path in out.iterdir()} == {"modelmill-a-b", "modelmill-c-d"}
    again, _ = parted(pull_selection(sweep.feed, package, STAMP, out, targets=["qnn_*"]))
    assert [one.unchanged for _, one in again] == [True, True]
    one = pull_selection(sweep.feed, package, STAMP, tmp_path / "2", models=["c/*"])
    assert [cell.id for cell, _ in one] == ["c/d:t@qnn_npu"]
    both = pull_selection(sweep.feed, package, STAMP, tmp_path / "3", targets=["{ov,qnn}_*"])
    assert len(both) == 3
    with pytest.raises(NothingSelected):
        pull_selection(sweep.feed, package, STAMP, out, models=["c/*"], targets=["ov_*"])


def test_a_deleted_version_costs_no_other_cell(sweep: SweepPublisher, tmp_path: Path) -> None:
    gone = sweep.cell("a/b", "ov_cpu")
    kept = [sweep.cell("a/b", "qnn_npu"), sweep.cell("c/d", "qnn_npu")]
    package = sweep.index()
    sweep.feed.delete(gone.package, gone.version)
    pulled, lost = parted(pull_selection(sweep.feed, package, STAMP, tmp_path / "out"))
    assert [cell for cell, _ in pulled] == kept
    assert [(cell, type(error)) for cell, error in lost] == [(gone, NotFound)]
    assert "was deleted" in lost[0][1].message
    assert len(list((tmp_path / "out").rglob("model.onnx"))) == 2


def test_models_in_one_package_do_not_meet(tmp_path: Path) -> None:
    sweep = SweepPublisher(tmp_path / "src", "one-package")
    for model in ("a/b", "c/d"):
        sweep.cell(model, "ov_cpu")
    pull_selection(sweep.feed, sweep.index(), STAMP, tmp_path / "out")
    got = {path.parent.name for path in (tmp_path / "out").rglob("model.onnx")}
    assert got == {"ov_cpu-a-b", "ov_cpu-c-d"}


def test_an_index_that_names_other_content(sweep: SweepPublisher, tmp_path: Path) -> None:
    cell = sweep.cell("a/b", "ov_cpu")
    wrong = IndexCell(
        cell.id,
        cell.model,
        "t",
        "ov_cpu",
        "fp32",
        cell.status,
        cell.package,
        cell.version,
        "0" * 64,
    )
    package = sweep.index(cells=[wrong])
    ((_, lost),) = pull_selection(sweep.feed, package, STAMP, tmp_path / "out")
    assert isinstance(lost, Corrupt)
    assert "the index names" in lost.message
    assert not (tmp_path / "out").exists()


def test_listing(sweep: SweepPublisher) -> None:
    sweep.cell("a/b", "ov_cpu")
    gone = sweep.cell("a/b", "qnn_npu")
    sweep.cell("c/d", "qnn_npu")
    sweep.feed.delete(gone.package, gone.version)
    (row,) = (one for one in list_packages(sweep.feed) if one.package == "modelmill-a-b")
    assert (row.versions, row.deleted) == (1, 1)
    assert row.newest is not None
    assert len(list(list_versions(sweep.feed))) == 2
    assert len(list(list_versions(sweep.feed, deleted=True))) == 3
    assert len(list(list_versions(sweep.feed, "modelmill-a-b", "0.0.0-*-ov-*"))) == 1
    assert list(list_versions(sweep.feed, "modelmill-a-b", "9*")) == []
    assert len(list(list_versions(sweep.feed, "modelmill-{a-b,c-d}", "0.0.0-*-{ov,qnn}-*"))) == 2
    with pytest.raises(NotFound, match="no package") as caught:
        list(list_versions(sweep.feed, "modelmill-a-c"))
    assert caught.value.hint.startswith("did you mean modelmill-a-b")
    with pytest.raises(NotFound, match="no package") as caught:
        list(list_versions(sweep.feed, "nothing-of-the-kind"))
    assert caught.value.hint == "see: modelmill feed ls"


def test_what_is_not_there_is_told_with_the_nearest_name(sweep: SweepPublisher) -> None:
    cell = sweep.cell("a/b", "ov_cpu")
    for ask in (show, listed_files):
        for package, version, meant in (
            ("modelmill-a-d", cell.version, f"did you mean {cell.package}"),
            (cell.package, f"{cell.version}x", f"did you mean {cell.version}"),
            ("q", "1", "see: modelmill feed ls"),
        ):
            with pytest.raises(NotFound) as caught:
                ask(sweep.feed, package, version)
            assert caught.value.hint.startswith(meant)


def test_show(sweep: SweepPublisher) -> None:
    cell = sweep.cell("a/b", "ov_cpu")
    details = show(sweep.feed, cell.package, cell.version)
    assert details.published.tree == cell.tree
    assert [file.path for file in details.files] == ["model.onnx"]
    assert details.size == len(cell.version)
    sweep.feed.delete(cell.package, cell.version)
    assert show(sweep.feed, cell.package, cell.version).files == ()
    with pytest.raises(NotFound):
        show(sweep.feed, cell.package, "9.9.9")


HTP73 = Profile(label="htp73", target="qnn_npu", runtime="qnn")


def test_what_is_compiled_for_a_profile_is_taken_and_the_portable_package_where_nothing_is(
    sweep: SweepPublisher, tmp_path: Path
) -> None:
    sweep.cell("a/b", "qnn_npu")
    compiled = sweep.cell("a/b", "qnn_npu+htp73")
    sweep.cell("a/b", "qnn_npu+htp81")
    sweep.cell("a/b", "ov_cpu")
    portable = sweep.cell("c/d", "qnn_npu")
    sweep.cell("c/d", "qnn_npu+htp73", status=Status.BUILD_FAILED)
    package = sweep.index()
    out = tmp_path / "out"
    pulled, lost = parted(pull_selection(sweep.feed, package, STAMP, out, profile=HTP73))
    assert ([cell for cell, _ in pulled], lost) == ([compiled, portable], [])
    assert (out / "modelmill-a-b/qnn_npu+htp73/model.onnx").read_text() == compiled.version
    one = pull_selection(sweep.feed, package, STAMP, tmp_path / "1", profile=HTP73, models=["a/b"])
    assert [cell for cell, _ in one] == [compiled]
    gpu = replace(HTP73, target="dml_gpu")
    with pytest.raises(NothingSelected, match="is for dml_gpu"):
        pull_selection(sweep.feed, package, STAMP, out, profile=gpu)


def test_a_compiled_version_that_was_deleted_is_none_and_a_damaged_one_is_an_error(
    sweep: SweepPublisher, tmp_path: Path
) -> None:
    portable, gone = sweep.cell("a/b", "qnn_npu"), sweep.cell("a/b", "qnn_npu+htp73")
    sweep.cell("c/d", "qnn_npu")
    damaged = replace(sweep.cell("c/d", "qnn_npu+htp73"), tree="0" * 64)
    package = sweep.index(cells=[*sweep.cells[:-1], damaged])
    sweep.feed.delete(gone.package, gone.version)
    out = tmp_path / "out"
    pulled, lost = parted(pull_selection(sweep.feed, package, STAMP, out, profile=HTP73))
    assert [cell for cell, _ in pulled] == [portable]
    assert [(cell, type(error)) for cell, error in lost] == [(damaged, Corrupt)]


def test_the_version_compiled_from_a_portable_one(sweep: SweepPublisher) -> None:
    cell = sweep.cell("a/b", "qnn_npu")
    assert version_for(sweep.feed, cell.package, cell.version, HTP73) == cell.version
    compiled = f"{cell.version}-htp73"
    sweep.publish(cell.package, compiled, {"model.onnx": b"x"})
    assert version_for(sweep.feed, cell.package, cell.version, HTP73) == compiled
    sweep.feed.delete(cell.package, compiled)
    assert version_for(sweep.feed, cell.package, cell.version, HTP73) == cell.version
    with pytest.raises(UsageError, match="another target"):
        version_for(sweep.feed, cell.package, sweep.cell("a/b", "ov_cpu").version, HTP73)


def test_a_context_group_stands_for_the_cells_that_it_holds(sweep: SweepPublisher) -> None:
    prefill, decode = sweep.cell("prefill", "qnn_npu"), sweep.cell("decode", "qnn_npu")
    other = sweep.cell("draft", "qnn_npu")
    group = sweep.cell("llm", "qnn_npu+htp73")
    sweep.cells[-1] = group = replace(group, members=(prefill.id, decode.id))
    package = sweep.index()
    read = {one.id: one for one in resolve_index(sweep.feed, package, STAMP).index.cells}
    assert read[group.id].members == group.members

    def pulled(profile: Profile | None, *models: str) -> set[str]:
        dest = sweep.folder / f"pulled-{profile and profile.label}-{len(models)}"
        found = pull_selection(
            sweep.feed, package, STAMP, dest, models=models or ("*",), profile=profile
        )
        return {cell.id for cell, _ in found}

    htp73 = Profile("htp73", "qnn_npu", "qnn")
    assert pulled(htp73) == {group.id, other.id}
    assert pulled(htp73, "prefill") == {group.id}
    assert pulled(None, "prefill") == {prefill.id}
    assert pulled(replace(htp73, label="htp81")) == {prefill.id, decode.id, other.id}
