"""Streams a profile protobuf, and completes what was streamed when it is loaded: the same Trace as from the whole file.

What the pieces of a tree cannot tell is left to the end: the order of the parts, and the operator whose inputs hang on
a part of it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.assembly.draft import Recorded
from perfkit_core.assembly.labels import with_labels
from perfkit_core.errors import SourceError
from perfkit_core.model.meta import Finding, TraceMeta
from perfkit_core.model.schema import CPU, MEMORY
from perfkit_core.storage.recorded_events import RecordedWriter
from perfkit_paddle import findings, names
from perfkit_paddle.findings import processes
from perfkit_paddle.names import category_name
from perfkit_paddle.pb_rows import Doubtful, Rows, of_piece
from perfkit_paddle.pb_source import HINT, Piece, Pieces, described, doubts
from perfkit_paddle.pb_wire import scan

_HOST, _CALL, _WORK, _BYTES = range(4)
_INPUTS: Final = ("shapes", "stack", "args")
_OPERATOR: Final = category_name(names.EVENT_TYPES.index("Operator"))


def stream(path: Path, partial: bool, writer: RecordedWriter) -> None:
    """The file into the writer, a piece at a time. Raises SourceError."""
    of_thread, doubtful, cut = dict[int, int](), Doubtful(), False
    with closing(Pieces(path, partial)) as pieces:
        for piece in pieces:
            found, cut = _rows(piece, path, partial)
            doubtful += found.doubtful
            of_thread |= processes(found.recorded.columns)
            for batch in found.recorded.columns.to_batches():
                writer.write(batch)
            if cut:
                break
    if not writer.rows and not pieces.rest:
        raise SourceError(f"{path}: no field of a profile in it", HINT)
    beside, cut = scan(pieces.rest, clip=partial), cut or pieces.cut
    writer.close(described(beside.tables, of_thread, str(path), cut), doubts(doubtful, cut))


def _rows(piece: Piece, path: Path, partial: bool) -> tuple[Rows, bool]:
    """The events of a piece, and whether it breaks off."""
    scanned = scan(piece.content, clip=partial)
    found = of_piece(scanned.tables, piece.thread)
    if not partial and (scanned.problem or found.doubtful.incomplete):
        what = scanned.problem or f"{found.doubtful.incomplete} events lack required fields"
        raise SourceError(f"{path}: {what} (byte {piece.at + scanned.at})", HINT)
    return found, piece.cut or bool(scanned.problem)


def complete(recorded: Recorded, meta: TraceMeta) -> tuple[Recorded, tuple[Finding, ...]]:
    """What only all events of a file tell together."""
    whole = with_labels(_inputs_at_operators(_by_part(recorded)))
    return whole, findings.devices(whole.columns, meta.devices)


def _by_part(recorded: Recorded) -> Recorded:
    """In the order of a file that is read at once."""
    order = np.argsort(_part(recorded.columns), kind="stable")
    row = np.append(np.empty(len(order), np.int64), NO_ROW)
    row[order] = np.arange(len(order))
    parent = None if recorded.parent is None else row[recorded.parent[order]]
    return Recorded(recorded.columns.take(pa.array(order)), parent)


def _part(columns: pa.Table) -> IntArray:
    """Of each row: host events, runtime calls, device work, memory events."""
    calls = np.where(columns["correlation"].is_null().to_numpy(), _HOST, _CALL)
    of_span = np.where(_is(columns, "device", CPU), calls, _WORK)
    return np.where(_is(columns, "kind", MEMORY), _BYTES, of_span)


def _inputs_at_operators(recorded: Recorded) -> Recorded:
    """The inputs that hang on a part of an operator, at the operator; of several, the first ones."""
    columns = recorded.columns
    known = np.logical_or.reduce([~columns[name].is_null().to_numpy() for name in _INPUTS])
    told = np.flatnonzero(known & (_part(columns) == _HOST))
    if recorded.parent is None or not len(told):
        return recorded
    operator = nesting.nearest_on_path(recorded.parent, _is(columns, "category", _OPERATOR))[told]
    at, first = np.unique(np.where(operator == NO_ROW, told, operator), return_index=True)
    source = np.arange(columns.num_rows)
    source[told] = NO_ROW
    source[at] = told[first]
    taken = pa.array(source, mask=source == NO_ROW)
    for name in _INPUTS:
        columns = columns.set_column(columns.schema.get_field_index(name), name, columns[name].take(taken))
    return replace(recorded, columns=columns)


def _is(columns: pa.Table, name: str, value: str) -> Any:
    return pc.fill_null(pc.equal(columns[name].cast(pa.string()), value), False).to_numpy()
