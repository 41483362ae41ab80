"""Work that a program does once, when it starts or meets something new: allocation, module loading, compilation."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.trace.assembly.first_launches import loading_calls
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace

ALLOCATION: Final = "allocation"
MODULE_LOADING: Final = "module_loading"
COMPILATION: Final = "compilation"
CAPTURE: Final = "capture"
WARM_UP: Final = "warm_up"
"""A range that the program calls a warm-up."""
_RUNTIME: Final = "(?:cuda|hip|cu|musa|xpu|acl(?:rt)?)_?"
_NAMES: Final = {
    ALLOCATION: re.compile(
        rf"{_RUNTIME}(?:Ext)?(?:Malloc(?!Async|FromPool)|Free(?!Async)|Host(?:Alloc|Malloc|Free|Register)"
        r"|Mem(?:Alloc|Free|Create|Map|AddressReserve)(?!Async)|StreamCreate|CtxCreate|DevicePrimaryCtxRetain)"
    ),
    COMPILATION: re.compile(r"(?:^|[_.\s])compile_|_compile\b|precompile|autotun", re.IGNORECASE),
    WARM_UP: re.compile(r"warm[-_ ]?up", re.IGNORECASE),
}
"""Category → the names of its host events."""
_KINDS: Final = {
    ALLOCATION: (schema.RUNTIME, schema.SYNC),
    COMPILATION: (schema.ANNOTATION, schema.OPERATOR),
    WARM_UP: (schema.ANNOTATION,),
}
_CAPTURE: Final = re.compile(rf"{_RUNTIME}Stream(Begin|End)Capture")


@dataclass(frozen=True, slots=True)
class OneOffWork:
    """When each category of one-off work ran on a rank, and its calls. ``start`` and ``dur`` have shape (calls,)."""

    spans: dict[str, Intervals]
    start: IntArray  # ascending
    dur: IntArray
    name: tuple[str, ...]

    def total(self) -> Intervals:
        return intervals.union(*(np.concatenate(edges) for edges in zip(*self.spans.values(), strict=True)))

    def longest(self, begin: int, end: int) -> tuple[str, int]:
        """Return the name of the calls that take the most time of those that start in [begin, end), and their time in
        ns; ``""`` and 0 if there are none."""
        first, last = np.searchsorted(self.start, [begin, end])
        time = Counter[str]()
        for at in range(first, last):
            time[self.name[at]] += int(self.dur[at])
        return max(time.items(), key=lambda pair: pair[1], default=("", 0))


@once
def one_off_work(trace: Trace, rank: int) -> OneOffWork:
    """Return the one-off work of a rank (-1: unknown)."""
    names, start, end = trace.codes("name"), trace.ints("start_ns"), trace.end_ns
    of_rank = trace.host & (trace.ints("rank") == rank)
    rows_of: dict[str, IntArray] = {}
    for category, pattern in _NAMES.items():
        matching = np.array([pattern.search(name) is not None for name in names.values], np.bool_)
        mask = names.lookup(matching, False) if matching.any() else np.zeros(len(trace), np.bool_)
        rows_of[category] = np.flatnonzero(mask & of_rank & trace.rows("kind", *_KINDS[category]))
    rows_of[MODULE_LOADING] = np.flatnonzero(loading_calls(trace) & of_rank)
    spans = {category: intervals.union(start[rows], end[rows]) for category, rows in rows_of.items()}
    spans[CAPTURE] = _captures(trace, of_rank)
    rows = np.unique(np.concatenate([*rows_of.values()]))
    return OneOffWork(spans, start[rows], trace.ints("dur_ns")[rows],
                      tuple(names.values[code] for code in names.codes[rows]))  # fmt: skip


def _captures(trace: Trace, of_rank: BoolArray) -> Intervals:
    """Return the times from the begin of each graph capture to its end."""
    names = trace.codes("name")
    matches = {code: match[1] for code, name in enumerate(names.values) if (match := _CAPTURE.match(name))}
    if not matches:
        return intervals.EMPTY
    rows = np.flatnonzero(of_rank & np.isin(names.codes, list(matches)))
    begins = np.array([matches[code] == "Begin" for code in names.codes[rows].tolist()], np.bool_)
    pairs = np.flatnonzero(begins[:-1] & ~begins[1:])
    return intervals.union(trace.ints("start_ns")[rows[pairs]], trace.end_ns[rows[pairs + 1]])
