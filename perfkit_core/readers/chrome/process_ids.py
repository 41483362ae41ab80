"""Numbers and ranks of the processes and threads in a trace file. Most writers use numbers as ids. Others use texts:

- ``CPU functions`` is the only process of a file.
- ``[TP00] 83`` is process 83 of a server that merged the files of its ranks. Device work has ids such as ``[TP00] 0``.
  The text before the last number says the rank.

A number depends only on its id, not on the order of the events. If a file has several processes, each is assembled by
itself, as a rank, because correlation ids are unique only within a process."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from typing import Any, Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, one_of
from perfkit_core.base.language.messages import message
from perfkit_core.readers.chrome.dialect import integer
from perfkit_core.trace.assembly.draft import EXTERNAL, RecordedEvents, integers, with_integers
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import PROCESSES_MIXED, Finding

SEVERAL_NUMBERS: Final = 1 << 30
"""Is added to a rank that a label gives as several numbers, such as ``[TP00-DP01]``. These ranks are renumbered."""
SEVERAL: Final = "several-processes"


def with_ranks(recorded: RecordedEvents) -> tuple[RecordedEvents, tuple[Finding, ...]]:
    """Return the events with the column ``rank`` if they are from several processes, and data-quality warnings.

    The ranks are those that the ids of the processes say. Otherwise, each process with operators is a rank, in the
    order of their numbers. Device work then belongs to the process whose call has its correlation id, or else whose
    operator has its external id. If several processes have these, the processes stay together, and this work loses its
    ids.
    """
    columns = recorded.columns
    if not columns.num_rows:
        return recorded, ()
    if "rank" in columns.column_names and columns["rank"].null_count < columns.num_rows:
        stated = integers(columns, "rank")
        ranks, number = np.unique(stated[stated >= 0], return_inverse=True)
        if ranks[-1] < SEVERAL_NUMBERS:
            number = ranks[number]
        rank = np.full(len(stated), int(number.min()))
        rank[stated >= 0] = number
        return _split(recorded, rank)
    pid = integers(columns, "pid")
    pids = pid[pid >= 0]
    if not len(pids) or pids.min() == pids.max():
        return recorded, ()
    processes = np.unique(pid[one_of(columns["kind"], *schema.OPERATOR_KINDS) & (pid >= 0)])
    if len(processes) < 2:
        return recorded, ()
    rank = np.where(np.isin(pid, processes), np.searchsorted(processes, pid), NO_ROW)
    device = ~one_of(columns["device"], schema.CPU)
    mixed = np.zeros(len(rank), np.bool_)
    for name, kinds in (("correlation", (schema.RUNTIME, schema.SYNC)), (EXTERNAL, schema.OPERATOR_KINDS)):
        ids = integers(columns, name)
        calls = np.flatnonzero((rank != NO_ROW) & (ids >= 0) & one_of(columns["kind"], *kinds))
        work = np.flatnonzero(device & (ids >= 0) & (rank == NO_ROW) & ~mixed)
        lowest, highest = _callers(ids[calls], rank[calls], ids[work])
        mixed[work] = lowest != highest
        rank[work] = np.where(lowest == highest, lowest, NO_ROW)
    if mixed.any():
        text = message(
            "{count} processes use the same correlation ids, and {work} device events may belong to any of them: these "
            "belong to no operator, step or phase. Record each process to a file of its own",
            count=len(processes),
            work=int(mixed.sum()),
        )
        for name in ("correlation", EXTERNAL):
            recorded = _with(recorded, name, np.where(mixed, NO_ROW, integers(columns, name)))
        return recorded, (Finding(PROCESSES_MIXED, text),)
    rank[rank == NO_ROW] = 0
    return _split(recorded, rank)


def _split(recorded: RecordedEvents, rank: IntArray) -> tuple[RecordedEvents, tuple[Finding, ...]]:
    count, recorded = len(np.unique(rank)), _with(recorded, "rank", rank)
    if count < 2:
        return recorded, ()
    text = message("the file holds {count} processes: each is a rank", count=count)
    return recorded, (Finding(SEVERAL, text, note=True),)


def _with(recorded: RecordedEvents, name: str, values: IntArray) -> RecordedEvents:
    return replace(recorded, columns=with_integers(recorded.columns, name, values))


def _callers(keys: IntArray, rank: IntArray, correlation: IntArray) -> tuple[IntArray, IntArray]:
    """Return the lowest and the highest rank whose calls, with the ids ``keys``, have each correlation id, or -1."""
    order = np.lexsort((rank, keys))
    keys, rank = keys[order], np.append(rank[order], NO_ROW)
    first, end = np.searchsorted(keys, correlation), np.searchsorted(keys, correlation, side="right")
    called = end > first
    return rank[np.where(called, first, NO_ROW)], rank[np.where(called, end - 1, NO_ROW)]


_BEFORE_NUMBER: Final = re.compile(r"(.*?)(\d{1,15})\D*", re.DOTALL)
_RANKED: Final = re.compile(r"\[[^\[\]]*\d[^\[\]]*\]|(?<![a-z])(?:rank|worker|[tdpec]p)[ _:=#-]?\d", re.IGNORECASE)
"""What says a rank in the text before the number of a process. Other texts, such as ``python3``, say none."""
_NUMBER: Final = re.compile(r"\d{1,6}")
_NOT_A_NUMBER: Final = 1 << 40
"""Is added to the checksum of a text without a rank. The ids of real processes and threads are smaller."""
_BASE: Final = 150
_MOST_NUMBERS: Final = 4


class ProcessIds:
    """The processes of one file: their names and labels by number, from ids and from metadata events."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.labels: dict[int, str] = {}  # kinds of processes, such as ``CPU`` or ``GPU 0``
        self._ranks: dict[str, int | None] = {}

    def number(self, token: Any) -> int | None:
        """Return the number of an id, or None if it is neither an integer nor a text."""
        number = integer(token)
        if number is not None or not isinstance(token, str) or not token:
            return number
        if self.rank(token) is not None and (match := _BEFORE_NUMBER.fullmatch(token)):
            return int(match[2])
        return _NOT_A_NUMBER + zlib.crc32(token.encode("utf-8", "replace"))

    def process(self, token: Any) -> int | None:
        """Return the number of a process. A text without a number becomes its name."""
        number = self.number(token)
        if number is not None and number >= _NOT_A_NUMBER and isinstance(token, str):
            self.names.setdefault(number, token)
        return number

    def rank(self, token: Any) -> int | None:
        """Return the rank that a text says, as in the column ``rank`` before :func:`with_ranks`. Return None for
        other ids."""
        if not isinstance(token, str):
            return None
        if token not in self._ranks:
            match = _BEFORE_NUMBER.fullmatch(token)
            ranked = match is not None and _RANKED.search(match[1]) is not None
            self._ranks[token] = _rank(list(map(int, _NUMBER.findall(match[1])))) if match and ranked else None
        return self._ranks[token]

    def describe(self, name: str, token: Any, args: Any) -> None:
        """Store the name or the labels of a process, from a metadata event called ``name``."""
        number = self.number(token)
        labels = name == "process_labels"
        text = args.get("labels" if labels else "name") if isinstance(args, dict) else None
        if number is not None and isinstance(text, str) and text.strip():
            (self.labels if labels else self.names).setdefault(number, text.strip())


def _rank(numbers: list[int]) -> int | None:
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    code = 0
    for number in numbers[:_MOST_NUMBERS]:
        code = code * _BASE + number % _BASE
    return SEVERAL_NUMBERS + code
