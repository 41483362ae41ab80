"""Random changes of text and bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

PIECES: Final = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0041", b"\\ud800", b"\n", b"\t", b" ", b"\x00", b"\x1b",
    b"\xff", b"\xc3\xa9", b"0", b"-0", b"-", b"1e5", b"1E-7", b"0.1", b"0.10", b"9" * 19, b"9" * 25, b"1." + b"3" * 30,
    b".5", b"5.", b"true", b"null", b"nul", b"NaN", b"Infinity", b'""', b"{}", b"[]", b'"ts": 1.5,', b'"dur": -3,',
    b'"ts": null,', b'"name": "a[1.5 us]",', b'"name": 7,', b'"args": {},',
    b'"args": {"stream": 7, "device": 0, "correlation": 9},',
    b'"args": {"Input Dims": [[1, 2], []], "Sequence number": 18446744073709551616},', b'"pid": "x",', b'"tid": 1.5,',
    b'"ph": "X",', b'"ph": "M",', b'"ph": "s",', b'"cat": "kernel",', b"//", b"'", b"\xef\xbb\xbf",
    b"9223372036854775807", b"-9223372036854775808", b"\xed\xa0\x80", "你".encode(), b'"dur": 1.5', b'"ts": 1.23456789',
    b"}, {", b"{},", b'"stream": 7,', b'"name": "x"', b"3.14159265358979312", b"0.30000000000000004", b"-0.0", b"1.10",
    b'[1, {"a": 2}]', b'{"a":1,"a":2}', b'"cat": "Trace",', b"\x7f", b"5.0", b"0.0005", b"0.00005", b'"args": 5,',
    b'"tid": "stream 7",', b"1e400", b"100000000000000000000.0",
)  # fmt: skip


def mutated(body: bytes, chance: random.Random, pieces: Sequence[bytes] = PIECES) -> bytes:
    """Return the bytes with a few random insertions, deletions, repetitions and changes, sometimes truncated."""
    text = bytearray(body)
    for _ in range(chance.choice([0, 1, 1, 2, 3, 6])):
        at, kind = chance.randrange(len(text) + 1), chance.randrange(6)
        if kind == 0:
            text[at:at] = chance.choice(pieces)
        elif kind == 1:
            del text[at : at + chance.randrange(1, 30)]
        elif kind == 2 and at < len(text):
            text[at] = chance.randrange(256)
        elif kind == 3:
            copied = chance.randrange(len(text) + 1)
            text[at:at] = text[copied : copied + chance.randrange(1, 400)]
        elif kind == 4 and at < len(text):
            text[at] ^= 1 << chance.randrange(8)
        else:
            text[at : at + chance.randrange(4)] = chance.choice(pieces)
    if chance.random() < 0.1:
        del text[chance.randrange(len(text) + 1) :]
    return bytes(text)
