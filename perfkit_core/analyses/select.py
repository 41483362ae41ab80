"""Which events a view looks at: step numbers and a pattern on the name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import STEP
from perfkit_core.trace import BoolArray, Trace


def selected(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events of the wanted steps whose name matches, shape (rows,). Raises UsageError."""
    return in_steps(trace, request) & matching(trace, request.pattern)


def in_steps(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events of the wanted steps; all when none are named. Raises UsageError for a step that is not there."""
    if request.steps is None:
        return np.ones(len(trace), np.bool_)
    step = trace.ints("step")
    recorded = np.unique(step[trace.rows("kind", STEP)])
    missing = sorted(set(request.steps) - set(recorded.tolist()))
    if missing:
        known = ", ".join(map(str, recorded[:20])) or "none"
        raise UsageError(f"step {missing[0]} was not recorded", f"recorded steps: {known}")
    return np.isin(step, request.steps)


def matching(trace: Trace, pattern: str | None) -> BoolArray:
    """True where the name contains a match. RE2 takes time linear in the name: no pattern can hang."""
    names = trace.codes("name")
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    try:
        hits = pc.match_substring_regex(pa.array(names.values, pa.string()), pattern)
    except pa.ArrowInvalid as error:
        raise UsageError(f"not a regular expression: {pattern!r} ({error})", "RE2 syntax, see --help") from None
    found: BoolArray = names.lookup(np.asarray(hits.to_numpy(zero_copy_only=False), np.bool_), False)
    return found
