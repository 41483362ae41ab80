"""The stacks that a native table shows for backward operators: those of the forward operators that they belong to.

torch replaces the stack of each backward node, and of all that it calls, by that of the first event outside of backward
with the same sequence number, or by none. That first event may only have been begun before the node's own operator.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses.source import stacks
from perfkit_core.schema import BACKWARD, NESTED_KINDS, NO_ROW
from perfkit_core.trace import BoolArray, IntArray, Trace


def forward_stacks(trace: Trace, rows: IntArray) -> pd.Categorical:
    """As :func:`~perfkit_core.analyses.source.stacks.as_recorded`, those of backward operators replaced. Same shape."""
    node = nesting.nearest_on_path(trace.ints("parent"), _backward_nodes(trace))
    source = np.where(node == NO_ROW, np.arange(len(trace)), np.append(_first(trace, node), NO_ROW)[node])
    whole = stacks.as_recorded(trace, np.maximum(source[rows], 0))
    codes = np.where(source[rows] == NO_ROW, -1, whole.codes)
    return pd.Categorical.from_codes(codes, categories=whole.categories)


def _backward_nodes(trace: Trace) -> BoolArray:
    """Backward events that are called by an event named after them (``evaluate_function: XBackward`` calls
    ``XBackward``)."""
    parent, name = trace.ints("parent"), trace.codes("name")
    rows = np.flatnonzero(trace.host & trace.rows("phase", BACKWARD) & (parent != NO_ROW))
    own, above = name.codes[rows].astype(np.int64), name.codes[parent[rows]].astype(np.int64)
    pairs, inverse = np.unique(above * len(name.values) + own, return_inverse=True)
    texts = name.values
    named = [
        texts[a] != texts[b] and texts[a].endswith(texts[b]) for a, b in (divmod(int(p), len(texts)) for p in pairs)
    ]
    found = np.zeros(len(trace), np.bool_)
    found[rows] = np.array(named, np.bool_)[inverse] if len(rows) else False
    return found


def _first(trace: Trace, node: IntArray) -> IntArray:
    """For each event the first one outside of backward nodes with its sequence number, -1 for none."""
    sequence = trace.ints("sequence")
    keys = pd.MultiIndex.from_arrays([trace.ints("rank"), sequence])
    outside = np.flatnonzero(trace.host & trace.rows("kind", *NESTED_KINDS) & (node == NO_ROW) & (sequence >= 0))
    outside = outside[~keys[outside].duplicated(keep="first")]
    return np.append(outside, NO_ROW)[keys[outside].get_indexer(keys)]
