"""The reference reader: it converts events to rows one by one, in Python. The faster scanner must return equal rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.chrome import rows
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, integer
from perfkit_core.readers.chrome.process_ids import ProcessIds
from perfkit_core.trace.model import schema

_COUNTER: Final = "C"
_INTEGERS: Final = ("offset_ns", *rows.ARGUMENT_INTEGERS)
_EMPTY: Final = ("", "[]", "{}")
_LISTS: Final = ("shapes", "dtypes")
_SIZES: Final = re.compile(r"\d{1,18}(?:,\d{1,18})*")


class RowLists:
    """The cells of some events. A column has the cells that are not empty, by the number of their row."""

    def __init__(self, dialect: Dialect, labels: dict[tuple[str, str], Label], ids: ProcessIds) -> None:
        self._dialect, self._labels, self._ids = dialect, labels, ids
        self._columns = dialect.arguments
        self._integers: dict[str, dict[int, int]] = {column: {} for column in _INTEGERS}
        self.texts: dict[str, dict[int, str]] = {column: {} for column in rows.ARGUMENT_TEXTS}
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
        if event.ph == _COUNTER and label.kind in (schema.OTHER, schema.UNKNOWN):
            label = label._replace(kind=schema.COUNTER)
        on_host = label.backend is None
        device = schema.CPU
        if not on_host or label.kind == schema.MEMORY:
            device = dialect.device(label, event.pid, args)
        row = len(self.origins)
        pid, tid = thread_of(event.pid, event.tid, dialect, self._ids) if on_host else (None, None)
        self.origins.append(origin_of(label, category, name, device, pid, tid, self._ids.rank(event.pid)))
        filled: set[str] = set()
        rest = {}  # the arguments without a column, which are stored as JSON
        for key, value in args.items():
            column = self._columns.get(key)
            if column == "stream" and on_host:  # for a host call, this is the stream of the launched work
                column = None
            if column is None or column in filled or (value is not None and not self._put(column, row, value)):
                rest[key] = value
                continue
            if value is not None:
                filled.add(column)
            if column in rows.COPIED:
                rest[key] = value
        self._args.append(msgspec.json.encode(rest).decode() if rest else None)

    def _put(self, column: str, row: int, value: Any) -> bool:
        """Set a cell. Return False if the value is not a 64-bit integer, or is the integer that stands for null."""
        integers = self._integers.get(column)
        if integers is None:
            text = as_text(column, value)
            if text is not None:
                self.texts[column][row] = text
            return True
        number = integer(value)
        if number is None or number == rows.NULL:
            return False
        integers[row] = number
        return True

    def rows(
        self, start_ns: IntArray, dur_ns: IntArray, origins: rows.Origins, vocabularies: Mapping[str, rows.Vocabulary]
    ) -> rows.Rows:
        integers, texts = {"start_ns": start_ns, "dur_ns": dur_ns}, {}
        for column, numbers in self._integers.items():
            if numbers:
                integers[column] = _spread(np.full(len(self._args), rows.NULL, np.int64), numbers)
        for column, cells in self.texts.items():
            if cells:
                codes = map(vocabularies[column].number, cells.values())
                texts[column] = _spread(np.full(len(self._args), -1, np.int32), dict(zip(cells, codes, strict=True)))
        args = pa.array(self._args, pa.string()) if any(value is not None for value in self._args) else None
        origin = np.fromiter(map(origins.number, self.origins), np.int32, len(self.origins))
        return rows.Rows(len(self._args), origin, integers, texts, args)


def _spread(column: npt.NDArray[Any], cells: Mapping[int, int]) -> npt.NDArray[Any]:
    column[list(cells)] = list(cells.values())
    return column


def thread_of(process: Any, thread: Any, dialect: Dialect, ids: ProcessIds) -> tuple[int | None, int | None]:
    """Return the numbers of the process and thread of a host event from their recorded ids."""
    tid = dialect.thread(thread)
    return ids.process(process), ids.number(thread) if tid is None else tid


def origin_of(
    label: Label, category: str, name: str, device: str, pid: int | None, tid: int | None, rank: int | None
) -> rows.Origin:
    """Return the Origin of an event: values that it shares with many other events, such as its name and thread. Empty
    texts become None, except an empty name."""
    return rows.Origin(
        name, label.kind or None, category or None, device or None, label.phase or None, label.layer or None,
        label.copy_kind or None, pid, tid, None if label.step is None else integer(label.step), rank,
    )  # fmt: skip


def as_text(column: str, value: Any) -> str | None:
    """Return a value as a cell of a text column. A string stays the same, other values become JSON. Empty strings and
    empty lists become None. Shapes and types are always JSON lists: some writers (torch_npu) record a text with ``;``
    between the arguments and ``,`` between the sizes of a tensor."""
    if value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if text in _EMPTY:
        return None
    if column not in _LISTS or isinstance(value, (list, dict)):
        return text
    with contextlib.suppress(msgspec.DecodeError):
        if isinstance(msgspec.json.decode(text), (list, dict)):
            return text
    items: list[Any] = [item.strip() for item in text.split(";")]
    if column == "shapes":
        items = [list(map(int, item.split(","))) if _SIZES.fullmatch(item) else item or [] for item in items]
    return msgspec.json.encode(items).decode()
