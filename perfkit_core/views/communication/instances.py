"""Collectives of a recording: their events, their properties, and the matching of collectives over ranks.

A host call communicates if it has the kind communication, or is an operator with the canonical name of a collective.
A kernel communicates if it is from a collective library, or if the innermost operator around its launch is such a call:
the span of an asynchronous collective also contains the launches of operators that compute.

Each of these is one collective:

- a kernel of a collective library such as NCCL, or another device event of kind communication,
- the set of communicating kernels of one host call, if none of them is from a collective library,
- a communicating host call that launched no kernels.

All ranks of a group issue its collectives in the same order. Collectives are matched by the number that the library
gave them, else by their position in the step (without steps: in the recording). Matched collectives must have the same
name and size. If two differ, they and all later collectives of the group in this step are not matched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, filled
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import Reduced, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.collective import HOST, TABLE
from perfkit_core.trace.model.schema import COMMUNICATION, KERNEL, OPERATOR, OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import in_steps, marked, ranks, selected
from perfkit_core.views.steps.step_rows import step_frame, step_rows
from perfkit_core.views.tables import integers

COLLECTIVES: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "recv", "barrier",
)  # fmt: skip
"""The canonical operators that communicate."""
COLLECTIVE_CALL: Final = "collective_call"
"""The canonical name of operators that wrap a collective."""
POINT_TO_POINT: Final = ("send", "recv")
_SAME_SIZE: Final = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")

_KERNELS: Final = re.compile(
    r"nccl|rccl|xccl|hccl|hcom_|oneccl|msccl|cross_device_reduce|multimem_all_|(?:one|two)_shot_all_reduce",
    re.IGNORECASE,
)
"""Names of the collective libraries of NVIDIA, AMD, Kunlun, Ascend, Intel and Microsoft, and of kernels that inference
engines and symmetric memory use instead of a library."""


@dataclass(frozen=True, slots=True)
class Communication:
    """The events that communicate. Arrays have shape (rows,)."""

    calls: BoolArray  # outermost host calls
    host: BoolArray  # outermost host calls that launched no kernels
    device: BoolArray  # device events
    call: IntArray  # row of the outermost host call around a host event or around the launch of ``device``, else -1


@once
def communication(trace: Trace) -> Communication:
    operators = trace.rows("kind", OPERATOR) & trace.rows("op_name", *COLLECTIVES)
    call = trace.host & (trace.rows("kind", COMMUNICATION) | operators)
    parent, launched_by = trace.ints("parent"), trace.ints("launched_by")
    outermost = nesting.outermost(parent, call)
    rows = np.flatnonzero(launched_by != NO_ROW)
    launches = launched_by[rows]
    rows, launches = rows[outermost[launches] != NO_ROW], launches[outermost[launches] != NO_ROW]
    other_operators = trace.host & trace.rows("kind", *OPERATOR_KINDS) & ~trace.rows("op_name", COLLECTIVE_CALL)
    innermost = nesting.nearest_on_path(parent, call | other_operators)
    launched = rows[call[innermost[launches]]]
    kernels = trace.rows("kind", KERNEL)
    device = kernels & (named_as_collective(trace) | marked(trace, launched))
    device |= ~trace.host & trace.rows("kind", COMMUNICATION)
    calls = call & ~nesting.lies_in(parent, call)
    host = calls & ~marked(trace, outermost[launches[kernels[rows] | device[rows]]])
    outermost[rows] = np.where(device[rows], outermost[launches], NO_ROW)
    return Communication(calls, host, device, outermost)


@once
def named_as_collective(trace: Trace) -> BoolArray:
    """Return the mask of device events whose name is that of a collective's kernel, shape (rows,)."""
    if trace.host.all():
        return filled(len(trace), False, np.bool_)
    names = trace.codes("name")
    matches = np.fromiter((_KERNELS.search(name) is not None for name in names.values), np.bool_, len(names.values))
    mask: BoolArray = names.lookup(matches, False) & ~trace.host
    return mask


DETAILS: Final = ("peer", "tag", "received", "received_rows", "sent")
_NUMBERS: Final = ("group_size", "sequence", *DETAILS)
_DESCRIBED: Final = ("name", "group", "members", "dtype", "on", *_NUMBERS)
_UNKNOWN: Final = -1


