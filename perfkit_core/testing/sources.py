"""Does a reader know its own files, leave others alone, and fail in words when a file is damaged?"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perfkit_core.errors import SourceError
from perfkit_core.loading import read_with
from perfkit_core.plugins.contracts import Source
from perfkit_core.sources.bytestream import GZIP_MAGIC, head
from perfkit_core.testing.require import require
from perfkit_core.trace import Finding, Trace

FOREIGN: Final = {
    "empty": b"",
    "text": b"epoch,loss\n0,0.5\n",
    "json": b'{"cells": [], "nbformat": 4}',
    "list": b"[1, 2, 3]",
    "html": b"<!DOCTYPE html><title>report</title>",
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "zip": b"PK\x03\x04\x14\x00\x00\x00",
    "elf": b"\x7fELF\x02\x01\x01\x00",
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00",
}
"""Beginnings of files that no profiler wrote."""


def check_source(source: Source, path: Path) -> None:
    """``path`` is a sound file of the format. Raises AssertionError."""
    require(bool(source.name and source.description), "a source needs a name and a description")
    require(source.sniff(path, head(path)) >= 1, f"{source.name} does not recognise {path.name}")
    sound = frozenset(read_with(source, path).quality)
    for name, start in FOREIGN.items():
        require(
            source.sniff(Path(f"foreign-{name}"), start) == 0,
            f"{source.name} takes a foreign file ({name}) for its own",
        )
    with tempfile.TemporaryDirectory() as folder:
        for name, data in _damaged(path):
            _check_damaged(source, Path(folder) / f"{name}-{path.name}", data, sound)


def _damaged(path: Path) -> Iterator[tuple[str, bytes]]:
    data = path.read_bytes()
    yield "empty", b""
    yield "garbage", bytes(range(255, -1, -1)) * 8
    yield "json", b'{"cells": [], "nbformat": 4}'
    yield "half", data[: len(data) // 2]
    yield "overwritten", data[: len(data) // 3] + b"\x00" * 4096 + data[len(data) // 3 + 4096 :]
    if data.startswith(GZIP_MAGIC):
        inside = gzip.decompress(data)
        yield "half-inside", gzip.compress(inside[: len(inside) // 2], 1)


def _check_damaged(source: Source, path: Path, data: bytes, sound: frozenset[Finding]) -> None:
    path.write_bytes(data)
    try:
        read_with(source, path)
    except SourceError as error:
        require(str(path) in str(error), f"the message does not name the file: {error}")
        require("\n" not in str(error), f"the message has more than one line: {error!r}")
    else:
        raise AssertionError(f"{source.name} reads a damaged file ({path.name}) without a word")
    try:
        partial = read_with(source, path, True)
    except SourceError:
        return
    require(isinstance(partial, Trace), "partial reading returns a Trace")
    require(not sound.issuperset(partial.quality), f"what is missing in {path.name} is not a finding")
