"""Chrome-trace JSON (Google's "Trace Event Format") for Perfetto, chrome://tracing and perfkit's own reader.

- Times are in µs since ``baseTimeNanoseconds``, with three decimals.
- ``args`` contains the columns of the event table. ``row``, ``parent`` and ``launched_by`` are row numbers of the
  exported table. ``recorded`` contains the framework's own arguments. Members with the names of side tables contain
  what these say about the event. The header contains the other side tables.
- Process and thread numbers are unique over all ranks, because viewers need this. The header has the recorded ones.
- Arrows, memory curves and step marks are added for viewers. Their categories begin with ``perfkit.``. perfkit's reader
  skips them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.exporters import CHROME_FORMAT
from perfkit_core.exporters.lanes import Lanes, instants, lanes
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.trace.model import meta, schema
from perfkit_core.trace.model.side_table import ROW
from perfkit_core.trace.model.side_tables import ALL
from perfkit_core.trace.model.trace import Trace

VERSION: Final = 2
"""Version of the header. Files of version 1 have no side tables."""
OWN_CATEGORY: Final = "perfkit."
"""Prefix of the categories of events that perfkit adds for viewers."""

_ROWS_PER_BATCH: Final = 1 << 14
OF_LANE: Final = ("rank", "pid", "tid", "stream")
_OWN_MEMBERS: Final = ("name", "category", "start_ns", "dur_ns", "device", "args", *OF_LANE)
_UNKNOWN: Final = np.iinfo(np.int64).min
_NS_DIGITS: Final = 3


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    timeline = lanes(trace, split_python=True)
    base = int(trace.ints("start_ns").min()) if len(trace) else 0
    source = os.fsencode(trace.meta.source).decode("utf-8", "replace")
    perfkit_data = {
        "format": CHROME_FORMAT,
        "version": VERSION,
        "meta": msgspec.structs.replace(trace.meta, source=source),
        "quality": list(map(meta.StoredFinding.of, trace.quality)),
        "lanes": timeline.lanes,
        "tables": {name: table.to_pydict() for name, table in _of_recording(trace)},
    }
    head = {"perfkit": perfkit_data, "displayTimeUnit": "ns", "baseTimeNanoseconds": base}
    file.write(msgspec.json.encode(head)[:-1] + b',"traceEvents":[')
    separator = b"\n"
    for piece in _pieces(trace, timeline, base):
        file.write(separator + piece)
        separator = b",\n"
    file.write(b"\n]}\n")
    return "" if len(trace) else "no events were recorded"


def _pieces(trace: Trace, timeline: Lanes, base: int) -> Iterator[bytes]:
    names, named = [], set()
    for lane in timeline.lanes:
        lane_fields = {"ph": "M", "pid": lane.process, "tid": lane.thread}
        facts: dict[str, Any] = {"thread_name": {"name": lane.name}, "thread_sort_index": {"sort_index": lane.thread}}
        if lane.process not in named:
            named.add(lane.process)
            facts["process_name"] = {"name": lane.process_name}
            facts["process_sort_index"] = {"sort_index": lane.process}
        names += [msgspec.json.encode({"name": key, **lane_fields, "args": value}) for key, value in facts.items()]
    if names:
        yield b",\n".join(names)
    # Events are sorted by start. Host events come before the device work that they launch.
    order = np.lexsort((-trace.ints("dur_ns"), ~trace.host, trace.ints("start_ns")))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    events, added = Events(trace, timeline, base), extras(trace, timeline, base, position)
    for begin in range(0, len(order), _ROWS_PER_BATCH):
        end = min(begin + _ROWS_PER_BATCH, len(order))
        lines, at = [events.lines(order[begin:end])], [np.arange(begin, end)]
        for extra in added:
            batch = np.arange(*np.searchsorted(extra.position, (begin, end)))
            lines.append(extra.lines(batch))
            at.append(extra.position[batch])
        # The sort is stable, so an event stays before the events that were added to it.
        in_order = pa.array(np.argsort(np.concatenate(at), kind="stable"))
        yield as_bytes(pa.concat_arrays(lines).take(in_order), ",\n")


class Events:
    """The rows of the event table as JSON events. Events with a duration are drawn as boxes, instants as marks."""

    def __init__(self, trace: Trace, timeline: Lanes, base: int) -> None:
        self._trace, self._lane, self._base = trace, timeline.lane, base
        self._name, self._category = TextMember("name", trace.codes("name")), TextMember("cat", trace.codes("category"))
        where = [f'"pid":{lane.process},"tid":{lane.thread}' for lane in timeline.lanes]
        self._where = pa.array(where, pa.string())
        self._instant = instants(trace)
        self._device = TextMember("device", trace.codes("device"))
        devices = np.array([lane.device for lane in timeline.lanes], dtype=object)
        names = np.array([*trace.codes("device").values, None], dtype=object)
        self._elsewhere = names[trace.codes("device").codes] != devices[timeline.lane]
        self._texts = [TextMember(c.name, trace.codes(c.name)) for c in _columns(text=True)]
        self._facts = [Facts(name, trace.tables[name]) for name in trace.tables.names if ALL[name].describes_rows]

    def lines(self, rows: IntArray) -> pa.Array:
        trace = self._trace
        members = [number_member("row", rows), *(text.take(rows) for text in self._texts)]
        members.append(pc.if_else(pa.array(self._elsewhere[rows]), self._device.take(rows), None))
        for column in _columns(text=False):
            values = trace.events[column.name].take(pa.array(rows)).combine_chunks()
            missing = values.is_null().to_numpy(zero_copy_only=False)
            filled = values.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
            missing = missing | (filled == NO_ROW) if not column.nullable else missing
            members.append(number_member(column.name, filled, missing))
        recorded = _as_json(trace.events["args"].take(pa.array(rows)).combine_chunks())
        members.append(pc.binary_join_element_wise('"recorded":', recorded, "", null_handling="emit_null"))
        members += [facts.take(rows) for facts in self._facts]
        head = [
            pa.array(['"ph":"X"', '"ph":"i","s":"t"']).take(pa.array(self._instant[rows]).cast(pa.int8())),
            self._name.take(rows),
            self._category.take(rows),
            joined(['"ts":', microseconds(trace.ints("start_ns")[rows] - self._base)]),
            joined(['"dur":', microseconds(trace.ints("dur_ns")[rows])]),
            self._where.take(pa.array(self._lane[rows])),
        ]
        return joined(["{", joined(head, ","), ',"args":{', joined(members, ","), "}}"])


class Facts:
    """A side table as members of the events that it describes."""

    def __init__(self, name: str, table: pa.Table) -> None:
        self._row = table[ROW.name].to_numpy()
        facts = table.drop_columns([ROW.name]).to_pylist()
        known = [{key: value for key, value in fact.items() if value is not None} for fact in facts]
        texts = [f'"{name}":{msgspec.json.encode(fact).decode()}' for fact in known]
        self._texts = pa.array([*texts, None], pa.string())

    def take(self, rows: IntArray) -> pa.Array:
        at = np.minimum(np.searchsorted(self._row, rows), max(len(self._row) - 1, 0))
        described = self._row[at] == rows if len(self._row) else np.zeros(len(rows), np.bool_)
        return self._texts.take(pa.array(np.where(described, at, len(self._row))))


def _of_recording(trace: Trace) -> Iterator[tuple[str, pa.Table]]:
    """Yield the side tables that describe no rows."""
    for name in trace.tables.names:
        if not ALL[name].describes_rows and len(trace.tables[name]):
            yield name, trace.tables[name]


def _columns(text: bool) -> Iterator[schema.Column]:
    for column in schema.COLUMNS:
        if column.name not in _OWN_MEMBERS and pa.types.is_dictionary(column.type) == text:
            yield column


def _as_json(args: pa.Array) -> pa.Array:
    """Return the recorded arguments as JSON. A text that is not a JSON object becomes a JSON string."""
    texts = args.drop_null()
    try:
        array = b"[" + as_bytes(texts, ",") + b"]"
        if len(msgspec.json.decode(array, type=list[dict[str, msgspec.Raw]])) == len(texts):
            return args
    except msgspec.DecodeError:
        pass  # some text is not a JSON object, so each text is checked below
    values: list[str | None] = args.to_pylist()
    for at, text in enumerate(values):
        try:
            msgspec.json.decode("{}" if text is None else text, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            values[at] = quoted(str(text))
    return pa.array(values, pa.string())


@dataclass(frozen=True, slots=True)
class Extra:
    """Events of one kind that are added for viewers. Each comes after an event of the table. ``position`` contains the
    positions of these table events in the file, ascending. ``lines(i)`` returns the JSON of the added events ``i``."""

    position: IntArray
    lines: Callable[[IntArray], pa.Array]


def extras(trace: Trace, timeline: Lanes, base: int, position: IntArray) -> list[Extra]:
    """Return the events that are added for viewers. ``position`` is each row's position in the file, shape (rows,)."""
    draw = _Drawing(trace, timeline, base, position)
    work = np.flatnonzero(trace.ints("launched_by") != NO_ROW)
    node, operator = gradients(trace)
    return [
        *draw.arrows("launch", trace.ints("launched_by")[work], work, work),
        *draw.arrows("gradient", operator, node, len(trace) + node),
        draw.memory(),
        draw.steps(),
    ]