@once
def descriptions(trace: Trace) -> pd.DataFrame:
    """Return the recorded descriptions of collectives. The index has the rows of the described events. The columns are
    the fields of :class:`perfkit_core.trace.model.collective.Collective`, None if unknown, and ``call``, the row of the
    outermost host call around the event or its launch, -1 if none."""
    talk = communication(trace)
    candidates = _in_calls(trace, talk) | talk.device
    table = trace.tables[TABLE.name]
    table = table.filter(pa.array(candidates[table["row"].to_numpy()]))
    rows = table["row"].to_numpy()
    values = {name: table[name].to_pylist() for name in _DESCRIBED}
    frame = pd.DataFrame(values, pd.Index(rows, dtype=np.int64), dtype=object)
    frame["call"] = talk.call[rows]
    return frame


@once
def instances(trace: Trace) -> pd.DataFrame:
    """Return one row per collective, sorted by rank and time of issue. Columns:

    - row (in the event table), start_ns, dur_ns, issue_ns (start of the host call): int64.
    - rank, step, stream, group_size, sequence, bytes, peer, tag, sent, received, received_rows:
      Int64, NA if unknown.
    - collective, group, members, dtype, algorithm, protocol: text, None if unknown."""
    talk, about = communication(trace), descriptions(trace)
    single = talk.device & (named_as_collective(trace) | trace.rows("kind", COMMUNICATION))
    shared = np.flatnonzero(talk.device & ~single & (talk.call != NO_ROW))
    last_end = filled(len(trace), 0)  # the end of each call's last device work
    launched = np.flatnonzero(talk.device & (talk.call != NO_ROW))
    np.maximum.at(last_end, talk.call[launched], trace.end_ns[launched])
    shared = shared[~np.isin(talk.call[shared], talk.call[single])]
    shared = shared[np.unique(talk.call[shared], return_index=True)[1]]  # keep the first kernel of each call
    on_host = about.index.to_numpy(np.int64)[(about["on"] == HOST).to_numpy(np.bool_)]
    if about.empty:
        on_host = np.flatnonzero(talk.host & trace.rows("op_name", *COLLECTIVES))
    rows = np.concatenate([np.flatnonzero(single), shared, on_host])

    start, end, call = trace.ints("start_ns")[rows], trace.end_ns[rows], talk.call[rows]
    end = np.where(talk.device[rows] & ~single[rows], last_end[call], end)
    issue = np.where(call == NO_ROW, start, trace.ints("start_ns")[call])
    places = {
        name: integers(trace.ints(name)[rows], trace.ints(name)[rows] >= 0) for name in ("rank", "step", "stream")
    }
    times = {"start_ns": start, "dur_ns": end - start, "issue_ns": issue}
    frame = pd.DataFrame({"row": rows, **places, **times, **facts(trace, talk, rows)})
    return frame.sort_values(["rank", "issue_ns", "start_ns"], kind="stable", na_position="first", ignore_index=True)


def _in_calls(trace: Trace, talk: Communication) -> BoolArray:
    inside: BoolArray = trace.host & (talk.call != NO_ROW) & trace.rows("kind", *OPERATOR_KINDS)
    return inside


def facts(trace: Trace, talk: Communication, rows: IntArray) -> dict[str, Any]:
    """Return the columns of :func:`instances` that describe the collectives ``rows``, such as group and bytes. A value
    is taken from the event itself, else from the call that launched it, else from the name of the kernel."""
    about, call = descriptions(trace).drop(columns="on"), talk.call[rows]
    by_event = about.drop(columns="call").reindex(rows)
    by_call = about[about["call"] != NO_ROW].groupby("call").first().reindex(call)
    # An asynchronous call on the host may seem to enclose the calls that follow it, which have details of their own.
    by_call.loc[~talk.device[rows], list(DETAILS)] = None
    best = {str(name): _first_known(by_event[name].tolist(), by_call[name].tolist()) for name in by_event}

    codes, inverse = np.unique(trace.codes("name").codes[rows], return_inverse=True)
    distinct = [kernel_name(trace.codes("name").values[code]) for code in codes]
    kernels = [distinct[i] if device else KernelName() for i, device in zip(inverse, talk.device[rows], strict=True)]
    op_names = trace.codes("op_name")
    operators = [
        op_names.values[code] if code >= 0 and op_names.values[code] in COLLECTIVES else None
        for code in op_names.codes[np.where(call == NO_ROW, rows, call)]
    ]
    texts = {"collective": _first_known(best["name"], operators, [kernel.collective for kernel in kernels])}
    texts |= {name: best[name] for name in ("group", "members", "dtype")}
    texts |= {name: [getattr(kernel, name) for kernel in kernels] for name in ("algorithm", "protocol")}
    columns: dict[str, Any] = {name: pd.Series(values, dtype=object) for name, values in texts.items()}
    columns |= {name: pd.Series(best[name], dtype="Int64") for name in _NUMBERS}

    # An event without a size gets the largest size in its call, if the call contains only one collective.
    size = trace.ints("bytes", _UNKNOWN)
    largest = np.full(len(trace) + 1, _UNKNOWN, np.int64)
    inside = np.flatnonzero(_in_calls(trace, talk))
    np.maximum.at(largest, talk.call[inside], size[inside])
    alone = np.bincount(call + 1, minlength=len(trace) + 1)[call + 1] == 1
    of_call = np.where(alone & (call != NO_ROW), largest[call], _UNKNOWN)
    size = np.where(size[rows] != _UNKNOWN, size[rows], of_call)
    return columns | {"bytes": integers(size, size != _UNKNOWN)}


