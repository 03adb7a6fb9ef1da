from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError

from matrix.errors import Exit
from state import state as opened
from state.database import Database
from state.errors import StateError
from state.file import _uri
from state.reading import read_state
from state.records import Kind
from state.state import open_state
from tests.states.samples import begin, rows, sql


def refused(path: Path | str, match: str) -> StateError:
    """Opening fails clearly, and the file is as it was before."""
    before = path.read_bytes() if isinstance(path, Path) and path.is_file() else None
    with pytest.raises(StateError, match=match) as caught:
        open_state(path)
    assert caught.value.exit_code is Exit.UNUSABLE
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    if isinstance(path, Path) and before is not None:
        assert path.read_bytes() == before
    return caught.value


def test_a_new_file_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / f"ümlaut %41{'' if os.name == 'nt' else '?'}mode=ro.db"
    with open_state(path) as state:
        begin(state)
        assert state.label == str(path)
    with open_state(str(path)) as state:
        assert state.find_sweep() is not None
        with state.database.raw() as raw:
            assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert raw.execute("PRAGMA foreign_keys").fetchone() == (1,)
            assert raw.execute("PRAGMA synchronous").fetchone() == (1,)


def test_an_empty_file_becomes_a_state(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    with open_state(path) as state:
        assert state.sweeps() == []


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_state(path) as state:
        sql(state, "UPDATE modelmill_schema SET version_num = '9999'")
    error = refused(path, "does not know")
    assert "upgrade" in error.hint


@pytest.mark.parametrize("content", [b"x", b"not a database" * 1000, b"SQLite format 3\0" * 500])
def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    refused(path, "not a state file of modelmill|cannot be used")


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipes (id)")
    refused(path, "another program.*recipes")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_state(path) as state:
        begin(state, rows(400))
    content = bytearray(path.read_bytes())
    pages = len(content) // 4096
    for page in range(pages * 2 // 3, pages, 2):  # far behind what opening itself reads
        content[page * 4096 : page * 4096 + 2048] = b"\xde\xad" * 1024
    path.write_bytes(content)
    refused(path, "damaged")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_state(path) as state:
        begin(state, rows(200))
    path.write_bytes(path.read_bytes()[: 4096 * 5])
    refused(path, "damaged|malformed")


def test_names_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_state(path) as state:
        begin(state)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'x' WHERE rowid=1")
        raw.commit()
    refused(path, "malformed")
    with pytest.raises(StateError, match="malformed"):
        read_state(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be opened")
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "state.db", "cannot be created")


def test_a_file_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    database = Database(URL.create("sqlite", database=str(tmp_path)))
    with pytest.raises(StateError, match="unable to open"), database.raw():
        raise AssertionError("it is a folder")


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/srv/a b?.db", "file:///srv/a%20b%3F.db"),
        ("C:/a#b.db", "file:///C:/a%23b.db"),
        ("//server/share/a.db", "file:////server/share/a.db"),
        ("//?/C:/a.db", "file:////%3F/C:/a.db"),
    ],
)
def test_every_spelling_of_a_path_has_an_address_for_sqlite(path: str, uri: str) -> None:
    assert _uri(path) == uri


@pytest.mark.parametrize("url", ["mysql://user:secret@host/db", "https://host/db"])
def test_other_databases_are_refused(url: str) -> None:
    assert "secret" not in str(refused(url, "cannot hold the state"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cr3t@localhost:port/x",
        "postgresql+psycopg://me:s3cr3t@[::1/x",
    ],
)
def test_the_error_about_a_bad_url_hides_its_password(url: str) -> None:
    with pytest.raises(StateError) as caught:
        open_state(url)
    assert "s3cr3t" not in str(caught.value)


def test_errors_of_the_server_hide_the_password() -> None:
    url = opened._url("postgres://me:s3cr3t@db.example/mill?password=s3cr3t")
    database = Database(url)
    error = OperationalError("x", {}, Exception("cannot log in as me with s3cr3t\nand more"))
    said = str(database.in_our_words(error))
    assert "s3cr3t" not in said
    assert "s3cr3t" not in database.label
    assert "db.example/mill" in database.label
    assert "and more" not in said
    database.close()


def test_many_threads_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    start = threading.Barrier(6)

    def run() -> int:
        start.wait()
        with open_state(path) as state:
            return begin(state).id

    with ThreadPoolExecutor(6) as pool:
        ids = [pool.submit(run) for _ in range(6)]
    assert {one.result() for one in ids} == {1}


def test_a_writer_locks_out_others_from_its_first_statement(tmp_path: Path) -> None:
    """Reading first and locking later would fail as soon as two processes do it."""
    path = tmp_path / "state.db"
    with open_state(path) as state, closing(sqlite3.connect(path, timeout=0)) as other:
        with state.database.write(), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        with state.database.read():
            other.execute("BEGIN IMMEDIATE")


def test_an_interrupted_transaction_changes_nothing(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db") as state:
        sweep = begin(state)
        before = list(state.events(sweep.id))

        def interrupted() -> None:
            with state.database.write() as connection:
                connection.exec_driver_sql("DELETE FROM event")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert list(state.events(sweep.id)) == before
        state.note(sweep.id, Kind.NOTICE)


def test_a_full_disk_is_reported_as_full(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db") as state:
        sweep = begin(state)
        with state.database.raw() as raw:
            pages = raw.execute("PRAGMA page_count").fetchone()[0]
            raw.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StateError, match="full"):
            begin(state, rows(500))
        assert len(state.statuses(sweep.id)) == 4, "what was there is there"
