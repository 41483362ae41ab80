"""Reader of Paddle's profile protobuf (``.pb``, or compressed with gzip), which has exact times and parents.

A file is one message. Most of it is the threads' trees, written node after node. A file can be read into memory or
streamed; both give the same Trace. Streaming reads a group of complete nodes at a time, so that memory never holds an
entire tree. :func:`complete` sorts the streamed events when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.runtime.compiled import compiled
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import EventWriter
from perfkit_core.readers.chrome.reader import negative_durations, without_start
from perfkit_core.trace.assembly import draft, labels
from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.model import account
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.model.schema import CPU, MEMORY
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import DAMAGED, Window, open_bytes
from perfkit_paddle import findings, operator_names, pb_table
from perfkit_paddle.pb_rows import Doubtful, Rows, of_piece, rows, without_steps
from perfkit_paddle.pb_wire import PROBLEMS, Scan, read_number, scan, varint

FORMAT: Final = "paddle-pb"
HINT: Final = "the file is truncated or damaged: record it again, or read the intact part with --partial"
PIECE_BYTES: Final = 768 << 10
_THREAD: Final = 3 << 3 | 2
"""Protobuf tag of the field with the tree of a thread."""
_VARINT, _EIGHT, _TEXT, _FOUR = 0, 1, 2, 5
_FIELD_HEAD: Final = 20
"""Maximum number of bytes of a field's tag and length."""
_HOST, _CALL, _WORK, _BYTES = range(4)
_INPUTS: Final = ("shapes", "stack", "args")


@dataclass(frozen=True, slots=True)
class Live:
    """Facts that the recording process knows and the protobuf lacks.

    - ``no_steps``: step numbers of the steps that are not complete iterations.
    - ``facts``: fields of TraceMeta.
    - ``extra``: entries of ``TraceMeta.extra``.
    """

    rank: int | None = None
    no_steps: frozenset[int] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


NOT_LIVE: Final = Live()


