"""The tool's log lines and what its end means."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed.azure.artifacttool import _Reporter
from feed.azure.child import End, Outcome
from feed.azure.failures import Run, final_error, judge_run, read_event
from feed.azure.wire import FeedAbsent, PackageAbsent, TokenRefused
from feed.errors import (
    Conflict,
    FeedError,
    NoSpace,
    OutcomeUnknown,
    Rejected,
    Unauthorized,
    Unavailable,
    VersionExists,
)

PUBLISH = Run("publish of n v", True, "me@example.com")
DOWNLOAD = Run("download of n v", False, "me@example.com")


def error_line(text: str, source: str = "ArtifactTool.Program") -> str:
    return json.dumps({"@t": "t", "@m": text, "@l": "Error", "SourceContext": source})


def outcome(code: int, *lines: str, end: End = End.EXITED) -> Outcome:
    return Outcome(end, code, "", lines)


def test_progress_events_are_read() -> None:
    line = (
        '{"@t":"2026-01-01T00:00:00Z","@m":"Uploading","@i":"1","UploadedBytes":5,'
        '"TotalBytes":10,"EventId":{"Id":3,"Name":"Uploading"},"SourceContext":"X"}'
    )
    event = read_event(line)
    assert (event.name, event.done, event.total, event.is_error) == ("Uploading", 5, 10, False)


@given(
    st.one_of(
        st.text(),
        st.dictionaries(
            st.sampled_from(
                ["@m", "@l", "EventId", "UploadedBytes", "TotalBytes", "SourceContext"]
            ),
            st.one_of(
                st.none(), st.integers(), st.text(), st.just({"Name": "Uploading"}), st.just([])
            ),
        ),
    )
)
def test_any_line_is_understood_somehow(value: str | dict[str, object]) -> None:
    line = value if isinstance(value, str) else json.dumps(value)
    event = read_event(line)
    assert event.done >= 0
    assert isinstance(final_error((line,)), str)


def test_totals_of_zero_and_steps_back_do_not_confuse_progress() -> None:
    seen: list[tuple[int, int]] = []
    reporter = _Reporter(lambda *step: seen.append(step))

    def uploaded(done: int, total: int) -> str:
        values = {"UploadedBytes": done, "TotalBytes": total}
        return json.dumps({"@m": "x", "EventId": {"Name": "Uploading"}, **values})

    steps = [(5, 0), (5, 0), (3, 10), (7, 10)]
    assert [reporter.on_line(uploaded(*step)) for step in steps] == [True, False, False, True]
    assert not reporter.on_line("Try 1/5, retryable exception caught")
    reporter.on_beat()
    assert seen == [(7, 10)]


def test_the_last_error_of_the_program_is_the_reason() -> None:
    lines = (
        error_line("first"),
        error_line("the reason"),
        error_line("a library", "Other"),
        json.dumps({"@m": "Task was requested to be canceled.", "@l": "Warning"}),
    )
    assert final_error(lines) == "the reason"
    assert final_error((error_line("a library", "Other"),)) == "a library"
    assert final_error(('{"@m":"fine"}', "Aborted (core dumped)", "")) == "Aborted (core dumped)"
    assert final_error(()) == ""


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (17, "The package already exists", VersionExists),
        (17, "", VersionExists),
        (19, "The feed with ID 'x' doesn't exist.", FeedAbsent),
        (19, "", FeedAbsent),
        (20, "The version provided is invalid", Rejected),
        (1, "The package name provided is invalid", Rejected),
        (
            1,
            "User 'x' lacks permission to complete this action. You need to have 'AddPackage'.",
            Unauthorized,
        ),
        (1, "TF400813: The user 'x' is not authorized to access this resource.", TokenRefused),
        (1, "VS30063: You are not authorized to access https://vsblob", TokenRefused),
        (1, "Access Denied: The Personal Access Token used has expired.", TokenRefused),
        (1, "TF400733: The request has been canceled: exceeding usage of resource", Unavailable),
        (1, "Service returned 503", Unavailable),
        (21, "The package n v in F has been deleted, and cannot be republished", Conflict),
        (18, "Can't find the package 'n'", PackageAbsent),
        (1, "Did not find any versions of 'n' that matched the pattern '1.*'", PackageAbsent),
        (134, "Couldn't find a valid ICU package installed on the system.", Unauthorized),
        (-6, "No usable version of libssl was found", Unauthorized),
        (-6, "Aborted", OutcomeUnknown),
        (1, "Something new", OutcomeUnknown),
        (1, "", OutcomeUnknown),
    ],
)
def test_ends_are_told_apart(code: int, text: str, kind: type[FeedError]) -> None:
    error = judge_run(PUBLISH, outcome(code, error_line(text)))
    assert type(error) is kind
    assert "publish of n v" in error.message


GENERIC = "Encountered an unexpected error."


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"@x": "IOException: No space left on device\n   at X()\n   at Y()"},
            "No space",
        ),
        (
            {
                "@x": "AggregateException: One or more errors (a)\n ---> Y: b\n ---> Z: the cause"
                "\n   at X()"
            },
            "Z: the cause",
        ),
        ({"ErrorMessage": "The blob is locked"}, "The blob is locked"),
        ({"Count": 3, "UtcTimestamp": "2026"}, ""),
    ],
)
def test_the_cause_is_in_the_other_fields_of_the_line(
    fields: dict[str, object], reason: str
) -> None:
    line = {"@t": "t", "@m": GENERIC, "@l": "Error", "SourceContext": "ArtifactTool.Program"}
    said = final_error((json.dumps({**line, **fields}),))
    assert said.startswith(GENERIC.rstrip("."))
    assert reason in said
    assert " at X()" not in said
    assert "2026" not in said


def test_an_error_without_a_cause_is_explained_by_the_one_before_it() -> None:
    lines = (error_line("The disk is full", "Other"), error_line(GENERIC))
    assert final_error(lines) == f"{GENERIC.rstrip('.')}: The disk is full"
    error = judge_run(PUBLISH, outcome(1, *lines))
    assert isinstance(error, NoSpace)
    assert "MODELMILL_AZURE_WORK" in error.hint


@pytest.mark.parametrize(
    "text", ["storage limit reached", "billing", "the maximum number of versions"]
)
def test_what_is_full_is_told_with_a_step(text: str) -> None:
    error = judge_run(PUBLISH, outcome(1, error_line(text)))
    assert isinstance(error, Rejected)
    assert any(step in error.hint for step in ("set up billing", "--package 'NAME-{model}'"))


def test_warnings_are_not_failures() -> None:
    warning = json.dumps({"@m": "Try 1/5, retryable exception", "@l": "Warning"})
    assert judge_run(PUBLISH, outcome(0, warning, error_line("401"))) is None


@pytest.mark.parametrize("end", [End.STUCK, End.OVERDUE])
def test_an_end_that_was_forced_leaves_a_question_only_where_something_was_sent(end: End) -> None:
    assert isinstance(judge_run(PUBLISH, outcome(-9, end=end)), OutcomeUnknown)
    assert isinstance(judge_run(DOWNLOAD, outcome(-9, end=end)), Unavailable)
    assert isinstance(judge_run(DOWNLOAD, outcome(1, "odd")), Unavailable)


def test_the_role_that_is_missing_is_named() -> None:
    for run, role in ((PUBLISH, "Contributor"), (DOWNLOAD, "Reader")):
        error = judge_run(run, outcome(1, error_line("lacks permission")))
        assert error is not None
        assert role in error.hint
        assert "me@example.com" in error.hint
