"""Packages and versions: Azure's rules, the replaced system's spelling, and no two alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed.rules import STRICTEST
from matrix.errors import PlanError
from matrix.model import Model
from matrix.naming import (
    index_name,
    render,
    stamp_problems,
    template_problems,
)
from matrix.plan import PlanOptions
from matrix.policy import PRECISIONS
from matrix.selector import Selection
from matrix.slugs import has_plain_name, names_of, slug
from tests.plans.models import STAMP, TARGETS, a_model, plan_of, plan_options

LABELS = TARGETS.labels
ALL = plan_options(STAMP, STRICTEST, package="fixed", precision=PRECISIONS)


def versions(models: Sequence[Model], options: PlanOptions = ALL) -> dict[str, str]:
    return {cell.id: cell.version for cell in plan_of(models, options=options).cells()}


def test_the_replaced_systems_vector() -> None:
    plan = plan_of([a_model()])
    cell = next(plan.cells())
    assert cell.version == "0.0.0-20260609-qnn-npu-microsoft-resnet-50-image-classification"
    assert cell.package == "modelmill-microsoft-resnet-50"
    assert plan.models[0].export_version == (
        "0.0.0-20260609-export-microsoft-resnet-50-image-classification"
    )
    assert (plan.index_package, plan.index_version) == ("modelmill-index", "0.0.0-20260609")


def test_no_task_no_suffix_and_precision_last() -> None:
    found = versions([a_model("a/B.c", "")])
    assert found["a/B.c@qnn_npu"] == "0.0.0-20260609-qnn-npu-a-b-c"
    assert found["a/B.c@qnn_npu:fp16"] == "0.0.0-20260609-qnn-npu-a-b-c-fp16"
    assert found["a/B.c@ov_cpu"] == "0.0.0-20260609-ov-cpu-a-b-c"
    assert "a/B.c@qnn_npu:w8a16" not in found


@pytest.mark.parametrize(
    ("text", "found"),
    [("microsoft/resnet-50", "microsoft-resnet-50"), ("__A..b//C__", "a-b-c"), ("模型", ""),
     ("ÜBER", "ber"), ("a\u0131b", "a-b"), ("", ""), ("---", "")],
)  # fmt: skip
def test_slug(text: str, found: str) -> None:
    assert slug(text) == found


@pytest.mark.parametrize(
    "version",
    ["0.0.0", "0.0.0-20260609", "1.2.3-a.b-c.0", "0.0.0-0", "0.0.0--", "0.0.0-" + "a" * 121,
     "2147483647.0.0", "0.0.0-a.1a.01a"],
)  # fmt: skip
def test_versions_that_a_feed_takes(version: str) -> None:
    assert STRICTEST.version.problem(version) is None


@pytest.mark.parametrize(
    "version",
    ["", "1.0", "1.0.0.0", "v1.0.0", "01.0.0", "1.0.0-RC1", "1.0.0-01", "1.0.0-a.01", "1.0.0-",
     "1.0.0-a..b", "1.0.0+x", " 1.0.0", "1.0.0 ", "1.0.0\n", "2026.01.02", "2147483648.0.0",
     "0.0.0-" + "a" * 122, "0.0.0-ä", "0.0.0-a_b", "٠.0.0"],
)  # fmt: skip
def test_versions_that_no_feed_takes(version: str) -> None:
    assert STRICTEST.version.problem(version)


@pytest.mark.parametrize("name", ["a", "0", "a-b_c.d", "a" * 255])
def test_packages_that_a_feed_takes(name: str) -> None:
    assert STRICTEST.package.problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "A", "a--b", "a-_b", "-a", "a-", "a b", "a/b", "ä", "a\n", "a" * 256]
)
def test_packages_that_no_feed_takes(name: str) -> None:
    assert STRICTEST.package.problem(name)


@pytest.mark.parametrize(
    "stamp", ["20260609", "2026-06-09", "nightly", "Nightly_1", "0", "qnn-npu", "rc-r2d2", "index"]
)
def test_stamps(stamp: str) -> None:
    assert stamp_problems(stamp, LABELS) == []


@pytest.mark.parametrize(
    ("stamp", "says"),
    [
        ("", "no letter or digit"),
        ("  --", "no letter or digit"),
        ("夜", "no letter or digit"),
        ("0609", "leading zero"),
        ("x" * 41, "longer than 40"),
        ("20260609-r2", "reserved part 'r2'"),
        ("20260609/R2", "reserved part 'r2'"),
        ("20260609-index", "reserved part 'index'"),
        ("x-export-y", "reserved part 'export'"),
        ("x-qnn-npu", "reserved part 'qnn-npu'"),
    ],
)
def test_stamps_that_read_like_something_else(stamp: str, says: str) -> None:
    (problem,) = stamp_problems(stamp, LABELS)
    assert says in problem.message


@pytest.mark.parametrize(
    "template",
    ["modelmill-{model}", "winml-cli-models", "{model}", "x.{model}_{task}", "{task}-{model}"],
)
def test_templates(template: str) -> None:
    assert template_problems(template, STRICTEST) == []


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("", "does not make a package name"),
        ("Models", "does not make a package name"),
        ("{model", "is not a valid template"),
        ("model}", "is not a valid template"),
        ("{}", "unknown field {}"),
        ("{modle}", "unknown field {modle}"),
        ("{model.id}", "unknown field {model.id}"),
        ("{model[0]}", "unknown field {model[0]}"),
        ("{model!r}", "plain fields"),
        ("{model:>999999999}", "plain fields"),
        ("{{model}}", "does not make a package name"),
        ("{task}", "lacks {model}"),
        ("x-{task}", "lacks {model}"),
        ("-{model}", "does not make a package name"),
        ("{model}/{task}", "does not make a package name"),
        ("x" * 250 + "-{model}", "longer than 255"),
    ],
)
def test_templates_that_cannot_be(template: str, says: str) -> None:
    (problem,) = template_problems(template, STRICTEST)
    assert says in problem.message


def test_an_empty_task_leaves_no_separator() -> None:
    assert render("{model}-{task}", "m", "") == "m"
    assert render("{task}.{model}", "m", "") == "m"
    assert render("a-{task}-{model}", "m", "") == "a-m"
    assert render("a-{task}-{model}", "m", "t") == "a-t-m"


def test_index_names() -> None:
    assert index_name("modelmill-{model}", "s") == ("modelmill-index", "0.0.0-s")
    assert index_name("modelmill-{model}", "s", 3) == ("modelmill-index", "0.0.0-s-r3")
    assert index_name("fixed", "s") == ("fixed", "0.0.0-s-index")
    assert index_name("fixed", "s", 2) == ("fixed", "0.0.0-s-index-r2")


@pytest.mark.parametrize(
    "ids",
    [("a/b-c", "a-b/c"), ("a_b", "a-b"), ("A/b", "a/b"), ("模型", "测试"), ("a/é", "a/è"),
     ("a.b", "a/b", "a-b")],
)  # fmt: skip
def test_the_first_of_a_collision_keeps_its_name(ids: tuple[str, ...]) -> None:
    models = [a_model(name) for name in ids]
    together = names_of(models, LABELS, 90).models
    assert len(set(together.values())) == len(ids)
    alone = names_of(models[:1], LABELS, 90).models
    assert together[ids[0]] == alone[ids[0]]
    for name in ids[1:]:
        base = slug(name)
        assert together[name] != base
        assert together[name].startswith(f"{base or 'model'}-")


@pytest.mark.parametrize("order", [1, -1])
def test_what_was_published_before_keeps_its_name_wherever_it_stands(order: int) -> None:
    models = [a_model("a/b-c"), a_model("a-b/c"), a_model("plain")][::order]
    old = "a-b/c:image-classification"
    found = names_of(models, LABELS, 90, lambda: (old, "gone:t"))
    assert found.models["a-b/c"] == "a-b-c"
    assert found.models["a/b-c"].startswith("a-b-c-")
    assert found.yielded == {"a/b-c": "a-b/c"}


def test_nobody_is_asked_about_names_that_do_not_meet() -> None:
    def ask() -> tuple[str, ...]:
        raise AssertionError("asked")

    assert names_of([a_model("a/b"), a_model("a/c")], LABELS, 90, ask).yielded == {}


def test_a_new_neighbour_changes_no_name_and_is_told() -> None:
    before = versions([a_model("a/b-c")])
    plan = plan_of([a_model("a/b-c"), a_model("a-b/c")], options=ALL)
    after = {cell.id: cell.version for cell in plan.cells()}
    assert before.items() <= after.items()
    (told,) = [notice for notice in plan.notices if "has the plain name" in notice]
    assert told.startswith("a-b/c is named a-b-c-")
    assert plan_of([a_model("a/b-c"), a_model("a/x")]).notices == ()


def test_a_version_tells_whether_its_name_is_plain() -> None:
    models = [a_model("a/b-c"), a_model("a-b/c")]
    for cell in plan_of(models, options=ALL).cells():
        plain = has_plain_name(cell.model.id, cell.model.task, cell.version)
        assert plain is (cell.model is models[0])


def test_names_do_not_depend_on_the_selection() -> None:
    models = [a_model("a/b-c"), a_model("a-b/c"), a_model("plain")]
    everything = versions(models)
    for model in models:
        some = plan_of(models, options=ALL, selection=Selection(models=(model.id,)))
        assert all(everything[cell.id] == cell.version for cell in some.cells())


def test_one_id_with_several_tasks_keeps_one_package() -> None:
    models = [a_model("a", "t-u"), a_model("a", "t_u"), a_model("a", "t.u")]
    plan = plan_of(models)
    assert {cell.package for cell in plan.cells()} == {"modelmill-a"}
    assert len({cell.version for cell in plan.cells()}) == 24


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "b-c"), ("a-b", "c")],  # the border between model and task
        [("a-fp16", ""), ("a", "")],  # the border between name and precision
        [("a", "fp16"), ("a", "")],
        [("index", ""), ("a", "")],
        [("a/b-c", "t"), ("a-b/c", "t"), ("a-b-c", "t")],
    ],
)
def test_borders_that_a_slug_loses(pairs: list[tuple[str, str]]) -> None:
    for package in ("fixed", "{model}", "x-{model}-{task}"):
        options = plan_options(STAMP, STRICTEST, package=package, precision=PRECISIONS)
        found = versions([a_model(*pair) for pair in pairs], options)
        assert len(set(found.values())) == len(found)


def test_a_model_called_index_is_not_the_sweep_index() -> None:
    plan = plan_of([a_model("Index"), a_model("b")])
    assert plan.models[0].export_package.startswith("modelmill-index-")
    assert plan.models[0].export_package != plan.index_package


def test_a_hash_that_meets_a_name_like_it_gives_way() -> None:
    first = [a_model("a/b"), a_model("a-b")]
    hashed = names_of(first, LABELS, 90).models["a-b"]
    found = names_of([*first, a_model(hashed)], LABELS, 90).models
    assert len(set(found.values())) == 3


def test_overlong_names_are_cut_and_hashed() -> None:
    long = "x/" + "very-long-name-" * 13
    plan = plan_of([a_model(long, "t" * 64), a_model(long + "y", "t" * 64)], options=ALL)
    cells = list(plan.cells())
    assert max(len(cell.version) for cell in cells) <= STRICTEST.version.longest
    assert len({cell.version for cell in cells}) == len(cells)
    named = plan_of([a_model(long), a_model(long + "y")])
    assert len({model.export_package for model in named.models}) == 2


# Ids that collide all the time: few letters, every kind of separator, and words of versions.
part = st.sampled_from(["a", "b", "A", "fp16", "w8", "index", "export", "npu", "gpu", "qnn", "模"])
ids = st.lists(part, min_size=1, max_size=3).flatmap(
    lambda parts: st.lists(
        st.sampled_from("-_./"), min_size=len(parts) - 1, max_size=len(parts) - 1
    ).map(lambda seps: "".join(a + b for a, b in zip(parts, [*seps, ""], strict=True)))
)
tasks = st.sampled_from(["", "a", "b", "a-b", "a_b", "fp16", "npu", "b-fp16"])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(ids, tasks), min_size=1, max_size=8, unique=True),
    st.sampled_from(["fixed", "{model}", "m-{model}", "{task}-{model}"]),
    st.sampled_from(["20260609", "a", "x" * 40, "2026-06-09"]),
)
def test_all_names_of_any_catalog_are_valid_and_unique(
    pairs: list[tuple[str, str]], package: str, stamp: str
) -> None:
    models = [a_model(*pair) for pair in pairs if not pair[0].startswith("/")]
    options = plan_options(stamp, STRICTEST, package=package, precision=PRECISIONS)
    try:
        plan = plan_of(models, options=options)
    except PlanError as err:  # pragma: no cover - the message is what one wants to see
        pytest.fail(str(err))
    names = [(cell.package, cell.version) for cell in plan.cells()]
    names += [(model.export_package, model.export_version) for model in plan.models]
    names.append((plan.index_package, plan.index_version))
    assert len(set(names)) == len(names)
    for name, version in names:
        assert STRICTEST.package.problem(name) is None
        assert STRICTEST.version.problem(version) is None
    fixed = [version for _, version in names]
    assert len(set(fixed)) == len(fixed)  # whatever the template: one feed, one batch


def test_labels_that_begin_alike_cannot_be_taken_for_each_other() -> None:
    labels = ("qnn_npu", "qnn_npu_v73", "qnn_npu_v73_x")
    names = names_of([a_model("v73/m", ""), a_model("m", ""), a_model("x/m", "")], labels, 90)
    found = [f"{slug(label)}-{tail}" for label in labels for tail in names.entries.values()]
    assert len(set(found)) == len(found)


def test_a_plan_keeps_the_limits_that_its_feed_declares() -> None:
    """A feed with shorter names and fewer versions gets shorter names, or refuses the plan."""
    small = replace(
        STRICTEST,
        package=replace(STRICTEST.package, longest=40),
        version=replace(STRICTEST.version, longest=64),
        versions=16,
    )
    models = [a_model("somebody/" + "long-name-" * 9 + end) for end in ("one", "two")]
    plan = plan_of(models, options=plan_options(STAMP, small))
    assert {len(cell.package) <= 40 and len(cell.version) <= 64 for cell in plan.cells()} == {True}
    assert len({cell.package for cell in plan.cells()}) == 2
    with pytest.raises(PlanError, match="would get 19 versions, the feed takes 16"):
        plan_of(models, options=plan_options(STAMP, small, package="fixed"))
    upper = replace(small, package=replace(small.package, pattern=re.compile("[A-Z]+")))
    with pytest.raises(PlanError, match="does not make a package name"):
        plan_of(models, options=plan_options(STAMP, upper))
