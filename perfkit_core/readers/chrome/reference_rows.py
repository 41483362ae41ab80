"""The reference reader: it converts events to rows one by one, in Python. The faster scanner must return equal rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model import schema
from perfkit_core.readers.chrome import rows
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, integer

_COUNTER: Final = "C"
_INTEGERS: Final = ("offset_ns", *rows.ARGUMENT_INTEGERS)


class RowLists:
    """The cells of some events, in one Python list for each column."""

    def __init__(self, dialect: Dialect, labels: dict[tuple[str, str], Label]) -> None:
        self._dialect, self._labels = dialect, labels
        self._integers: dict[str, list[int | None]] = {column: [] for column in _INTEGERS}
        self.texts: dict[str, list[str | None]] = {column: [] for column in rows.ARGUMENT_TEXTS}
        self.origins: list[rows.Origin] = []
        self._args: list[str | None] = []

    def take(self, event: ChromeEvent) -> None:
        dialect = self._dialect
        name = dialect.clean_name(event.name if isinstance(event.name, str) else str(event.name))
        category = event.cat if isinstance(event.cat, str) else ""
        label = self._labels.get((category, name))
        if label is None:
            label = self._labels[category, name] = dialect.label(category, name)
        args = event.args if isinstance(event.args, dict) else {}
        label = dialect.refine(label, args)
        if event.ph == _COUNTER and label.kind == schema.OTHER:
            label = label._replace(kind=schema.COUNTER)
        on_host = label.backend is None
        device = schema.CPU
        if not on_host or label.kind == schema.MEMORY:
            device = dialect.device(label, event.pid, args)
        pid, tid = (integer(event.pid), dialect.thread(event.tid)) if on_host else (None, None)
        self.origins.append(of_label(label, category, name, device, pid, tid))
        values: dict[str, Any] = {}
        rest = {}  # the arguments without a column, which are stored as JSON
        for key, value in args.items():
            column = dialect.arguments.get(key)
            if column == "stream" and on_host:  # for a host call, this is the stream of the launched work
                column = None
            # the value is not a 64-bit integer, or is the integer that stands for null
            unfit = column in _INTEGERS and value is not None and integer(value) in (None, rows.NULL)
            if column is None or values.get(column) is not None or unfit:
                rest[key] = value
            else:
                values[column] = value
        self._args.append(msgspec.json.encode(rest).decode() if rest else None)
        for column, integers in self._integers.items():
            integers.append(integer(values.get(column)))
        for column, texts in self.texts.items():
            texts.append(as_text(values.get(column)))

    def rows(
        self, start_ns: IntArray, dur_ns: IntArray, origins: rows.Origins, vocabularies: Mapping[str, rows.Vocabulary]
    ) -> rows.Rows:
        integers = {
            column: np.array([rows.NULL if value is None else value for value in values], np.int64)
            for column, values in self._integers.items() if any(value is not None for value in values)
        }  # fmt: skip
        texts = {
            column: vocabularies[column].numbers(values)
            for column, values in self.texts.items() if any(value is not None for value in values)
        }  # fmt: skip
        args = pa.array(self._args, pa.string()) if any(value is not None for value in self._args) else None
        origin = np.fromiter(map(origins.number, self.origins), np.int32, len(self.origins))
        return rows.Rows(len(self._args), origin, {"start_ns": start_ns, "dur_ns": dur_ns, **integers}, texts, args)


def of_label(label: Label, category: str, name: str, device: str, pid: int | None, tid: int | None) -> rows.Origin:
    """Return the Origin of an event: values that it shares with many other events, such as its name and thread. Empty
    texts become None, except an empty name."""
    return rows.Origin(
        name, as_text(label.kind), as_text(category), as_text(device), as_text(label.phase), as_text(label.layer),
        as_text(label.copy_kind), pid, tid, integer(label.step),
    )  # fmt: skip


def as_text(value: Any) -> str | None:
    """Return a value as a cell of a text column. A string stays the same, "" becomes None, other values become JSON."""
    if value is None or value == "" or isinstance(value, str):
        return value or None
    return msgspec.json.encode(value).decode()
