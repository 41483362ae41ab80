"""Reader of Paddle's profile protobuf (``.pb``, also gzip): exact nanoseconds, and the tree that Paddle recorded.

A profile protobuf in pieces, each a small message of the same kind: some nodes of one thread's tree.

A file is one message; nearly all of it are the trees of its threads, one node after the other. Whole nodes are cut off
as they are read, so that neither a file nor a tree is ever held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.assembly.assemble import assemble
from perfkit_core.assembly.labels import with_labels
from perfkit_core.errors import SourceError
from perfkit_core.model.meta import Device, Finding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.readers.chrome.reader import negative_durations
from perfkit_core.runtime.compile import compiled_at_once
from perfkit_core.storage.bytestream import DAMAGED, Window, open_bytes
from perfkit_paddle import findings
from perfkit_paddle.findings import make_meta, processes
from perfkit_paddle.operator_names import operator_name
from perfkit_paddle.pb_rows import Doubtful, Rows, rows, without_steps
from perfkit_paddle.pb_table import Table
from perfkit_paddle.pb_wire import PROBLEMS, Scan, read_number, scan

PIECE_BYTES: Final = 768 << 10
_THREAD: Final = 3 << 3 | 2
"""Tag of a thread's tree in a file."""
_VARINT, _EIGHT, _TEXT, _FOUR = 0, 1, 2, 5
_FIELD_HEAD: Final = 20
"""Bytes of the longest tag with the longest length."""
HINT: Final = "the file is truncated or damaged: record it again, or read what is there with --partial"


@dataclass(frozen=True, slots=True)
class Piece:
    """``content`` is a message of its own, with some nodes of the ``thread``-th tree of the file; its byte ``i`` is
    byte ``at + i`` of the file. ``cut`` says that the file ends inside of it."""

    thread: int
    content: bytes
    at: int
    cut: bool = False


class Pieces:
    """The pieces of a file, one after the other; then ``rest`` is a message of all that stands beside the trees, and
    ``cut`` tells whether the file broke off. Raises SourceError for damage, with ``partial`` only for what is not cut
    off."""

    def __init__(self, path: Path, partial: bool) -> None:
        self.rest = b""
        self.cut = False
        self._window = Window(path)
        self._partial = partial

    def __iter__(self) -> Iterator[Piece]:
        thread = 0
        while self._has(1):
            tag, length, start = self._field()
            if not start:
                break
            if tag == _THREAD:
                self._drop(start)
                yield from self._tree(thread, length)
                thread += 1
            elif self._has(start + length):
                self.rest += self._drop(start + length)
            else:
                self._broken(PROBLEMS[2])
                self.rest += self._drop(len(self._window.data))
        if self._window.damage:
            self._broken(self._window.damage)

    def close(self) -> None:
        """Close the file."""
        self._window.close()

    def _tree(self, thread: int, length: int) -> Iterator[Piece]:
        wanted = PIECE_BYTES
        while length and self._has(1):
            self._has(min(wanted, length))
            held = self._window.data[:length]
            end = len(held) if len(held) == length else int(_whole(np.frombuffer(held, np.uint8)))
            if end == 0 and self._has(len(held) + 1):  # a node that is larger than the piece, or no node
                wanted *= 2
                continue
            cut = end == 0
            if cut and self._window.damage:
                self._broken(self._window.damage)
            content = _message(self._drop(len(held) if cut else end))
            yield Piece(thread, content, self._window.base - len(content), cut)
            length -= len(held) if cut else end
            wanted = PIECE_BYTES
        if length:
            self._broken(PROBLEMS[2])

    def _field(self) -> tuple[int, int, int]:
        """Tag, bytes of the value, and where the value begins: at 0 where there is no field."""
        self._has(_FIELD_HEAD)
        data = np.frombuffer(self._window.data[:_FIELD_HEAD], np.uint8)
        tag, start = map(int, read_number(data, 0, len(data)))
        wire = tag & 7
        if start < 0 or wire not in (_VARINT, _EIGHT, _TEXT, _FOUR) or tag >> 3 < 1:
            self._broken(PROBLEMS[1] if start < 0 else PROBLEMS[3])
            return tag, 0, 0
        value, end = map(int, read_number(data, start, len(data))) if wire in (_VARINT, _TEXT) else (0, start)
        if end < 0 or (value < 0 and wire == _TEXT):
            self._broken(PROBLEMS[1] if end < 0 else PROBLEMS[2])
            return tag, 0, 0
        return (tag, value, end) if wire == _TEXT else (tag, {_VARINT: end - start, _EIGHT: 8, _FOUR: 4}[wire], start)

    def _has(self, count: int) -> bool:
        """Whether that many bytes are left."""
        while len(self._window.data) < count and self._window.more(max(PIECE_BYTES, count - len(self._window.data))):
            pass
        return len(self._window.data) >= count

    def _drop(self, count: int) -> bytes:
        taken = self._window.data[:count]
        self._window.drop(count)
        return taken

    def _broken(self, problem: str) -> None:
        if not self._partial:
            raise self._error(problem)
        self.cut = True

    def _error(self, problem: str) -> SourceError:
        at = self._window.base
        return SourceError(f"{self._window.path}: {self._window.damage or problem} (byte {at})", HINT)


def _message(nodes: bytes) -> bytes:
    """A file with one thread of these nodes."""
    length, count = b"", len(nodes)
    while count >= 0x80:
        length += bytes([count & 0x7F | 0x80])
        count >>= 7
    return bytes([_THREAD]) + length + bytes([count]) + nodes