def _first_known(*choices: list[Any]) -> list[Any]:
    return [next((value for value in values if pd.notna(value)), None) for values in zip(*choices, strict=True)]


_NAMES: Final = (
    (re.compile(r"all_?reduce", re.I), "all_reduce"),
    (re.compile(r"all_?gather", re.I), "all_gather"),
    (re.compile(r"reduce_?scatter", re.I), "reduce_scatter"),
    (re.compile(r"all_?to_?all", re.I), "all_to_all"),
    (re.compile(r"broadcast", re.I), "broadcast"),
    (re.compile(r"(?:nccl|rccl|xccl|hccl|hcom_)\w*?reduce", re.I), "reduce"),
    (re.compile(r"(?:hccl|hcom_)_?send(?!_?rec)", re.I), "send"),
    (re.compile(r"(?:hccl|hcom_)_?rec(?:v|eive)", re.I), "recv"),
)
_ALGORITHM: Final = re.compile(
    r"(?<![A-Za-z])(NVLS_TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|COLLNET|TREE|RING|PAT)(?:_(LL128|LL|SIMPLE))?(?![A-Za-z0-9])"
    r"|(Tree|Ring|CollNet)(LL128|LL)?Kernel"
)
SEND_RECV: Final = re.compile(r"Send_?Recv", re.I)


class KernelName(NamedTuple):
    collective: str | None = None
    algorithm: str | None = None
    protocol: str | None = None


def kernel_name(name: str) -> KernelName:
    """Return the collective, the algorithm and the protocol that a kernel's name states. A missing part is None.

    Examples of NCCL and RCCL: ``ncclKernel_AllReduce_RING_LL_Sum_float``,
    ``ncclDevKernel_AllReduce_Sum_f32_TREE_LL128``, ``ncclAllReduceRingLLKernel_sum_f32``. The names of point-to-point
    kernels always contain RING and SIMPLE, so these parts are ignored. HCCL names a collective ``hcom_allReduce__``,
    followed by numbers of the group and the call."""
    if SEND_RECV.search(name):
        return KernelName()
    collective = next((canonical for pattern, canonical in _NAMES if pattern.search(name)), None)
    match = _ALGORITHM.search(name)
    if not match:
        return KernelName(collective)
    algorithm, protocol, old_algorithm, old_protocol = match.groups()
    if algorithm:
        return KernelName(collective, algorithm, protocol)
    return KernelName(collective, old_algorithm.upper(), old_protocol or "SIMPLE")


UNMATCHED: Final = -1
_SEQUENCE: Final = ["group", "members", "anchor"]


