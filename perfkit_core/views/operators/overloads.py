"""Which overload of an operator was called, where the recorded names tell it: ``namespace::operator.overload``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import Codes, IntArray
from perfkit_core.model.schema import OPERATOR_KINDS
from perfkit_core.model.trace import Trace, once

_OVERLOADED: Final = re.compile(r"(\w+::\w+)\.(\w+)")


def operator_names(trace: Trace) -> Codes:
    """The names of all events, those of operators without their overload."""
    return _split(trace)[0]


def overloads(trace: Trace, rows: IntArray) -> pd.Categorical:
    """The overload of each row, null where the name has none. Shape (len(rows),)."""
    codes = _split(trace)[1]
    return pd.Categorical.from_codes(codes.codes[rows], categories=pd.Index(codes.values, dtype=object))


@once
def _split(trace: Trace) -> tuple[Codes, Codes]:
    names = trace.codes("name")
    found = [_OVERLOADED.fullmatch(name) for name in names.values]
    if not any(found):
        return names, Codes(np.full(len(trace), -1, np.int32), [])
    operators = trace.rows("kind", *OPERATOR_KINDS)
    merged = [match[1] if match else name for match, name in zip(found, names.values, strict=True)]
    values, position = _numbered([*merged, *names.values])
    count = len(names.values)
    codes = np.where(operators, names.lookup(position[:count], -1), names.lookup(position[count:], -1))
    distinct, overload = _numbered([match[2] if match else None for match in found])
    overload_codes = np.where(operators, names.lookup(overload, -1), -1)
    return Codes(codes.astype(np.int32), values), Codes(overload_codes.astype(np.int32), distinct)


def _numbered(texts: Sequence[str | None]) -> tuple[list[str], IntArray]:
    """The distinct texts, and the position of each in them (-1: None)."""
    values = list(dict.fromkeys(text for text in texts if text is not None))
    position = {text: code for code, text in enumerate(values)}
    return values, np.array([-1 if text is None else position[text] for text in texts], np.int64)
