"""What is wrong in a catalog is told all at once, each fault with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.catalog import load_catalog
from matrix.errors import PlanError, UsageError
from tests.plans.models import TARGETS, load, write

ONE = '[[model]]\nid = "a/b"\ntask = "fill-mask"\n'


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        load(folder, text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[model]\n", "catalog.toml: is not valid TOML"),
        ("", "catalog.toml: holds no model"),
        ("[[models]]\n", "unknown key 'models' (did you mean model?)"),
        ("model = 3\n", "catalog.toml: model: must be a list of tables, not 3"),
        ("model = [3]\n", "catalog.toml: model 1: must be a table, not 3"),
        ("defaults = 3\n" + ONE, "defaults must be a table, not 3"),
        ('[defaults]\nid = "x"\n' + ONE, "catalog.toml: defaults: id cannot be a default"),
        ('[defaults]\nhub = "x"\n' + ONE, "catalog.toml: defaults: hub cannot be a default"),
        ('[[model]]\nid = "a/b"\n', "catalog.toml: model 1 (a/b): task is missing"),
        ('[[model]]\ntask = "t"\n', "catalog.toml: model 1: id is missing"),
        ('[[model]]\nid = ""\ntask = "t"\n', "the model id is empty"),
        ('[[model]]\nid = "a b"\ntask = "t"\n', "a blank or a control character"),
        ('[[model]]\nid = "a@b"\ntask = "t"\n', "contains '@', which cell ids reserve"),
        ('[[model]]\nid = "a:b"\ntask = "t"\n', "contains ':', which cell ids reserve"),
        ('[[model]]\nid = "a\\u0007"\ntask = "t"\n', "a blank or a control character"),
        ('[[model]]\nid = "a/b/c"\ntask = "t"\n', "is not a Hub id"),
        ('[[model]]\nid = 3\ntask = "t"\n', "id must be a string, not 3"),
        ('[[model]]\nid = "a"\ntask = "a b"\n', "the task 'a b' may hold only"),
        (ONE + 'priority = "P9"\n', "unknown priority 'P9' (valid: P0, P1, P2, P3)"),
        (ONE + 'priority = "p1"\n', "unknown priority 'p1' (did you mean P1"),
        (ONE + 'precision = "w8a61"\n', "unknown precision 'w8a61' (did you mean w8a16"),
        (ONE + "precision = []\n", "precision is an empty list"),
        (ONE + "precision = [8]\n", "precision must be a list of strings"),
        (ONE + "opset = 99\n", "opset must be between 7 and 30, not 99"),
        (ONE + "opset = true\n", "opset must be a whole number, not True"),
        (ONE + 'opset = "17"\n', "opset must be a whole number, not '17'"),
        (ONE + "timeout = 0\n", "timeout must be more than 0 seconds"),
        (ONE + "timeout = inf\n", "timeout contains a value that cannot be stored"),
        (ONE + "timeout = nan\n", "timeout contains a value that cannot be stored"),
        (ONE + 'skip = " "\n', "skip needs a reason"),
        (ONE + "skip = true\n", "skip must be a string, not True"),
        (ONE + "remote_code = 1\n", "remote_code must be true or false, not 1"),
        (ONE + "prioritty = 1\n", "unknown key 'prioritty' (did you mean priority?)"),
        (ONE + "shapes = { batch_size = 0 }\n", "batch_size must be between 1 and"),
        (ONE + 'shapes = { "a b" = 1 }\n', "cannot be the name of a dimension"),
        (ONE + "dataset = { at = 2020-01-01 }\n", "dataset contains a value that cannot be stored"),
        (ONE + 'dataset = { path = "no.jsonl" }\n', "dataset 'no.jsonl' does not exist"),
        (ONE + 'dataset = "a.npz"\n', 'must be a table (dataset = { path = "a.npz" })'),
        (ONE + "dataset = { samples = 9 }\n", "dataset: path is missing"),
        (ONE + 'dataset = { path = "x.txt" }\n', "give a .npz, .jsonl, .csv, .parquet file, or a"),
        (ONE + 'dataset = { path = "x.npz", sampels = 9 }\n', "'sampels' (did you mean samples?)"),
        (ONE + 'dataset = { path = "x.npz", samples = 3 }\n', "samples must be between 8 and"),
        (
            ONE + 'dataset = { path = ".", columns = { txt = "a" } }\n',
            "unknown meaning 'txt' (did you mean text or",
        ),
        (ONE + 'dataset = { path = ".", mean = [1, "2"] }\n', "mean must be a list of numbers"),
        (ONE + 'dataset = { path = ".", std = [1, 0] }\n', "std has a zero"),
        (ONE + 'samples = "synthetic"\n', 'lacks the reason (samples = { kind = "synthetic",'),
        (ONE + 'samples = { kind = "real", reason = "x" }\n', "unknown kind 'real'"),
        (ONE + 'samples = { kind = "synthetic" }\n', "samples: reason is missing"),
        ('[dataset.fill-maks]\npath = "."\n' + ONE, "no model has this group or task (did you"),
        ('[dataset.fill-mask]\npaht = "."\n' + ONE, "catalog.toml: dataset fill-mask: unknown k"),
        ('[dataset]\nfill-mask = "."\n' + ONE, "dataset fill-mask: must be a table, not '.'"),
        (ONE + 'folder = "nowhere"\n', "folder 'nowhere' does not exist"),
        (ONE + 'folder = "a\\u0000"\n', "does not exist"),
        (ONE + f'folder = "{"x" * 5000}"\n', "does not exist"),
        (ONE + 'hub = "not a hub id"\n', "is not a Hub id"),
        (ONE + 'hub = "x/y"\nrandom = { architecture = "bert" }\n', "hub and random exclude"),
        (ONE + 'random = { architecture = "bert" }\nrevision = "x"\n', "revision does not go with"),
        (ONE + "random = { seed = 1 }\n", "random: architecture is missing"),
        (ONE + 'random = { architecture = "x", seed = -1 }\n', "seed must be between 0"),
        (ONE + 'random = { architecture = "x", sed = 1 }\n', "'sed' (did you mean seed?)"),
        (ONE + "[model.target.qnn_nup]\nopset = 17\n", "target qnn_nup: unknown target 'qnn_nup'"),
        (ONE + '[model.target."zz*"]\nopset = 17\n', "no target matches 'zz*'"),
        (ONE + "[model.target.qnn_npu]\nopst = 17\n", "unknown key 'opst' (did you mean opset?)"),
        (ONE + '[model.target."{a"]\nopset = 17\n', "unmatched brace"),
        (ONE + "[model.target]\nqnn_npu = 3\n", "must be a table, not 3"),
        (ONE + ONE, "model 2 (a/b): a/b:fill-mask has the same id and task as model 1 (a/b)"),
        (ONE + f"opset = 0x{'f' * 20000}\n", "cannot be stored"),
        (ONE + f"task2 = {'[' * 3000}\n", "nested too deeply"),
    ],
)
def test_faults(tmp_path: Path, text: str, says: str) -> None:
    found = faults(tmp_path, text)
    assert any(says in item for item in found), found
    assert all(item.startswith("catalog.toml: ") and item.isprintable() for item in found)


def test_all_faults_of_all_models_come_together(tmp_path: Path) -> None:
    text = ONE + 'opset = 99\npriorty = "P1"\n' + '[[model]]\nid = "c d"\n' + ONE
    found = faults(tmp_path, text)
    assert len(found) == 5
    assert [item.split(":")[1].strip() for item in found] == [
        "model 1 (a/b)",
        "model 1 (a/b)",
        "model 2 (c d)",
        "model 2 (c d)",
        "model 3 (a/b)",
    ]


def test_a_fault_in_the_defaults_is_told_once(tmp_path: Path) -> None:
    models = "".join(f'[[model]]\nid = "a/{n}"\n' for n in range(50))
    found = faults(tmp_path, f'[defaults]\ntask = "t"\npriority = "P7"\nopst = 3\n{models}')
    assert len(found) == 2
    assert all(item.startswith("catalog.toml: defaults: ") for item in found)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (ONE.encode("utf-16"), "UTF-16"),
        (ONE.encode("utf-16-le"), "UTF-16"),
        (b"\xff\xfe\xfd", "UTF-16"),
        (b'id = "\xe4"', "is not UTF-8 (byte 6)"),
        (b"\x00\x01\x02", "binary"),
    ],
)
def test_files_that_are_not_utf8(tmp_path: Path, raw: bytes, says: str) -> None:
    for name in ("c.toml", "c.json"):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(PlanError) as caught:
            load_catalog(name, base=tmp_path)
        assert says in str(caught.value)


def test_a_byte_order_mark_as_windows_editors_write_it_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbf" + ONE.replace("\n", "\r\n").encode())
    assert load_catalog("c.toml", base=tmp_path).models[0].id == "a/b"


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(PlanError, match=r"dir\.toml: cannot be read"):
        load_catalog("dir.toml", base=tmp_path)
    with pytest.raises(PlanError, match=r"none\.toml: no such file"):
        load_catalog("none.toml", base=tmp_path)
    with pytest.raises(PlanError, match="cannot be read"):
        load_catalog("a\0b.toml", base=tmp_path)
    with pytest.raises(UsageError, match="did you mean winml"):
        load_catalog("wniml", base=tmp_path)
    with pytest.raises(UsageError, match=r"or give a \.toml or \.json file"):
        load_catalog("catalog.yaml", base=tmp_path)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ('onnx = "gone.onnx"', "onnx file 'gone.onnx' does not exist"),
        ('onnx = "model.bin"', "onnx 'model.bin' is not the path of a .onnx file"),
        ('folder = "."\nonnx = "gone.onnx"', "onnx file 'gone.onnx' does not exist"),
        ('folder = "."\nonnx = "../x.onnx"', "onnx '../x.onnx' leads out of its source"),
        ('hub = "a/b"\nonnx = "/etc/x.onnx"', "onnx '/etc/x.onnx' leads out of its source"),
        ('hub = "a/b"\nonnx = "C:\\\\x.onnx"', "leads out of its source"),
        ('onnx = "x.onnx"\nrandom = { architecture = "bert" }', "random and onnx exclude"),
        ('onnx = "x.onnx"\nrevision = "v1"', "revision does not go with onnx"),
        ('hub = "a/b"\nonnx = "x.onnx"\nnew_head = "why"', "new_head goes with hub or folder"),
        (
            'random = { architecture = "bert" }\nnew_head = "why"',
            "new_head goes with hub or folder",
        ),
        ('hub = "a/b"\nnew_head = ""', "new_head is empty"),
        ('hub = "a/b"\nnew_head = true', "new_head must be a string"),
    ],
)
def test_faults_of_ready_onnx_files(tmp_path: Path, keys: str, says: str) -> None:
    found = faults(tmp_path, f'[[model]]\nid = "m"\ntask = "t"\n{keys}\n')
    assert any(says in item for item in found), found


MIXED = """
[[model]]
id = "a/typo"
task = "fil-mask"
[[model]]
id = "a/good"
task = "masked-lm"
[[model]]
id = "tiny"
task = "fill-mask"
random = { architecture = "bertt" }
[[model]]
id = "other"
task = "image-classification"
random = { architecture = "bert" }
[[model]]
id = "left"
task = "whatever"
skip = "not yet"
[[model]]
id = "opset"
task = "fill-mask"
shapes = { width = 0 }
"""


def test_tasks_and_architectures_that_the_engine_does_not_know_are_faults(tmp_path: Path) -> None:
    path = write(tmp_path, MIXED)
    with pytest.raises(PlanError) as caught:
        load_catalog(path, base=tmp_path, targets=TARGETS, engine="optimum")
    problems = [
        (one.where.partition(": ")[2], one.message, one.hint) for one in caught.value.problems
    ]
    assert problems == [
        ("model 1 (a/typo)", "unknown task 'fil-mask'", "did you mean fill-mask?"),
        (
            "model 3 (tiny)",
            "the engine optimum cannot build the architecture 'bertt'",
            "did you mean bert or ibert or hubert?",
        ),
        (
            "model 4 (other)",
            "bert cannot be exported for 'image-classification'",
            "did you mean text-classification or token-classification?",
        ),
        ("model 6 (opset): shapes", "width must be between 1 and 2147483647, not 0", ""),
    ]


def test_bad_entries_are_left_out_on_request_each_with_a_notice(tmp_path: Path) -> None:
    path = write(tmp_path, MIXED)
    catalog = load_catalog(path, base=tmp_path, targets=TARGETS, engine="optimum", skip_bad=True)
    assert [model.id for model in catalog.models] == ["a/good", "left"]
    assert len(catalog.notices) == 4
    assert catalog.notices[0].startswith("left out: catalog.toml: model 1 (a/typo): unknown task")
    only_bad = write(tmp_path, ONE + 'priority = "P9"\n')
    with pytest.raises(PlanError, match="holds no model that can be built"):
        load_catalog(only_bad, base=tmp_path, targets=TARGETS, skip_bad=True)


def test_an_engine_of_which_nothing_is_known_is_believed_everything(tmp_path: Path) -> None:
    text = '[[model]]\nid = "a/b"\ntask = "fil-mask"\n'
    path = write(tmp_path, text)
    assert load_catalog(path, base=tmp_path, targets=TARGETS, engine="other").models
