"""The list of what Wine cannot run names tests that exist, and says why."""

from __future__ import annotations

import pytest

from tests.windows.exclusions import Exclusion, exclusions
from tests.windows.python import ROOT


@pytest.mark.parametrize("one", exclusions(), ids=lambda one: one.reason)
def test_every_exclusion_names_tests_and_says_how_it_is_known(one: Exclusion) -> None:
    assert one.tests
    assert one.reason
    assert one.known
    for test in one.tests:
        file, _, name = test.partition("::")
        function = name.rpartition("::")[2].partition("[")[0].rstrip("*")
        assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8"), test


def test_brackets_stand_for_themselves() -> None:
    one = Exclusion(("a.py::test[1]", "b.py::test*"), "", "")
    assert one.leaves_out("a.py::test[1]")
    assert not one.leaves_out("a.py::test1")
    assert one.leaves_out("b.py::test[x]")
