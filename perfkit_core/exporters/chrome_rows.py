"""The rows of the event table as events of a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core import schema
from perfkit_core.exporters import json_lines
from perfkit_core.exporters.json_lines import TextMember, microseconds, number_member, quoted
from perfkit_core.exporters.lanes import Lanes, instants
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace

TOLD_BY_LANE: Final = ("rank", "pid", "tid", "stream")
_OWN_MEMBERS: Final = ("name", "category", "start_ns", "dur_ns", "device", "args", *TOLD_BY_LANE)


class Rows:
    """The rows of the table as events: a box each, or a mark for what has no duration by nature."""

    def __init__(self, trace: Trace, found: Lanes, base: int) -> None:
        self._trace, self._found, self._base = trace, found, base
        self._name, self._category = TextMember("name", trace.codes("name")), TextMember("cat", trace.codes("category"))
        self._where = pa.array([f'"pid":{lane.process},"tid":{lane.thread}' for lane in found.lanes], pa.string())
        self._instant = instants(trace)
        self._device = TextMember("device", trace.codes("device"))
        told = np.array([lane.device for lane in found.lanes], dtype=object)
        names = np.array([*trace.codes("device").values, None], dtype=object)
        self._elsewhere = names[trace.codes("device").codes] != told[found.lane]
        self._texts = [TextMember(c.name, trace.codes(c.name)) for c in _columns(text=True)]

    def lines(self, rows: IntArray) -> pa.Array:
        """One JSON object a row."""
        trace = self._trace
        start, dur = trace.ints("start_ns")[rows] - self._base, trace.ints("dur_ns")[rows]
        mark = pa.array(self._instant[rows])
        head = [
            pa.array(['"ph":"X"', '"ph":"i","s":"t"']).take(mark.cast(pa.int8())),
            self._name.take(rows),
            self._category.take(rows),
            json_lines.joined(['"ts":', microseconds(start)]),
            json_lines.joined(['"dur":', microseconds(dur)]),
            self._where.take(pa.array(self._found.lane[rows])),
        ]
        return json_lines.objects(head, self._arguments(rows))

    def _arguments(self, rows: IntArray) -> list[pa.Array]:
        members = [number_member("row", rows), *(text.take(rows) for text in self._texts)]
        elsewhere = pa.array(self._elsewhere[rows])
        members.append(pa.compute.if_else(elsewhere, self._device.take(rows), None))
        for column in _columns(text=False):
            values = self._trace.events[column.name].take(pa.array(rows)).combine_chunks()
            missing = values.is_null().to_numpy(zero_copy_only=False)
            filled = values.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
            missing = missing | (filled == NO_ROW) if not column.nullable else missing
            members.append(number_member(column.name, filled, missing))
        members.append(_recorded(self._trace.events["args"].take(pa.array(rows)).combine_chunks()))
        return members


def _columns(text: bool) -> Iterator[schema.Column]:
    """The columns that are arguments under their own name."""
    for column in schema.COLUMNS:
        if column.name not in _OWN_MEMBERS and pa.types.is_dictionary(column.type) == text:
            yield column


def _recorded(args: pa.Array) -> pa.Array:
    """What else was recorded, as the JSON object that it is; as text where it is none after all."""
    if not _all_objects(args):
        args = pa.array([None if text is None else _object(text) for text in args.to_pylist()], pa.string())
    return pa.compute.binary_join_element_wise('"recorded":', args, "", null_handling="emit_null")


def _all_objects(args: pa.Array) -> bool:
    texts = args.drop_null()
    try:
        whole = b"[" + json_lines.as_bytes(texts, ",") + b"]"
        return len(msgspec.json.decode(whole, type=list[dict[str, msgspec.Raw]])) == len(texts)
    except msgspec.DecodeError:
        return False


def _object(text: str) -> str:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return quoted(text)
    return text