@compiled_at_once
def _whole(data):  # type: ignore[no-untyped-def]
    """Where the last whole field of a message ends; 0 where none is whole, or what is there is no field."""
    done = 0
    while done < len(data):
        tag, position = read_number(data, done, len(data))
        wire = tag & 7
        size = np.int64(0)
        if position >= 0 and (wire == 0 or wire == 2):
            size, position = read_number(data, position, len(data))
            size = size if wire == 2 else np.int64(0)
        elif wire == 1 or wire == 5:
            size = np.int64(8 if wire == 1 else 4)
        else:
            return done
        if position < 0 or size < 0 or size > len(data) - position:
            return done
        done = position + size
    return done


FORMAT = "paddle-pb"


@dataclass(frozen=True, slots=True)
class Live:
    """What only the recording process knows: its rank, which steps are none, further fields of TraceMeta, and what is
    to be kept in its ``extra``."""

    rank: int | None = None
    no_steps: frozenset[int] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


NOT_LIVE = Live()


def read_pb(path: Path, partial: bool = False) -> Trace:
    """The Trace of a file. Raises SourceError (file, byte, hint) for what is no such file or damaged."""
    content, broken = _content(path, partial)
    return trace_of(content, str(path), partial, broken)


def trace_of(
    content: bytes | memoryview, source: str, partial: bool = False, broken: bool = False, live: Live = NOT_LIVE
) -> Trace:
    """The Trace of a file's bytes. ``broken`` says that bytes are missing. Raises SourceError as :func:`read_pb`."""
    scanned, found = read_rows(content, source, partial)
    return finish(scanned.tables, found, source, broken or bool(scanned.problem), live)


def read_rows(content: bytes | memoryview, source: str, partial: bool = False) -> tuple[Scan, Rows]:
    """What the bytes hold, not yet assembled. Raises SourceError as :func:`read_pb`."""
    if not content:
        raise SourceError(f"{source}: the file is empty", "was the profiler stopped before it was read?")
    scanned = scan(content, clip=partial)
    if scanned.problem and not partial:
        raise SourceError(f"{source}: {scanned.problem} (byte {scanned.at} of {len(content)})", HINT)
    found = rows(scanned.tables)
    if found.doubtful.incomplete and not partial:
        text = f"{source}: {found.doubtful.incomplete} events lack required fields (in {len(content)} bytes)"
        raise SourceError(text, HINT)
    return scanned, found


def finish(tables: dict[str, Table], found: Rows, source: str, cut: bool = False, live: Live = NOT_LIVE) -> Trace:
    """The Trace of tables, from a file or a live tree."""
    recorded = without_steps(found.recorded, live.no_steps)
    meta = described(tables, processes(recorded.columns), source, cut, live)
    quality = (*doubts(found.doubtful, cut), *findings.devices(recorded.columns, meta.devices))
    return assemble(with_labels(recorded), meta, quality, live.rank, operator_name)


def described(
    tables: dict[str, Table], of_thread: Mapping[int, int], source: str, cut: bool, live: Live = NOT_LIVE
) -> TraceMeta:
    """What a file tells beside its events; ``of_thread``: the process of each thread."""
    return make_meta(of_thread, _extra_info(tables["extra"]), live.rank, devices=_devices(tables["property"]),
                     source=source, format=FORMAT, incomplete=cut, extra={**_header(tables["file"]), **live.extra},
                     **live.facts)  # fmt: skip


def _content(path: Path, partial: bool) -> tuple[bytes, bool]:
    """All bytes of a file, and whether its compressed data broke off (with ``partial`` only)."""
    pieces: list[bytes] = []
    try:
        with open_bytes(path) as file:
            while piece := file.read(1 << 20):
                pieces.append(piece)
    except DAMAGED as error:
        if not partial or not pieces:
            where = sum(map(len, pieces))
            raise SourceError(f"{path}: damaged or truncated data after byte {where} ({error})", HINT) from None
        return b"".join(pieces), True
    return b"".join(pieces), False


def doubts(found: Doubtful, cut: bool) -> tuple[Finding, ...]:
    """What the events have to confess; ``cut``: whether the file broke off."""
    quality = []
    if cut:
        quality.append(findings.truncated())
    if found.incomplete:
        quality.append(findings.skipped(found.incomplete))
    if found.reversed:
        quality.append(negative_durations(found.reversed))
    if found.unknown:
        quality.append(findings.unknown_types({f"EventType{n}": count for n, count in found.unknown.items()}))
    return tuple(quality)


def _header(file: Table) -> dict[str, Any]:
    version = file.texts("version")[0].as_py()
    index = int(file["span_index"][0]) if file.known("span_index")[0] else None
    return {key: value for key, value in (("schema_version", version), ("span_index", index)) if value is not None}


def _extra_info(table: Table) -> dict[str, str]:
    pairs = zip(table.texts("key").to_pylist(), table.texts("value").to_pylist(), strict=True)
    return {key: value for key, value in pairs if key is not None and value is not None}


def _devices(table: Table) -> tuple[Device, ...]:
    names = table.texts("name").to_pylist()
    columns = [c for c in table.columns if c not in ("owner", "name", "name.length")]
    return tuple(
        findings.device({c: int(table[c][i]) for c in columns if table.known(c)[i]}, name)
        for i, name in enumerate(names)
    )
