"""The collectives that took place: one row each, with what is known about it.

Where a library's kernels were recorded, each kernel is one; other kernels that a call launched (an inference engine's
own) are one together. On the host they are the events that an adapter described as communicating themselves; where it
described none, the outermost calls that launched nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.assembly.collectives import HOST, described
from perfkit_core.model.schema import COMMUNICATION, OPERATOR_KINDS
from perfkit_core.model.trace import Trace, once
from perfkit_core.views.communication.communicating import (
    COLLECTIVES,
    Communication,
    communication,
    named_as_collective,
)
from perfkit_core.views.tables import integers


@once
def instances(trace: Trace) -> pd.DataFrame:
    """A row a collective, by rank and time of issue: ``row`` of the event, rank, step, group_size, bytes, sequence,
    stream (Int64, NA where unknown), collective, group, members, dtype, algorithm, protocol (text or None), start_ns,
    dur_ns, issue_ns (when the host asked for it)."""
    talk = communication(trace)
    told = descriptions(trace, talk)
    rows = np.concatenate([_on_device(trace, talk), _on_host(trace, talk, told)])
    places = {name: known(trace.ints(name)[rows]) for name in ("rank", "step", "stream")}
    frame = pd.DataFrame({"row": rows, **places, **_times(trace, talk, rows), **facts(trace, talk, told, rows)})
    return frame.sort_values(["rank", "issue_ns", "start_ns"], kind="stable", na_position="first", ignore_index=True)


def _on_device(trace: Trace, talk: Communication) -> IntArray:
    """A row for each collective: kernels by name, and the first of the others of each call that has none such."""
    named = talk.device & _alone(trace)
    others = np.flatnonzero(talk.device & ~named & (talk.call != NO_ROW))
    others = others[~np.isin(talk.call[others], talk.call[named])]
    first = np.unique(talk.call[others], return_index=True)[1]
    return np.concatenate([np.flatnonzero(named), others[first]])


def _on_host(trace: Trace, talk: Communication, told: pd.DataFrame) -> IntArray:
    own: IntArray = told.index.to_numpy(np.int64)[(told["on"] == HOST).to_numpy()]
    if len(told):
        return own
    return np.flatnonzero(talk.host & trace.rows("op_name", *COLLECTIVES))


def _times(trace: Trace, talk: Communication, rows: IntArray) -> dict[str, IntArray]:
    """From the first start to the last end of the device work of a call, where that is one collective."""
    start, end, call = trace.ints("start_ns")[rows], trace.end_ns[rows], talk.call[rows]
    if not len(rows):
        return {"start_ns": start, "dur_ns": start, "issue_ns": start}
    together = (talk.device & ~_alone(trace))[rows]
    end = np.where(together, _last_end(trace, talk)[call], end)
    issue = np.where(call == NO_ROW, start, trace.ints("start_ns")[call])
    return {"start_ns": start, "dur_ns": end - start, "issue_ns": issue}


def _alone(trace: Trace) -> BoolArray:
    """True for device events that are a collective each."""
    return named_as_collective(trace) | trace.rows("kind", COMMUNICATION)


def _last_end(trace: Trace, talk: Communication) -> IntArray:
    last = np.zeros(len(trace), np.int64)
    launched = np.flatnonzero(talk.device & (talk.call != NO_ROW))
    np.maximum.at(last, talk.call[launched], trace.end_ns[launched])
    return last


def known(values: IntArray) -> pd.arrays.IntegerArray:
    """Int64, NA where negative."""
    return integers(np.maximum(values, 0), values >= 0)


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
    """What is known of collectives by their own event, else by the call that launched them, else by the name of their
    kernel: columns collective, group, members, dtype, algorithm, protocol (text or None), group_size, sequence, bytes
    (NA where unknown) of collectives, shape (rows,)."""
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


_COLLECTIVES: Final = (
    (re.compile(r"all_?reduce", re.I), "all_reduce"),
    (re.compile(r"all_?gather", re.I), "all_gather"),
    (re.compile(r"reduce_?scatter", re.I), "reduce_scatter"),
    (re.compile(r"all_?to_?all", re.I), "all_to_all"),
    (re.compile(r"broadcast", re.I), "broadcast"),
    (re.compile(r"(?:nccl|rccl|xccl|hccl)\w*?reduce", re.I), "reduce"),
)
_ALGORITHM: Final = re.compile(
    r"(?<![A-Za-z])(NVLS_TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|COLLNET|TREE|RING|PAT)(?:_(LL128|LL|SIMPLE))?(?![A-Za-z0-9])"
    r"|(Tree|Ring|CollNet)(LL128|LL)?Kernel"
)
_POINT_TO_POINT: Final = re.compile(r"Send_?Recv", re.I)


class KernelName(NamedTuple):
    """None where the name does not tell."""

    collective: str | None = None
    algorithm: str | None = None
    protocol: str | None = None


def kernel_name(name: str) -> KernelName:
    """The collective, the algorithm and the protocol that a kernel's name says.

    NCCL (and RCCL, which keeps its names): ``ncclKernel_AllReduce_RING_LL_Sum_float``,
    ``ncclDevKernel_AllReduce_Sum_f32_TREE_LL128``, ``ncclAllReduceRingLLKernel_sum_f32``. Kernels of point-to-point
    transfers are all named RING SIMPLE, whatever they do: their names tell nothing.
    """
    if _POINT_TO_POINT.search(name):
        return KernelName()
    collective = next((canonical for pattern, canonical in _COLLECTIVES if pattern.search(name)), None)
    match = _ALGORITHM.search(name)
    if not match:
        return KernelName(collective)
    algorithm, protocol, old_algorithm, old_protocol = match.groups()
    if algorithm:
        return KernelName(collective, algorithm, protocol)
    return KernelName(collective, old_algorithm.upper(), old_protocol or "SIMPLE")