def gradients(trace: Trace) -> tuple[IntArray, IntArray]:
    """Return two arrays of equal length: the rows of backward nodes, and the rows of their forward operators. A node
    and its operator have the same sequence number. If several operators have this number, the last and innermost one is
    used. A number that several threads used in the forward pass is ambiguous and left out."""
    sequence, backward = trace.ints("sequence"), trace.rows("phase", schema.BACKWARD)
    rows = np.flatnonzero(trace.host & (sequence >= 0) & trace.rows("kind", *schema.OPERATOR_KINDS))
    _, key = np.unique(
        np.stack([trace.ints(c)[rows] for c in ("rank", "pid", "sequence")]), axis=1, return_inverse=True
    )
    key = key.reshape(-1)
    count = int(key.max(initial=-1)) + 1
    after = backward[rows]
    node, operator, tid = (np.full(count, NO_ROW, np.int64) for _ in range(3))
    node[key[after][::-1]] = rows[after][::-1]
    operator[key[~after]] = rows[~after]
    tid[key[~after]] = trace.ints("tid")[rows[~after]]
    ambiguous = np.zeros(count, np.bool_)
    np.logical_or.at(ambiguous, key[~after], trace.ints("tid")[rows[~after]] != tid[key[~after]])
    both = (node != NO_ROW) & (operator != NO_ROW) & ~ambiguous
    return node[both], operator[both]


