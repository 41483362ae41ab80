"""Create large traces for benchmarks: the events of a real trace, repeated one after the other in time.

``python benchmarks/inputs.py TRACE OUT SIZE_MB`` writes a Chrome trace of about SIZE_MB, like one long recording. All
ids and numbers differ between the copies: times, correlation ids, flow ids, sequence numbers and step numbers. Each
input is created once, in $PERFKIT_BENCH_DIR or, if that is not set, in the folder for temporary files.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from perfkit_core.trace.storage.bytestream import open_bytes

_NUMBER = re.compile(
    rb'"(ts)":\s*(\d+)|"(correlation|External id|external id|id)":\s*(\d+)'
    rb'|"(Sequence number|Ev Idx|Python id|Python parent id)":\s*(\d+)|(ProfilerStep#)(\d+)'
)
_ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("PERFKIT_TRACES", _ROOT.parent / "shared" / "traces"))
REAL, SMALL = TRACES / "torch" / "v100-ns-resolution.json.gz", _ROOT / "tests" / "data" / "torch-mlp.json.gz"
"""The repeated traces. REAL is a training on a V100. If it is missing, SMALL is used: a small model on a CPU."""
MEGABYTE = TRACES / "torch" / "h100-bert-small.json.gz"
"""A real trace of 1 MB."""

_TIME, _LINK, _INDEX, _STEP = range(4)


class _File(msgspec.Struct):
    traceEvents: msgspec.Raw  # noqa: N815 - the name in the file


class Template:
    """A trace whose text is split at the numbers that differ between copies. ``numbers[i]`` follows ``texts[i]``. Its
    kind, such as time or step, is ``kinds[i]``. One more text ends the events."""

    def __init__(self, data: bytes) -> None:
        events = msgspec.json.decode(data, type=_File).traceEvents
        begin = data.index(bytes(events)) + 1
        end = data.rindex(b"}", begin, begin + len(bytes(events)) - 1) + 1
        self.head, self.tail = data[:begin], data[end:]
        self.texts: list[bytes] = []
        self.numbers: list[int] = []
        self.kinds: list[int] = []
        at = begin
        for match in _NUMBER.finditer(data, begin, end):
            kind = next(i for i in range(4) if match[2 * i + 2])
            self.texts.append(data[at : match.start(2 * kind + 2)])
            self.numbers.append(int(match[2 * kind + 2]))
            self.kinds.append(kind)
            at = match.end(2 * kind + 2)
        self.texts.append(data[at:end])
        self.period = [self._period(kind) for kind in range(4)]

    def _period(self, kind: int) -> int:
        values = [number for number, of in zip(self.numbers, self.kinds, strict=True) if of == kind and number > 0]
        if not values:
            return 0
        return (max(values) - min(values) if kind == _TIME else max(values)) + 1

    def copy(self, index: int) -> bytes:
        """Return the text of the events of copy number ``index``."""
        shift = [index * period for period in self.period]
        pieces: list[bytes] = []
        for text, number, kind in zip(self.texts, self.numbers, self.kinds, strict=False):
            pieces += (text, b"%d" % (number + shift[kind] if number > 0 else number))
        return b"".join((*pieces, self.texts[-1]))


def replicated(source: Path, size_bytes: int) -> Iterator[bytes]:
    """Yield the text of a trace of about ``size_bytes`` in pieces."""
    with open_bytes(source) as file:
        template = Template(file.read())
    yield template.head
    written, index = 0, 0
    while written < size_bytes:
        piece = template.copy(index)
        yield b",\n" + piece if index else piece
        written, index = written + len(piece), index + 1
    yield template.tail


def make(source: Path, out: Path, size_mb: int) -> Path:
    """Write the input unless it exists."""
    if not out.exists():
        temporary = out.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.writelines(replicated(source, size_mb * 10**6))
        temporary.replace(out)
    return out


def folder() -> Path:
    """Return the folder for inputs and results of benchmarks. Create it if it does not exist."""
    chosen = os.environ.get("PERFKIT_BENCH_DIR")
    found = Path(chosen) if chosen else Path(tempfile.gettempdir()) / "perfkit-bench"
    found.mkdir(parents=True, exist_ok=True)
    return found


def large(size_mb: int) -> Path:
    """Return a trace of about ``size_mb``. Create it from a real trace if it does not exist."""
    return _made(REAL if REAL.exists() else SMALL, size_mb)


def megabyte() -> Path:
    """Return a trace of about 1 MB."""
    return _made(MEGABYTE if MEGABYTE.exists() else SMALL, 1)


def _made(source: Path, size_mb: int) -> Path:
    name = source.name.removesuffix(".json.gz")
    return make(source, folder() / f"{name}-{size_mb}mb.json", size_mb)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
