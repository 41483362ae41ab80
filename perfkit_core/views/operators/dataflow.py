"""Which operator came before which: edges of the dataflow graph, as far as a recording tells them.

A profiler records no tensors. What it records: the order on a thread, the sequence number that a forward operator
shares with its backward node, and the order on a stream. Where there are no sequence numbers, the backward nodes of a
canonical operator are tied to its forward calls in reverse order, if there are as many of them in the step.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import BACKWARD, DEVICE_WORK, OPERATOR_KINDS
from perfkit_core.model.trace import Trace, once
from perfkit_core.views import attribution
from perfkit_core.views.select import threads

GRADIENT = "_grad"
"""What a canonical backward operator ends in."""


@once
def outermost(trace: Trace) -> IntArray:
    """Row of the outermost operator around each event, itself included; -1 where there is none. Shape (rows,)."""
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    return nesting.outermost(trace.ints("parent"), operator)


@once
def nodes_of_device_work(trace: Trace) -> IntArray:
    """Row of the outermost operator that launched each device event (-1: none, and for host events), shape (rows,)."""
    owner = attribution.owners(trace)
    work = trace.rows("kind", *DEVICE_WORK)
    return np.where(work, np.append(outermost(trace), NO_ROW)[owner], NO_ROW)


def before_on_thread(trace: Trace, rows: IntArray) -> IntArray:
    """Of each operator the one before it on its thread, -1 for the first; ``rows`` in time order, shape (rows,)."""
    found = threads(trace)
    return _previous(rows, found.code[rows], len(found))


def before_on_stream(trace: Trace, rows: IntArray) -> pd.DataFrame:
    """Columns before, after (rows of operators): neighbours on a stream of a device, each pair once."""
    node = nodes_of_device_work(trace)
    work = np.flatnonzero(_mask(trace, rows)[node])
    place = [trace.ints("rank")[work], trace.codes("device").codes[work], trace.ints("stream")[work]]
    code, first = groupby.distinct(place, len(work))
    before = np.append(node, NO_ROW)[_previous(work, code, len(first))]
    pairs = pd.DataFrame({"before": before, "after": node[work]})
    return pairs[(pairs["before"] != NO_ROW) & (pairs["before"] != pairs["after"])].drop_duplicates(ignore_index=True)


def forward_of(trace: Trace, rows: IntArray) -> tuple[IntArray, BoolArray]:
    """Of each backward operator its forward operator (-1: unknown), and whether that is inferred from the order.

    Shape (len(rows),) both; ``rows`` are outermost operators.
    """
    forward = _by_sequence(trace, rows)
    inferred = _by_order(trace, rows) if (forward == NO_ROW).all() else forward
    told = forward != NO_ROW
    return np.where(told, forward, inferred), ~told & (inferred != NO_ROW)


def _by_sequence(trace: Trace, rows: IntArray) -> IntArray:
    """A node takes the sequence number at which it is made: its operator is the last one begun under that number."""
    sequence, root = trace.ints("sequence"), outermost(trace)
    backward = trace.rows("phase", BACKWARD)
    numbered = (sequence >= 0) & (root != NO_ROW)
    ran = np.flatnonzero(numbered & backward & _mask(trace, rows)[root])
    ran = ran[~pd.Index(root[ran]).duplicated(keep="first")]
    made = np.flatnonzero(numbered & ~backward & _between(sequence, sequence[ran]))
    both = np.concatenate([ran, made])
    key, first = groupby.distinct([trace.ints("rank")[both], sequence[both]], len(both))
    last = groupby.last_rows(key[len(ran) :], len(first))
    found = np.full(len(trace), NO_ROW, np.int64)
    found[root[ran]] = np.append(root[made], NO_ROW)[last[key[: len(ran)]]]
    return found[rows]


def _between(values: IntArray, wanted: IntArray) -> BoolArray:
    """True where a value lies among the wanted ones, or at least between the least and the greatest of them."""
    if not len(wanted):
        return np.zeros(len(values), np.bool_)
    between: BoolArray = (values >= wanted.min()) & (values <= wanted.max())
    return between


def _mask(trace: Trace, rows: IntArray) -> BoolArray:
    mask = np.zeros(len(trace) + 1, np.bool_)
    mask[rows] = True
    return mask


def _by_order(trace: Trace, rows: IntArray) -> IntArray:
    """The k-th backward call of an operator in a step belongs to its k-th last forward call."""
    codes = trace.codes("op_name")
    name = pd.Series([*codes.values, None], dtype=object).to_numpy()[codes.codes[rows]]
    frame = pd.DataFrame(
        {"row": rows, "name": name, "rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows]}
    )
    frame = frame[frame["name"].notna()]
    is_backward = frame["name"].str.endswith(GRADIENT)
    keys = ["rank", "step", "name"]
    after = frame[is_backward].assign(name=frame["name"].str.removesuffix(GRADIENT))
    before = frame[~is_backward]
    after = after.assign(call=after.groupby(keys).cumcount(), calls=after.groupby(keys)["row"].transform("size"))
    before = before.assign(
        call=before.groupby(keys).cumcount(ascending=False), calls=before.groupby(keys)["row"].transform("size")
    )
    pairs = after.merge(before, on=[*keys, "call", "calls"], suffixes=("", "_forward"))
    found = np.full(len(trace), NO_ROW, np.int64)
    found[pairs["row"].to_numpy(np.int64)] = pairs["row_forward"].to_numpy(np.int64)
    return found[rows]


def _previous(rows: IntArray, place: IntArray, places: int) -> IntArray:
    """Of each row (ascending) the one before it in the same place, a number below ``places``; -1 for the first."""
    order = groupby.stable_order(place, places)
    same = np.zeros(len(rows), np.bool_)
    same[1:] = np.diff(place[order]) == 0
    before = np.full(len(rows), NO_ROW, np.int64)
    before[order] = np.where(same, np.roll(rows[order], 1), NO_ROW)
    return before