class _Drawing:
    def __init__(self, trace: Trace, timeline: Lanes, base: int, position: IntArray) -> None:
        self._trace, self._lane, self._base, self._position = trace, timeline.lane, base, position
        self._process = np.array([lane.process for lane in timeline.lanes], np.int64)
        self._thread = np.array([lane.thread for lane in timeline.lanes], np.int64)

    def arrows(self, name: str, tail: IntArray, tip: IntArray, number: IntArray) -> list[Extra]:
        """Return the events that draw arrows. Leave out arrows that point back in time because of clock errors."""
        forward = self._position[tip] > self._position[tail]
        tail, tip, number = tail[forward], tip[forward], number[forward]
        label = f'"name":{quoted(name)},"cat":{quoted(OWN_CATEGORY + name)}'
        kinds = ((tail, f'"ph":"s",{label}'), (tip, f'"ph":"f","bp":"e",{label}'))
        return [self._extra(rows, constant, lambda batch, n: [number_member("id", n[batch])], number)
                for rows, constant in kinds]  # fmt: skip

    def memory(self) -> Extra:
        """Return counter events with the allocated bytes of each device. Only memory events with a total are used."""
        total, device = self._trace.ints("total_bytes", _UNKNOWN), self._trace.codes("device")
        rows = np.flatnonzero(self._trace.rows("kind", schema.MEMORY) & (total != _UNKNOWN))
        text = TextMember("name", Codes(device.codes, [f"memory {value}" for value in device.values]))

        def members(batch: IntArray, ordered: IntArray) -> list[pa.Array]:
            value = number_member("allocated bytes", total[ordered[batch]])
            return [text.take(ordered[batch]), joined(['"args":{', value, "}"])]

        return self._extra(rows, f'"ph":"C","cat":"{OWN_CATEGORY}memory"', members, rows)

    def steps(self) -> Extra:
        rows = np.flatnonzero(self._trace.host & self._trace.rows("kind", schema.STEP))
        text = TextMember("name", self._trace.codes("name"))
        constant = f'"ph":"i","s":"p","cat":"{OWN_CATEGORY}step"'
        return self._extra(rows, constant, lambda batch, ordered: [text.take(ordered[batch])], rows)

    def _extra(
        self,
        rows: IntArray,
        constant: str,
        members: Callable[[IntArray, IntArray], list[pa.Array]],
        payload: IntArray,
    ) -> Extra:
        order = np.argsort(self._position[rows], kind="stable")
        rows, payload = rows[order], payload[order]

        def lines(batch: IntArray) -> pa.Array:
            start, lane = self._trace.ints("start_ns")[rows[batch]] - self._base, self._lane[rows[batch]]
            lane_members = [number_member("pid", self._process[lane]), number_member("tid", self._thread[lane])]
            when = joined(['"ts":', microseconds(start)])
            return objects([pa.repeat(constant, len(batch)), when, *lane_members, *members(batch, payload)])

        return Extra(self._position[rows], lines)


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def joined(parts: Sequence[Any], separator: str = "") -> pa.Array:
    """Join texts row by row. A part is an array, or one text for all rows. Nulls are skipped."""
    return pc.binary_join_element_wise(*parts, separator, null_handling="skip")


