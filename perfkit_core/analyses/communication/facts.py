"""What is known about a collective: by its own event, else by the call that launched it, else by its kernel's name."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.collectives import COLLECTIVES, Communication
from perfkit_core.analyses.communication.kernel_names import KernelName, kernel_name
from perfkit_core.analyses.tables import integers
from perfkit_core.collectives import described
from perfkit_core.schema import NO_ROW, OPERATOR_KINDS
from perfkit_core.trace import IntArray, Trace

_TOLD: Final = ("name", "group", "members", "dtype", "group_size", "sequence", "on")
_UNKNOWN: Final = -1


def descriptions(trace: Trace, talk: Communication) -> pd.DataFrame:
    """What adapters said of calls, of what lies in them, and of device work: indexed by row; ``call``: row of the
    call."""
    rows = np.flatnonzero(_in_calls(trace, talk) | talk.device)
    found = described(trace.pick("args", rows).to_pylist())
    kept = [i for i, one in enumerate(found) if one is not None]
    values = {name: pd.Series([getattr(found[i], name) for i in kept], dtype=object) for name in _TOLD}
    frame = pd.DataFrame({**values, "call": talk.call[rows[kept]]})
    return frame.set_index(pd.Index(rows[kept], dtype=np.int64))


def facts(trace: Trace, talk: Communication, told: pd.DataFrame, rows: IntArray) -> dict[str, Any]:
    """Columns collective, group, members, dtype, algorithm, protocol (text or None), group_size, sequence, bytes (NA
    where unknown) of collectives, shape (rows,)."""
    told = told.drop(columns="on")
    own = _lists(told.drop(columns="call").reindex(rows))
    by_call = _lists(told[told["call"] != NO_ROW].groupby("call").first().reindex(talk.call[rows]))
    best: dict[str, list[Any]] = {name: _first_known(own[name], by_call[name]) for name in own}
    kernels = _kernel_names(trace, talk, rows)
    names = _first_known(best["name"], _operators(trace, talk, rows), [one.collective for one in kernels])
    texts = {name: best[name] for name in ("group", "members", "dtype")}
    texts |= {name: [getattr(one, name) for one in kernels] for name in ("algorithm", "protocol")}
    columns: dict[str, Any] = {
        name: pd.Series(each, dtype=object) for name, each in {"collective": names, **texts}.items()
    }
    columns |= {name: pd.Series(best[name], dtype="Int64") for name in ("group_size", "sequence")}
    size = _bytes(trace, talk, rows)
    return columns | {"bytes": integers(size, size != _UNKNOWN)}


def _lists(frame: pd.DataFrame) -> dict[str, list[Any]]:
    return {str(name): frame[name].tolist() for name in frame.columns}


def _in_calls(trace: Trace, talk: Communication) -> Any:
    return trace.host & (talk.call != NO_ROW) & trace.rows("kind", *OPERATOR_KINDS)


def _first_known(*choices: list[Any]) -> list[Any]:
    """Item by item the first that is known."""
    return [next((value for value in values if pd.notna(value)), None) for values in zip(*choices, strict=True)]


def _kernel_names(trace: Trace, talk: Communication, rows: IntArray) -> list[KernelName]:
    names = trace.codes("name")
    codes, inverse = np.unique(names.codes[rows], return_inverse=True)
    distinct = [kernel_name(names.values[code]) for code in codes]
    nothing = KernelName()
    return [distinct[i] if on_device else nothing for i, on_device in zip(inverse, talk.device[rows], strict=True)]


def _operators(trace: Trace, talk: Communication, rows: IntArray) -> list[str | None]:
    """Canonical name of the event or of its call."""
    names = trace.codes("op_name")
    called = np.where(talk.call[rows] == NO_ROW, rows, talk.call[rows])
    return [
        names.values[code] if code >= 0 and names.values[code] in COLLECTIVES else None for code in names.codes[called]
    ]


def _bytes(trace: Trace, talk: Communication, rows: IntArray) -> IntArray:
    """Of the event; else the largest that is told in its call, where the call is this collective alone."""
    size = trace.ints("bytes", _UNKNOWN)
    largest = np.full(len(trace) + 1, _UNKNOWN, np.int64)
    inside = np.flatnonzero(_in_calls(trace, talk))
    np.maximum.at(largest, talk.call[inside], size[inside])
    call = talk.call[rows]
    alone = np.bincount(call + 1, minlength=len(trace) + 1)[call + 1] == 1
    of_call = np.where(alone & (call != NO_ROW), largest[call], _UNKNOWN)
    return np.where(size[rows] != _UNKNOWN, size[rows], of_call)
