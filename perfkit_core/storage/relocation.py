"""How does the footer of a Parquet file read when its row groups stand elsewhere, behind those of another file?

Footers are written in Thrift's compact protocol, by the definitions of Apache Parquet (parquet.thrift): numbers of
variable length and no lengths of whole structures, so that numbers can be replaced where they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_Path = tuple[int, ...]

_GROUP: Final = (4,)
"""Where a footer holds its row groups: field 4 of FileMetaData. Elements of a list add nothing to a path."""
_CHUNK: Final = (*_GROUP, 1)
_ORDINAL: Final = (*_GROUP, 7)
_OFFSETS: Final = frozenset({(*_GROUP, 5), (*_CHUNK, 2), (*_CHUNK, 3, 9), (*_CHUNK, 3, 10), (*_CHUNK, 3, 11)})
"""Positions in the file: of a row group; of a column chunk, its data, index and dictionary page."""
_ELSEWHERE: Final = frozenset({(*_CHUNK, 3, 14), (*_CHUNK, 4), (*_CHUNK, 6)})
"""Positions of bloom filters and page indexes, which stand behind all row groups, and hold positions themselves."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = frozenset({4, 5, 6})


def relocated(footer: bytes, by: int, ordinal: int) -> bytes:
    """The footer (FileMetaData) of a file of one row group that stands ``by`` bytes further on, as number ``ordinal``.

    Positions of 0 mean that there is none. Raises ValueError where the bytes are no footer, and for a file with a page
    index or a bloom filter.
    """
    pieces: list[bytes] = []
    copied = 0
    try:
        for path, begin, end, value in _Reader(footer).integers():
            if path in _ELSEWHERE:
                raise ValueError("a Parquet file with a page index or a bloom filter")
            if path in _OFFSETS and value:
                pieces += footer[copied:begin], _zigzag(value + by)
                copied = end
            elif path == _ORDINAL:
                pieces += footer[copied:begin], _zigzag(ordinal)
                copied = end
    except IndexError:
        raise ValueError("a Parquet footer that ends too early") from None
    return b"".join((*pieces, footer[copied:]))


class _Reader:
    """Goes through a structure of Thrift's compact protocol once."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def integers(self) -> Iterator[tuple[_Path, int, int, int]]:
        """Each integer: the numbers of the fields that lead to it, where it begins and ends, its value."""
        yield from self._struct(())

    def _struct(self, path: _Path) -> Iterator[tuple[_Path, int, int, int]]:
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self._integer()
            yield from self._value(header & 15, (*path, field))

    def _value(self, kind: int, path: _Path) -> Iterator[tuple[_Path, int, int, int]]:
        if kind in _INTEGERS:
            begin = self._at
            value = self._integer()
            yield path, begin, self._at, value
        elif kind == _STRUCT:
            yield from self._struct(path)
        elif kind in (_LIST, _SET):
            yield from self._elements(path)
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind in (_BYTE, _DOUBLE):
            self._at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):  # whose value is the kind; no footer has maps
            raise ValueError(f"a Parquet footer with a field of the unknown type {kind}")

    def _elements(self, path: _Path) -> Iterator[tuple[_Path, int, int, int]]:
        header = self._byte()
        kind = header & 15
        count = self._varint() if header >> 4 == 15 else header >> 4
        if kind in (_TRUE, _FALSE):  # in a list each takes a byte
            self._at += count
            return
        for _ in range(count):
            yield from self._value(kind, path)

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def _zigzag(value: int) -> bytes:
    """An integer as it is written."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    found.append(rest)
    return bytes(found)