def matched(collectives: pd.DataFrame, world_size: int | None) -> pd.DataFrame:
    """Return the collectives of all ranks (:func:`instances`) with three more columns:

    - ``match``: the number of the collective, which is equal on all ranks. -1 if not matched.
    - ``of_ranks``: the number of ranks that recorded the collective.
    - ``complete``: whether all ranks of the group recorded the collective.

    An unknown ``group_size`` is filled in if all ranks of the job took part."""
    collectives = collectives.assign(match=np.int64(UNMATCHED))
    of_groups = collectives["collective"].isin(COLLECTIVES) & ~collectives["collective"].isin(POINT_TO_POINT)
    wide = collectives[of_groups & collectives["rank"].notna()]
    by_number = wide["sequence"].notna()
    anchor = wide["sequence"].where(by_number, wide["step"]).fillna(-1).astype(str)
    # groupby drops missing keys, so replace them by a value
    wide = wide.assign(
        group=wide["group"].fillna(""),
        members=wide["members"].fillna(""),
        anchor=anchor.where(~by_number, "#" + anchor),
        size=wide["bytes"].where(wide["collective"].isin(_SAME_SIZE)).fillna(-1).astype("int64"),
    )
    wide = wide.assign(order=wide.groupby(["rank", *_SEQUENCE], sort=False).cumcount())
    same = wide.groupby([*_SEQUENCE, "order"], sort=False)
    differs = (same["collective"].transform("nunique") > 1) | (same["size"].transform("nunique") > 1)
    first = wide["order"].where(differs).groupby([wide[name] for name in _SEQUENCE]).transform("min")
    wide = wide[wide["order"] < first.fillna(np.inf)]
    collectives.loc[wide.index, "match"] = wide.groupby([*_SEQUENCE, "order"], sort=False).ngroup()

    is_matched = collectives["match"] != UNMATCHED
    of_ranks = collectives.groupby("match")["rank"].transform("nunique").astype("int64").where(is_matched, 1)
    unknown = collectives["group_size"].isna() & collectives["group"].isna()
    size = collectives["group_size"].where(~(is_matched & unknown & (of_ranks == (world_size or 0))), of_ranks)
    complete = (is_matched & (of_ranks == size)).fillna(False).astype(bool)
    return collectives.assign(of_ranks=of_ranks, group_size=size, complete=complete)


Partial = dict[str, Any]
"""The data of one rank that a merge of ranks needs: ``rank`` (-1 if unknown), ``world_size``, and the tables
``collectives`` (:func:`instances`) and ``steps`` (:func:`step_frame`). Their column ``chosen`` marks selected rows."""


def reduce_each(trace: Trace, request: ViewRequest, collectives: pd.DataFrame | None = None) -> list[Partial]:
    """Return the data of each rank of a trace, in rank order. The list has at least one item. Collectives that the
    request does not select are included, because matching and the alignment of clocks need them. ``collectives`` is the
    table of :func:`instances`, which may have more columns."""
    chosen, collectives = selected(trace, request), instances(trace) if collectives is None else collectives
    collectives = collectives.drop(columns="row").assign(chosen=chosen[collectives["row"].to_numpy()])
    rows = step_rows(trace)
    steps = step_frame(trace, rows).assign(chosen=in_steps(trace, request)[rows])
    return [
        {
            "rank": rank,
            "collectives": collectives[collectives["rank"].fillna(-1) == rank].reset_index(drop=True),
            "steps": steps[steps["rank"].fillna(-1) == rank].reset_index(drop=True),
            "world_size": trace.meta.world_size,
        }
        for rank in sorted({*ranks(trace).tolist(), *trace.meta.ranks}) or [-1]
    ]


def compared(
    each: Callable[[Trace, ViewRequest], list[Partial]],
    merge: Callable[[Sequence[Partial], ViewRequest], pd.DataFrame],
    explain: Callable[[Sequence[Partial]], Text] | None = None,
) -> Reduced:
    """Return a table that compares ranks. ``each`` is :func:`reduce_each`, or returns more data of each rank."""
    return Reduced(
        lambda trace, request: each(trace, request)[0],
        merge,
        explain,
        of_trace=lambda trace, request: merge(each(trace, request), request),
    )


def all_ranks(partials: Sequence[Partial]) -> list[int]:
    return sorted({partial["rank"] for partial in partials} - {-1})


def all_collectives(partials: Sequence[Partial]) -> pd.DataFrame:
    worlds = [partial["world_size"] for partial in partials if partial["world_size"]]
    return matched(together(partials, "collectives"), max(worlds, default=None))


def together(partials: Sequence[Partial], name: str) -> pd.DataFrame:
    frames = [partial[name] for partial in partials]
    joined: pd.DataFrame = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    return joined


def needs_several_ranks(count: int, otherwise: Text) -> Text:
    """Return why a view that compares ranks is empty: only one rank was recorded, or else the reason ``otherwise``."""
    return message("only one rank was recorded: give the recordings of several ranks") if count < 2 else otherwise
