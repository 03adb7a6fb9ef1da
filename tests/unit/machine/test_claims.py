from __future__ import annotations

import os
import time
from pathlib import Path

from machine.processes import MAX_AGE, abandoned, claim, claim_in, owner_alive
from tests.machine.dead import NO_SUCH_PID


def claimed_by(pid: int, started: str) -> str:
    scope, _, _, random = claim().split("-")
    return f"{scope}-{pid}-{started}-{random}"


def test_whoever_claims_a_name_is_recognized_in_it() -> None:
    name = claim()
    assert owner_alive(f"publish-{name}.blob") is True
    assert claim_in(f"publish-{name}.blob") == name
    assert claim_in("somebody") == "somebody"
    assert owner_alive("somebody") is None


def test_a_name_of_a_process_that_is_gone_is_free_at_once(tmp_path: Path) -> None:
    left = tmp_path / f"new-{claimed_by(NO_SUCH_PID, '1')}"
    left.touch()
    assert owner_alive(left.name) is False
    assert abandoned(left)


def test_a_pid_that_another_process_has_now_is_not_its_owner() -> None:
    assert owner_alive(claimed_by(os.getpid(), "1")) is False


def test_what_another_machine_claimed_is_free_when_it_is_old(tmp_path: Path) -> None:
    folder = tmp_path / f"publish-{'0' * 12}{claim()[12:]}"
    folder.mkdir()
    (folder / "part").touch()
    old = time.time() - MAX_AGE - 60
    os.utime(folder, (old, old))
    assert not abandoned(folder)  # a file in it is still written
    os.utime(folder / "part", (old, old))
    assert abandoned(folder)
