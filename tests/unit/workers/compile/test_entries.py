"""The session entries of a group, in the order in which they are given."""

from __future__ import annotations

import pytest

from workers.runtimes.compile import entries

ENABLE, SHARE, STOP = "ep.context_enable", "ep.share_ep_contexts", "ep.stop_share_ep_contexts"
EMBED, PATH = "ep.context_embed_mode", "ep.context_file_path"


@pytest.mark.parametrize("embed", [False, True])
def test_three_models_of_the_session_backend(embed: bool) -> None:
    found = [one for step in entries("session", ["m0", "m1", "m2"], embed=embed) for one in step]
    assert found == [
        (ENABLE, "1"), (EMBED, str(int(embed))), (SHARE, "1"), (PATH, "m0"),
        (PATH, "m1"),
        (STOP, "1"), (PATH, "m2"),
    ]  # fmt: skip


def test_the_sharing_is_ended_before_the_last_model_is_compiled() -> None:
    assert list(entries("api", ["m0", "m1", "m2"], embed=False)) == [
        ((SHARE, "1"),),
        (),
        ((STOP, "1"),),
    ]


def test_a_single_model_shares_nothing() -> None:
    assert list(entries("api", ["m0"], embed=True)) == [()]
    alone = [(ENABLE, "1"), (EMBED, "0"), (PATH, "m0")]
    assert list(entries("session", ["m0"], embed=False)) == [tuple(alone)]
