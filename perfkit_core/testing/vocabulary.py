"""Steps, phases and canonical operator names: do the assigned ones agree with the events that define them?"""

from __future__ import annotations

import numpy as np

from perfkit_core import schema
from perfkit_core.operator_names import is_canonical
from perfkit_core.schema import NO_ROW
from perfkit_core.testing.require import require, require_rows
from perfkit_core.trace import BoolArray, Trace

_SPANS = tuple(phase for phase in schema.PHASES if phase != schema.OTHER)


def check_steps(trace: Trace) -> None:
    """Every number is that of a recorded step; host events start inside it; device work has that of its launch."""
    step = trace.ints("step")
    steps = trace.rows("kind", schema.STEP) & trace.host
    require_rows(trace, ~steps | (step >= 0), "a step without a number")
    require_rows(trace, (step < 0) | np.isin(step, step[steps]), "the number of a step that was not recorded")
    require_rows(trace, ~trace.host | (step < 0) | steps | _starts_inside(trace), "a host event outside its step")
    require_rows(trace, _same_as_launch(trace, step), "device work in another step than its launch")


def _starts_inside(trace: Trace) -> BoolArray:
    """True for events that start in one of the steps (of their rank) that have their number."""
    step, rank, start = trace.ints("step"), trace.ints("rank"), trace.ints("start_ns")
    inside = np.zeros(len(trace), np.bool_)
    for row in np.flatnonzero(trace.rows("kind", schema.STEP) & trace.host):
        mine = (step == step[row]) & (rank == rank[row])
        inside |= mine & (start >= start[row]) & (start < trace.end_ns[row])
    return inside


def check_phases(trace: Trace) -> None:
    """A phase covers the subtree of the span that marks it, and the device work launched in there."""
    phase = trace.codes("phase").lookup(
        np.array([schema.PHASES.index(v) for v in trace.codes("phase").values], int), -1
    )
    parent = trace.ints("parent")
    child = np.flatnonzero(parent != NO_ROW)
    above = phase[parent[child]]
    good = np.ones(len(trace), np.bool_)
    good[child] = (above < 0) | (above == schema.PHASES.index(schema.OTHER)) | (phase[child] == above)
    require_rows(trace, good, "an event has another phase than the span around it")
    for index, kind in enumerate(_SPANS):
        top = trace.host & trace.rows("kind", kind) & ~_inside_phase(trace, phase)
        require_rows(trace, ~top | (phase == index), f"a {kind} span that is not in the phase {kind}")
    require_rows(trace, _same_as_launch(trace, phase), "device work in another phase than its launch")
    told = bool((phase[trace.host] >= 0).any())
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    require_rows(
        trace, ~nests | ((phase >= 0) == told), "phases are known for some events that nest, and null for others"
    )


def _inside_phase(trace: Trace, phase: np.ndarray) -> BoolArray:
    parent = trace.ints("parent")
    above = np.where(parent == NO_ROW, -1, phase[parent])
    return np.asarray((above >= 0) & (above != schema.PHASES.index(schema.OTHER)), np.bool_)


def _same_as_launch(trace: Trace, values: np.ndarray) -> BoolArray:
    launched_by = trace.ints("launched_by")
    return np.asarray((launched_by == NO_ROW) | (values == values[launched_by]), np.bool_)


def check_operator_names(trace: Trace) -> None:
    """Canonical names come from the vocabulary, and only operators have one."""
    names = trace.codes("op_name")
    for code in np.unique(names.codes[names.codes >= 0]):
        require(is_canonical(names.values[code]), f"not a canonical operator name: {names.values[code]!r}")
    operators = trace.rows("kind", *schema.OPERATOR_KINDS)
    require_rows(trace, operators | (names.codes < 0), "op_name of an event that is no operator")
