"""Groups: who fails is named and left out, and nothing of a broken group is used."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from machine.waits import Cancelled
from matrix.model import Profile
from matrix.status import FailureClass
from tests.engines.compilers import RUNTIME, FakeRuntimes
from workers.compile.group import GroupResult, Job, Member, compile_group
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.runtimes.pool import Runtimes


def member(folder: Path, name: str) -> Member:
    (folder / name).write_text(name)
    return Member(name, folder / name, f"{name}_ctx")


def compiled(fake: FakeRuntimes, folder: Path, *names: str) -> GroupResult:
    told: list[str] = []
    job = Job(RUNTIME, Profile("p", "t", "r"), folder, Watching(5, progress=told.append))
    result = compile_group(cast("Runtimes", fake), [member(folder, name) for name in names], job)
    assert all(text.rpartition(" ")[2] in names for text in told)
    return result


def test_a_group_is_compiled_in_one_call_in_its_order(tmp_path: Path) -> None:
    fake = FakeRuntimes()
    result = compiled(fake, tmp_path, "b", "a", "c")
    assert fake.calls == [["b", "a", "c"]]
    assert list(result.seconds) == ["b", "a", "c"]
    assert result.failures == {}
    assert sorted(path.name for path in result.folder.iterdir()) == [
        "a_ctx", "b_ctx", "c_ctx", "shared.bin",
    ]  # fmt: skip


@pytest.mark.parametrize("bad", ["a", "b", "c"])
def test_a_member_that_fails_is_left_out_and_the_rest_compiled_again(
    tmp_path: Path, bad: str
) -> None:
    fake = FakeRuntimes({bad: "operator Foo is not supported"})
    result = compiled(fake, tmp_path, "a", "b", "c")
    good = [name for name in "abc" if name != bad]
    assert fake.calls == [["a", "b", "c"], good]
    assert list(result.seconds) == good
    error = result.failures[bad]
    assert (error.failure, error.reason) == (FailureClass.COMPILE, "operator Foo is not supported")
    # Nothing of the group that was never flushed is there, only what the second call made.
    assert (result.folder / "shared.bin").read_text() == "".join(good)
    assert not (result.folder / f"{bad}_ctx").exists()


@pytest.mark.parametrize("failure", [FailureClass.CRASH, FailureClass.TIMEOUT, FailureClass.MEMORY])
def test_a_compiler_that_dies_costs_the_member_at_hand(
    tmp_path: Path, failure: FailureClass
) -> None:
    fake = FakeRuntimes({"b": BuildFailed(failure, "compile", "it is gone")})
    result = compiled(fake, tmp_path, "a", "b", "c")
    assert list(result.seconds) == ["a", "c"]
    assert result.failures["b"].failure is failure


def test_a_group_of_which_nothing_is_left_has_no_outputs(tmp_path: Path) -> None:
    fake = FakeRuntimes({"a": "no", "b": "no"})
    result = compiled(fake, tmp_path, "a", "b")
    assert (set(result.failures), result.seconds, result.contexts) == ({"a", "b"}, {}, {})
    assert not result.folder.exists()


def test_a_context_model_that_refers_to_what_it_must_not_has_failed(tmp_path: Path) -> None:
    fake = FakeRuntimes(problems={"a_ctx": "its binary ../x.bin is outside the package"})
    result = compiled(fake, tmp_path, "a", "b")
    assert "outside the package" in result.failures["a"].reason
    assert "b" not in result.failures


@pytest.mark.parametrize(
    "error", [Cancelled("stop"), BuildFailed(FailureClass.DISK, "compile", "full")]
)
def test_what_no_member_can_help_ends_the_group(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        compiled(FakeRuntimes({"b": error}), tmp_path, "a", "b")
