"""A profile protobuf in pieces, each a small message of the same kind: some nodes of one thread's tree.

A file is one message; nearly all of it are the trees of its threads, one node after the other. Whole nodes are cut off
as they are read, so that neither a file nor a tree is ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from perfkit_core.compiling import compiled_at_once
from perfkit_core.errors import SourceError
from perfkit_core.sources.bytestream import Window
from perfkit_paddle.pb_wire import PROBLEMS, read_number

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