def read_pb(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a file. Raises SourceError if the file is damaged or has another format."""
    pieces: list[bytes] = []
    broken = False
    try:
        with open_bytes(path) as file:
            while piece := file.read(1 << 20):
                pieces.append(piece)
    except DAMAGED as error:  # the compressed data is truncated
        if not partial or not pieces:
            count = sum(map(len, pieces))
            raise SourceError(f"{path}: damaged or truncated data after byte {count} ({error})", HINT) from None
        broken = True
    return trace_of(b"".join(pieces), str(path), partial, broken)


def trace_of(
    content: bytes | memoryview, source: str, partial: bool = False, broken: bool = False, live: Live = NOT_LIVE
) -> Trace:
    """Return the Trace of a file's content. ``broken``: the end of the file is missing. Raises SourceError."""
    scanned, events = read_rows(content, source, partial)
    return finish(scanned.tables, events, source, broken or bool(scanned.problem), live)


def read_rows(content: bytes | memoryview, source: str, partial: bool = False) -> tuple[Scan, Rows]:
    """Return the tables and the recorded events of a file's content. Raises SourceError as :func:`read_pb` does."""
    if not content:
        raise SourceError(f"{source}: the file is empty", "stop the profiler before the file is read")
    scanned = scan(content, clip=partial)
    if scanned.problem and not partial:
        raise SourceError(f"{source}: {scanned.problem} (byte {scanned.at} of {len(content)})", HINT)
    events = rows(scanned.tables)
    if events.doubtful.incomplete and not partial:
        text = f"{source}: {events.doubtful.incomplete} events lack required fields (in {len(content)} bytes)"
        raise SourceError(text, HINT)
    return scanned, events


def finish(
    tables: dict[str, pb_table.Table], events: Rows, source: str, cut: bool = False, live: Live = NOT_LIVE
) -> Trace:
    recorded = without_steps(events.recorded, live.no_steps)
    meta = _described(tables, events.doubtful, findings.processes(recorded.columns), source, cut, live)
    quality = (
        *_doubts(events.doubtful, recorded.columns.num_rows, cut),
        *findings.devices(recorded.columns, meta.devices),
    )
    recorded = labels.with_labels(recorded).with_account(_account(events.doubtful))
    return assemble(recorded, meta, quality, live.rank, operator_names.operator_name)


def _described(
    tables: dict[str, pb_table.Table],
    doubtful: Doubtful,
    processes: Mapping[int, int],
    source: str,
    cut: bool,
    live: Live = NOT_LIVE,
) -> TraceMeta:
    texts = zip(tables["extra"].texts("key").to_pylist(), tables["extra"].texts("value").to_pylist(), strict=True)
    extra_info = {key: value for key, value in texts if key is not None and value is not None}
    properties = tables["property"]
    columns = [name for name in properties.columns if name not in ("owner", "name", "name.length")]
    devices = tuple(
        findings.device({c: int(properties[c][i]) for c in columns if properties.present(c)[i]}, name)
        for i, name in enumerate(properties.texts("name").to_pylist())
    )
    file = tables["file"]
    header: dict[str, Any] = {"schema_version": file.texts("version")[0].as_py()}
    header["span_index"] = int(file["span_index"][0]) if file.present("span_index")[0] else None
    return findings.make_meta(
        processes,
        extra_info,
        live.rank,
        devices=devices,
        source=source,
        format=FORMAT,
        incomplete=cut,
        extra={**{key: value for key, value in header.items() if value is not None}, **live.extra},
        **live.facts,
    )


def _doubts(doubtful: Doubtful, rows: int, cut: bool) -> tuple[Finding, ...]:
    quality = []
    if cut:
        quality.append(findings.truncated())
    if doubtful.incomplete:
        quality.append(findings.skipped(doubtful.incomplete))
    if doubtful.reversed:
        quality.append(negative_durations(doubtful.reversed))
    if doubtful.untimed:
        quality.append(without_start(doubtful.untimed, rows + doubtful.untimed))
    return tuple(quality)


def _account(doubtful: Doubtful) -> tuple[ReadEvents, ...]:
    counts = {
        account.METADATA: doubtful.roots, account.LINK: doubtful.supplements, "without_fields": doubtful.incomplete,
        "without_start": doubtful.untimed,
    }  # fmt: skip
    return tuple(ReadEvents(became, count) for became, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some nodes of a tree, as a complete protobuf message.

    - ``thread``: index of the tree.
    - ``at``: byte ``i`` of ``content`` is byte ``at + i`` of the file.
    - ``cut``: whether the file ends within these nodes.
    """

    thread: int
    content: bytes
    at: int
    cut: bool = False


class Pieces:
    """Iterator over the :class:`Piece` objects of a file, which together contain the trees of all threads. A truncated
    file raises SourceError, unless ``partial`` is set. After the iteration, ``rest`` contains the other fields of the
    file as a protobuf message, and ``cut`` says whether the file is truncated."""

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
        self._window.close()

    def _tree(self, thread: int, length: int) -> Iterator[Piece]:
        chunk_bytes = PIECE_BYTES
        while length and self._has(1):
            self._has(min(chunk_bytes, length))
            data = self._window.data[:length]
            end = len(data) if len(data) == length else _complete_end(np.frombuffer(data, np.uint8))
            if end == 0 and self._has(len(data) + 1):  # the next node does not fit in the bytes read
                chunk_bytes *= 2
                continue
            cut = end == 0
            if cut and self._window.damage:
                self._broken(self._window.damage)
            nodes = self._drop(len(data) if cut else end)
            content = varint(_THREAD) + varint(len(nodes)) + nodes
            yield Piece(thread, content, self._window.base - len(content), cut)
            length -= len(data) if cut else end
            chunk_bytes = PIECE_BYTES
        if length:
            self._broken(PROBLEMS[2])

    def _field(self) -> tuple[int, int, int]:
        """Return the tag of the next field, the size of its value in bytes, and the start of the value. The start is 0
        if the next bytes are not a field."""
        self._has(_FIELD_HEAD)
        data = np.frombuffer(self._window.data[:_FIELD_HEAD], np.uint8)
        tag, start = read_number(data, 0, len(data))
        wire = tag & 7
        if start < 0 or wire not in (_VARINT, _EIGHT, _TEXT, _FOUR) or tag >> 3 < 1:
            self._broken(PROBLEMS[1] if start < 0 else PROBLEMS[3])
            return tag, 0, 0
        value, end = read_number(data, start, len(data)) if wire in (_VARINT, _TEXT) else (0, start)
        if end < 0 or (value < 0 and wire == _TEXT):
            self._broken(PROBLEMS[1] if end < 0 else PROBLEMS[2])
            return tag, 0, 0
        return (tag, value, end) if wire == _TEXT else (tag, {_VARINT: end - start, _EIGHT: 8, _FOUR: 4}[wire], start)

    def _has(self, count: int) -> bool:
        while len(self._window.data) < count and self._window.more(max(PIECE_BYTES, count - len(self._window.data))):
            pass
        return len(self._window.data) >= count

    def _drop(self, count: int) -> bytes:
        data = self._window.data[:count]
        self._window.drop(count)
        return data

    def _broken(self, problem: str) -> None:
        if not self._partial:
            at = self._window.base
            raise SourceError(f"{self._window.path}: {self._window.damage or problem} (byte {at})", HINT)
        self.cut = True


@compiled
def _complete_end(data: npt.NDArray[np.uint8]) -> int:
    """Return the end of the last complete field, or 0 if there is none."""
    done = 0
    while done < len(data):
        tag, position = read_number(data, done, len(data))
        wire = tag & 7
        size = 0
        if position >= 0 and (wire == 0 or wire == 2):
            size, position = read_number(data, position, len(data))
            size = size if wire == 2 else 0
        elif wire == 1 or wire == 5:
            size = 8 if wire == 1 else 4
        else:
            return done
        if position < 0 or size < 0 or size > len(data) - position:
            return done
        done = position + size
    return done


def stream(path: Path, partial: bool, writer: EventWriter) -> None:
    """Read the file piece by piece and write the events to ``writer``. Raises SourceError as :func:`read_pb` does."""
    processes, doubtful, cut = dict[int, int](), Doubtful(), False
    with closing(Pieces(path, partial)) as pieces:
        for piece in pieces:
            scanned = scan(piece.content, clip=partial)
            events = of_piece(scanned.tables, piece.thread)
            if not partial and (scanned.problem or events.doubtful.incomplete):
                problem = scanned.problem or f"{events.doubtful.incomplete} events lack required fields"
                raise SourceError(f"{path}: {problem} (byte {piece.at + scanned.at})", HINT)
            doubtful += events.doubtful
            processes |= findings.processes(events.recorded.columns)
            for batch in events.recorded.columns.to_batches():
                writer.write(batch)
            cut = piece.cut or bool(scanned.problem)
            if cut:
                break
    if not writer.rows and not pieces.rest:
        raise SourceError(f"{path}: the file has no fields of a profile", HINT)
    rest, cut = scan(pieces.rest, clip=partial), cut or pieces.cut
    meta = _described(rest.tables, doubtful, processes, str(path), cut)
    writer.close(meta, _doubts(doubtful, writer.rows, cut), account=_account(doubtful))


def complete(
    recorded: draft.RecordedEvents, meta: TraceMeta
) -> tuple[draft.RecordedEvents, TraceMeta, tuple[Finding, ...]]:
    """Sort streamed events into the order of :func:`read_pb`, and move inputs into the rows of their operators. Return
    the events and data-quality warnings."""
    order = np.argsort(_part(recorded.columns), kind="stable")
    events = labels.with_labels(_inputs_at_operators(recorded.taken(order)))
    return events, meta, findings.devices(events.columns, meta.devices)


def _part(columns: pa.Table) -> arrays.IntArray:
    calls = np.where(columns["correlation"].is_null().to_numpy(), _HOST, _CALL)
    of_span = np.where(arrays.one_of(columns["device"], CPU), calls, _WORK)
    return np.where(arrays.one_of(columns["kind"], MEMORY), _BYTES, of_span)


def _inputs_at_operators(recorded: draft.RecordedEvents) -> draft.RecordedEvents:
    """Move the inputs of each operator into the row of the operator. Paddle records the inputs in events inside the
    operator. If several of these events have inputs, those of the first event are used."""
    columns = recorded.columns
    has_inputs = np.logical_or.reduce([~columns[name].is_null().to_numpy() for name in _INPUTS])
    holders = np.flatnonzero(has_inputs & (_part(columns) == _HOST))
    if recorded.parent is None or not len(holders):
        return recorded
    operator = nesting.nearest_on_path(recorded.parent, arrays.one_of(columns["category"], "Operator"))[holders]
    at, first = np.unique(np.where(operator == arrays.NO_ROW, holders, operator), return_index=True)
    source = np.arange(columns.num_rows)
    source[holders] = arrays.NO_ROW
    source[at] = holders[first]
    source_rows = pa.array(source, mask=source == arrays.NO_ROW)
    for name in _INPUTS:
        columns = columns.set_column(columns.schema.get_field_index(name), name, columns[name].take(source_rows))
    return replace(recorded, columns=columns)
