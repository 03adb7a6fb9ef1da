"""Groups: who fails is named and left out, and nothing of a broken group is used."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from machine.waits import Cancelled
from matrix.model import Profile
from matrix.status import FailureClass
from tests.engines.compilers import RUNTIME, FakeRuntimes
from workers.compile.group import Graph, Group, Job, compile_group, leaving_out
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.runtimes.pool import Runtimes

KEY = "0123456789abcdef" * 4


def compiled(
    fake: FakeRuntimes, folder: Path, *names: str
) -> tuple[Group | None, dict[str, BuildFailed]]:
    told: list[str] = []
    watching = Watching(5, progress=told.append)
    job = Job(cast("Runtimes", fake), RUNTIME, Profile("p", "t", "r"), folder, watching)
    for name in names:
        (folder / f"{name}.onnx").write_text(name)
    found = leaving_out(
        {f"in {name}": Graph(name, f"in {name}", folder / f"{name}.onnx") for name in names},
        lambda left: compile_group(list(left.values()), KEY, job),
    )
    assert all(text.rpartition(" ")[2] in names for text in told)
    return found


def test_a_group_is_compiled_in_one_call_in_its_order(tmp_path: Path) -> None:
    fake = FakeRuntimes()
    group, failures = compiled(fake, tmp_path, "b", "a", "c")
    assert (fake.calls, failures) == ([["b", "a", "c"]], {})
    assert group is not None
    assert [(one.graph.name, one.seconds) for one in group.contexts] == [
        ("b", 0.5), ("a", 0.5), ("c", 0.5),
    ]  # fmt: skip
    assert sorted(path.name for path in group.folder.iterdir()) == [
        *(f"{name}_{KEY[:16]}.onnx" for name in "abc"), "shared.bin",
    ]  # fmt: skip


@pytest.mark.parametrize("bad", ["a", "b", "c"])
def test_a_member_that_fails_is_left_out_and_the_rest_compiled_again(
    tmp_path: Path, bad: str
) -> None:
    fake = FakeRuntimes({bad: "operator Foo is not supported"})
    group, failures = compiled(fake, tmp_path, "a", "b", "c")
    good = [name for name in "abc" if name != bad]
    assert fake.calls == [["a", "b", "c"], good]
    assert group is not None
    assert [one.graph.name for one in group.contexts] == good
    error = failures[f"in {bad}"]
    assert (error.failure, error.reason) == (FailureClass.COMPILE, "operator Foo is not supported")
    # Nothing of the group that was never flushed is there, only what the second call made.
    assert (group.folder / "shared.bin").read_text() == "".join(good)
    assert not list(group.folder.glob(f"{bad}_*"))


@pytest.mark.parametrize("failure", [FailureClass.CRASH, FailureClass.TIMEOUT, FailureClass.MEMORY])
def test_a_compiler_that_dies_costs_the_member_at_hand(
    tmp_path: Path, failure: FailureClass
) -> None:
    fake = FakeRuntimes({"b": BuildFailed(failure, "compile", "it is gone")})
    group, failures = compiled(fake, tmp_path, "a", "b", "c")
    assert group is not None
    assert [one.graph.name for one in group.contexts] == ["a", "c"]
    assert failures["in b"].failure is failure


def test_a_group_of_which_nothing_is_left_is_none(tmp_path: Path) -> None:
    group, failures = compiled(FakeRuntimes({"a": "no", "b": "no"}), tmp_path, "a", "b")
    assert (group, set(failures)) == (None, {"in a", "in b"})


def test_a_context_model_that_cannot_be_used_costs_its_member(tmp_path: Path) -> None:
    name = f"a_{KEY[:16]}.onnx"
    for fake, text in (
        (FakeRuntimes(problems={name: "its binary ../x.bin is outside"}), "../x.bin is outside"),
        (FakeRuntimes(nothing={name}), "takes no operator of a"),
    ):
        group, failures = compiled(fake, tmp_path, "a", "b")
        assert text in failures["in a"].reason
        assert group is not None
        assert [one.graph.name for one in group.contexts] == ["b"]


@pytest.mark.parametrize(
    "error", [Cancelled("stop"), BuildFailed(FailureClass.DISK, "compile", "full")]
)
def test_what_no_member_can_help_ends_the_group(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        compiled(FakeRuntimes({"b": error}), tmp_path, "a", "b")
