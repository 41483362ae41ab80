"""Tests that compressed files are read like plain files, up to a damaged place."""

from __future__ import annotations

import contextlib
import gzip
import random
from pathlib import Path

import pytest

from perfkit_core.trace.storage.bytestream import DAMAGED, head, open_bytes

CONTENT = random.Random(0).randbytes(300_000) + b"text " * 400_000


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("size", [1, 4096, 1 << 20, 1 << 30])
def test_any_read_size_gives_the_content_in_full_reads(tmp_path: Path, level: int, size: int) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(CONTENT[: size * 40], level))
    with open_bytes(path) as file:
        pieces = list(iter(lambda: file.read(size), b""))
    assert b"".join(pieces) == CONTENT[: size * 40]
    assert {len(piece) for piece in pieces[:-1]} <= {size}


def test_members_one_after_the_other_and_padding_are_one_content(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two") + bytes(512))
    with open_bytes(path) as file:
        assert file.read() == b"one two"
        assert file.read() == file.read(5) == b""


def test_plain_files_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert head(path, 1 << 30) == CONTENT
    assert head(path) == CONTENT[:4096]


@pytest.mark.parametrize("damage", ["cut", "checksum", "zeros", "garbage behind"])
def test_all_data_before_damage_is_returned_before_the_error(tmp_path: Path, damage: str) -> None:
    data = gzip.compress(CONTENT)
    changed = {
        "cut": data[: len(data) // 2],
        "checksum": data[:-8] + bytes(4) + data[-4:],
        "zeros": data[:200_000] + bytes(50_000) + data[250_000:],
        "garbage behind": data + b"not gzip",
    }[damage]
    path = tmp_path / "file.gz"
    path.write_bytes(changed)
    read = b""
    with open_bytes(path) as file, contextlib.suppress(*DAMAGED):
        while True:
            read += file.read(1000) or pytest.fail("the damage went unnoticed")
    assert len(read) >= 140_000
    assert read[:140_000] == CONTENT[:140_000]
    with open_bytes(path) as file, pytest.raises(DAMAGED):
        file.read()
    assert head(path) == CONTENT[:4096]