def numbers(values: IntArray, missing: BoolArray | None = None) -> pa.Array:
    """Return numbers as text. Rows where ``missing`` is true are null."""
    return pa.array(values, mask=missing).cast(pa.string())


def microseconds(ns: IntArray) -> pa.Array:
    """Return non-negative times as text in µs with three decimals. Only integers are used, so the result is exact."""
    fraction = pc.utf8_lpad(numbers(ns % 1000), _NS_DIGITS, "0")
    return joined([numbers(ns // 1000), fraction], ".")


def number_member(key: str, values: IntArray, missing: BoolArray | None = None) -> pa.Array:
    """Return texts such as ``"key":123``. Rows where ``missing`` is true are null."""
    text = numbers(values, missing)
    return pc.binary_join_element_wise(f"{quoted(key)}:", text, "", null_handling="emit_null")


class TextMember:
    """The JSON member ``"key":"value"`` of each row of a text column. Each distinct value is escaped only once."""

    def __init__(self, key: str, column: Codes) -> None:
        self._codes = column.codes
        self._members = pa.array([f"{quoted(key)}:{quoted(value)}" for value in column.values], pa.string())

    def take(self, rows: IntArray) -> pa.Array:
        """Return the JSON members of the given rows. Rows without a value are null."""
        codes = self._codes[rows]
        return self._members.take(pa.array(codes, mask=codes < 0))


def objects(members: Sequence[pa.Array]) -> pa.Array:
    return joined(["{", joined(members, ","), "}"])


def as_bytes(lines: pa.Array, separator: str) -> bytes:
    if not len(lines):
        return b""
    single_list = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text: bytes = pc.binary_join(single_list, separator).cast(pa.binary())[0].as_py()
    return text
