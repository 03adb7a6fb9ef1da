from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from tests.plans.cells import make_cell
from workers.build.request import request_for
from workers.engine import Request, from_json, to_json


@pytest.mark.parametrize(("entry", "flag"), list(itertools.product([False, True], repeat=2)))
def test_foreign_code_and_pickles_need_the_entry_and_the_flag(entry: bool, flag: bool) -> None:
    cell = make_cell()
    cell = replace(cell, model=replace(cell.model, remote_code=entry, pickle=entry))
    allowed = request_for(cell, remote_code=flag, pickle=flag).model["allow"]
    assert allowed == {"remote_code": entry and flag, "pickle": entry and flag}


def test_one_permission_does_not_give_the_other() -> None:
    cell = make_cell()
    cell = replace(cell, model=replace(cell.model, remote_code=True, pickle=True))
    assert request_for(cell, pickle=True).model["allow"] == {"remote_code": False, "pickle": True}


def test_a_request_is_plain_json_and_survives_the_pipe() -> None:
    request = request_for(make_cell(size=7))
    wire = json.loads(json.dumps(to_json(request)))
    assert from_json(wire, Request) == request
    assert request.model["source"]["config"] == {"size": 7}


def test_what_cannot_change_a_byte_is_not_in_a_request() -> None:
    one, other = make_cell(stamp="20260609"), make_cell(stamp="20260610")
    other = replace(other, policy=replace(other.policy, notices=("note",), default=False))
    assert request_for(one) == request_for(other)
