from __future__ import annotations

from flows.output.meanings import CAUSES, EXITS, LOOKS, Tone
from matrix.errors import Exit
from matrix.status import FailureClass, Status


def test_every_status_class_and_exit_code_has_its_words() -> None:
    assert list(LOOKS) == list(Status)
    assert list(CAUSES) == list(FailureClass)
    assert list(EXITS) == list(Exit)


def test_no_two_statuses_share_a_glyph() -> None:
    glyphs = [look.glyph for look in LOOKS.values()]
    assert len(set(glyphs)) == len(glyphs)
    assert all(len(glyph) == 1 for glyph in glyphs)


def test_what_failed_looks_like_it_and_nothing_else_does() -> None:
    alarming = {status for status, look in LOOKS.items() if look.tone in {Tone.BAD, Tone.WARN}}
    assert alarming == {status for status in Status if status.failed}


def test_every_failure_has_a_next_step() -> None:
    assert all(cause.next_step and cause.meaning for cause in CAUSES.values())
