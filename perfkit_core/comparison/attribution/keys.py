"""Where does an event belong in the tree of the attribution: phase, layer, family, operator, event?

Phase and layer are those of the operator that the event belongs to, else its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.comparison.alignment.units import units
from perfkit_core.comparison.attribution.wording import NO_PHASE, NOTHING, OUTSIDE, UNLAUNCHED, outside
from perfkit_core.schema import DEVICE_WORK, NO_ROW, PYTHON
from perfkit_core.trace import Codes, IntArray, Trace

LEVELS: Final = ("phase", "layer", "family", "operator", "event")
"""Levels below the categories of the partition."""

NO_LAYER, NO_FAMILY = "(no layer)", "(no family)"

_LINE: Final = re.compile(r"\((\d+)\): ")
_INSTALLED: Final = re.compile(r"^.*(?:site|dist)-packages/")

TextArray = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Keys:
    """For each of :data:`LEVELS` the number of each event's text, shape (rows,), and the texts."""

    codes: dict[str, IntArray]
    texts: dict[str, TextArray]

    def of(self, rows: IntArray) -> dict[str, TextArray]:
        """The texts of some events."""
        return {level: self.texts[level][self.codes[level][rows]] for level in self.codes}


def keys(trace: Trace, layers: dict[str, str]) -> Keys:
    """The keys of all events. ``layers``: what the layers are called here, by their path; empty: no level of layers."""
    found = units(trace)
    holder = np.where(found.row != NO_ROW, found.row, np.arange(len(trace)))
    named = {
        "phase": _filled(trace.codes("phase"), NO_PHASE, holder),
        "layer": _filled(_renamed(trace.codes("module"), layers), NO_LAYER, holder),
        "family": _family(trace, found.family),
        "operator": _operator(trace, found.name),
        "event": _filled(_events(trace), NOTHING),
    }
    if not layers:
        del named["layer"]
    return Keys(
        {level: codes for level, (codes, _) in named.items()}, {name: texts for name, (_, texts) in named.items()}
    )


def _filled(codes: Codes, missing: str, rows: IntArray | None = None) -> tuple[IntArray, TextArray]:
    """Codes and texts with a text for null; those of other ``rows`` where these are given."""
    numbers = codes.codes if rows is None else codes.codes[rows]
    return np.where(numbers < 0, len(codes.values), numbers).astype(np.int64), _texts([*codes.values, missing])


def _renamed(codes: Codes, names: dict[str, str]) -> Codes:
    return _merged(codes, [names.get(value, value) for value in codes.values])


def _merged(codes: Codes, texts: list[str]) -> Codes:
    """The codes with other texts, equal ones under one number."""
    number, values = pd.factorize(_texts(texts))
    return Codes(codes.lookup(number.astype(np.int32), np.int32(-1)), list(values))


def _family(trace: Trace, family: Codes) -> tuple[IntArray, TextArray]:
    """Host events outside of operators have a word of their own."""
    texts = _texts([*family.values, NO_FAMILY, OUTSIDE])
    outside = (units(trace).row == NO_ROW) & trace.host
    known = np.where(family.codes < 0, len(family.values), family.codes)
    return np.where(outside & (family.codes < 0), len(family.values) + 1, known).astype(np.int64), texts


def _operator(trace: Trace, name: Codes) -> tuple[IntArray, TextArray]:
    """Outside of operators host events are told apart by their kind: the data loader, Python, ranges, calls."""
    kinds = trace.codes("kind")
    texts = _texts([*name.values, OUTSIDE, UNLAUNCHED, *map(outside, kinds.values)])
    count = len(name.values)
    lost = trace.rows("kind", *DEVICE_WORK) & (trace.ints("launched_by") == NO_ROW)
    unnamed = np.where(trace.host, count + 2 + kinds.codes, np.where(lost, count + 1, count))
    return np.where(name.codes < 0, unnamed, name.codes).astype(np.int64), texts


def _events(trace: Trace) -> Codes:
    """Names of the events; a Python frame without its line and the folder of its package, which differ by version."""
    names = trace.codes("name")
    frames = np.zeros(len(names.values), np.bool_)
    frames[np.unique(names.codes[trace.rows("kind", PYTHON)])] = True
    return _merged(names, [_frame(n) if frame else n for n, frame in zip(names.values, frames, strict=True)])


def _frame(name: str) -> str:
    return _INSTALLED.sub("", _LINE.sub(": ", name, count=1))


def _texts(values: list[Any]) -> TextArray:
    texts = np.empty(len(values), object)
    texts[:] = values
    return texts
