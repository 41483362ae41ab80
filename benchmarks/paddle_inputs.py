"""Create large Paddle recordings for benchmarks: the events of a real recording, repeated, as JSON and as protobuf.

All copies have the same times, because only the time to read the file is measured. Each file is created once, in the
folder of ``inputs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.inputs import TRACES, folder
from perfkit_core.trace.storage.bytestream import open_bytes
from perfkit_paddle.pb_source import Pieces

_DATA: Final = Path(__file__).resolve().parent.parent / "tests" / "data"
_REAL: Final = TRACES / "paddle" / "cpu-3.3.1" / "mlp_medium"
_LAST: Final = re.compile(rb",\s*\{\}\s*$|,\s*$")
"""Paddle ends its list of events with this empty event."""


def large_json(size_mb: int) -> Path:
    """Return a JSON file of about ``size_mb``."""
    return _made(_first(_REAL / "cycle0.json.gz", _DATA / "paddle-mlp.json.gz"), size_mb, ".json")


def large_protobuf(size_mb: int) -> Path:
    """Return a protobuf file of about ``size_mb``."""
    return _made(_first(_REAL / "cycle0.pb.gz", _DATA / "paddle-mlp.pb"), size_mb, ".pb")


def _first(*files: Path) -> Path:
    return next(file for file in files if file.exists())


def _made(source: Path, size_mb: int, suffix: str) -> Path:
    out = folder() / f"paddle-{size_mb}mb{suffix}"
    if not out.exists():
        temporary = out.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.writelines(_repeated(source, size_mb * 10**6, suffix))
        temporary.replace(out)
    return out


def _repeated(source: Path, size_bytes: int, suffix: str) -> Iterator[bytes]:
    begin, events, between, end = _json_parts(source) if suffix == ".json" else _protobuf_parts(source)
    yield begin + events
    for _ in range(max(size_bytes // len(events) - 1, 0)):
        yield between + events
    yield end


def _json_parts(source: Path) -> tuple[bytes, bytes, bytes, bytes]:
    with open_bytes(source) as file:
        text = file.read()
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]", begin, text.find(b'"ExtraInfo"', begin) if b'"ExtraInfo"' in text else len(text))
    return text[:begin], _LAST.sub(b"", text[begin:end]), b",", text[end:]


def _protobuf_parts(source: Path) -> tuple[bytes, bytes, bytes, bytes]:
    pieces = Pieces(source, partial=False)
    trees = b"".join(piece.content for piece in pieces)
    pieces.close()
    return pieces.rest, trees, b"", b""
