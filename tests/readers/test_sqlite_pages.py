"""Tests that integers read from the pages of an SQLite file are those that SQLite reads."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perfkit_core.readers.sqlite_file import Database, SqliteFormat, opened

ANY = SqliteFormat(lambda tables: True, "", "", "")
NAMES = ("a", "b", "c")
VALUES = (None, 0, 1, -1, 127, -128, 40_000, -(2**23), 2**31, -(2**47), 2**62, -(2**63), 2**63 - 1, "17", "0",
          "1736408883688177930")  # fmt: skip
UNUSUAL = {
    "a real number": 1.5, "a text that is no number": "7x", "a negative text": "-7", "a large text": "9" * 19,
    "bytes": b"12", "a row with more than a page": "1" * 5000,
}  # fmt: skip


def written(path: Path, table: str, rows: list[tuple[object, ...]], *more: str, page_bytes: int = 4096) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute(f"CREATE TABLE t ({table})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
        for statement in more:
            connection.execute(statement)
        connection.commit()
    return path


def both(path: Path, names: tuple[str, ...] = NAMES) -> tuple[bool, bool]:
    """Return whether the pages were read, and whether all integers are equal to those of SQLite."""
    with opened(path, False, ANY) as database:
        columns = database.integers("t", {name: name for name in names})
        paged = database._from_pages("t", list(names)) is not None
        cells = ", ".join(f"IFNULL(CAST({name} AS INTEGER), -1)" for name in names)
        expected = [*database.rows("t", cells)]
    return paged, [*zip(*(values.tolist() for values in columns.values()), strict=True)] == expected


def rows(count: int, seed: int = 0) -> list[tuple[object, ...]]:
    chance = random.Random(seed)
    return [tuple(chance.choice(VALUES) for _ in NAMES) for _ in range(count)]


@pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
@pytest.mark.parametrize("count", [1, 30, 20_000])
def test_all_rows_of_a_table(tmp_path: Path, page_bytes: int, count: int) -> None:
    path = written(tmp_path / "t.db", "a, b, c INTEGER", rows(count), page_bytes=page_bytes)
    assert both(path) == (True, True)
    assert both(path, ("c", "a")) == (True, True)


def test_tables_that_were_changed(tmp_path: Path) -> None:
    """Keys are the ids of rows. Rows were deleted, and a column was added after some of them."""
    keyed = [(number * 7, *row[1:]) for number, row in enumerate(rows(3000))]
    path = written(tmp_path / "a.db", "a INTEGER PRIMARY KEY, b, c", keyed, "DELETE FROM t WHERE a % 3 = 0")
    assert both(path) == (True, True)
    path = written(tmp_path / "b.db", "a, b, c", rows(50), "ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 9")
    assert both(path, (*NAMES, "d")) == (False, True)
    assert both(path) == (True, True)
    path = written(tmp_path / "c.db", "a, b, c", rows(50), "DELETE FROM t")
    assert both(path) == (True, True)


@pytest.mark.parametrize("value", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_values_are_left_to_sqlite(tmp_path: Path, value: object) -> None:
    path = written(tmp_path / "t.db", "a, b, c", [*rows(50), (1, value, 2)])
    assert both(path) == (False, True)


@pytest.mark.parametrize(
    "table",
    ["a PRIMARY KEY, b, c) WITHOUT ROWID --", "a, b, c, d GENERATED ALWAYS AS (a) STORED"],
    ids=["no row ids", "a generated column"],
)
def test_unusual_tables_are_left_to_sqlite(tmp_path: Path, table: str) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t ({table}\n)" if "--" not in table else f"CREATE TABLE t ({table}")
        connection.executemany("INSERT INTO t (a, b, c) VALUES (?, ?, ?)", [(n, 2 * n, -n) for n in range(1, 99)])
        connection.commit()
    assert both(path) == (False, True)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_pages_never_stop_perfkit(tmp_path: Path, seed: int) -> None:
    """What is read of a damaged table is what SQLite reads, or its error."""
    path = written(tmp_path / "t.db", "a INTEGER PRIMARY KEY, b, c", [(n, *r[1:]) for n, r in enumerate(rows(4000))])
    content, chance = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(8):
        page = 4096 * chance.randrange(1, len(content) // 4096)
        content[page + chance.choice((0, 3, 4, 8, 9, 10, 11, 12, 13, chance.randrange(4096)))] = chance.randrange(256)
    path.write_bytes(content)

    def read(use_pages: bool) -> object:
        with opened(path, True, ANY) as database:
            if not use_pages:
                database._layouts.clear()
            columns = database.integers("t", {name: name for name in NAMES})
            return [values.tolist() for values in columns.values()], [*database.damaged]

    assert read(True) == read(False)


def test_a_large_file_is_left_to_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit_core.readers.sqlite_file._MOST_BYTES", 4096)
    assert both(written(tmp_path / "t.db", "a, b, c", rows(50))) == (False, True)
    assert Database._content is not None
