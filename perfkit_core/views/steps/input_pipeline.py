"""View ``input_pipeline``: the time that steps wait for their input, and the copies of the input to the device.

- Input wait: the time that the step's thread spends in the data loader, even while a device works. (The view
  ``partition`` counts it only while no device works.)
- Loader: the recorded name, which shows whether the loader uses worker processes. Profilers do not record the workers.
  ``perfkit.profile`` records the waits for other iterables, such as ``perfkit.input:batches`` of a generator.
- Copies: host-to-device copies launched in the step. The hidden part is the time during which a device computes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, groupby, intervals
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import count, duration, share, size, text
from perfkit_core.trace.model.schema import MEMCPY
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.activity import activities, loader_calls
from perfkit_core.views.steps.step_rows import OF_STEP, chosen_steps, position, step_frame, step_rows


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per step, with :data:`COLUMNS`. Loader columns are NA if no loader was recorded. ``copied_bytes``
    is NA if the step has copies but none has a recorded size."""
    steps, acts = chosen_steps(trace, request), activities(trace)
    loads = acts.loading & loader_calls(trace)
    kinds = trace.codes("copy_kind")
    to_device = kinds.lookup(np.array([kind.startswith("HtoD") for kind in kinds.values], np.bool_), False)
    copies = trace.rows("kind", MEMCPY) & to_device
    if not (loads.any() or copies.any()):
        steps = steps[:0]
    result, steps_count = step_frame(trace, steps), len(steps)
    start, end = trace.ints("start_ns"), trace.end_ns

    rows, step = _in_step(trace, steps, loads)
    name = trace.codes("name")
    names: list[list[str]] = [[] for _ in range(steps_count)]
    for at, code in np.unique(np.stack([step, name.codes[rows]]), axis=1).T.tolist():
        names[at].append(name.values[code])
    number = np.bincount(step, minlength=steps_count).astype(np.int64)
    rows, step = _in_step(trace, steps, acts.loading)
    wait = intervals.union_length_by(step, steps_count, start[rows], end[rows])
    unknown = np.full(steps_count, not loads.any())
    result["loader"] = pd.Series([", ".join(sorted(loaders)) or pd.NA for loaders in names], dtype=object)
    result["loads"] = pd.arrays.IntegerArray(number, unknown)
    result["input_wait_ns"] = pd.arrays.IntegerArray(wait, unknown)
    result["input_ratio"] = pd.arrays.FloatingArray(wait / np.maximum(result["dur_ns"].to_numpy(np.int64), 1), unknown)

    rows, step = _in_step(trace, steps, copies)
    size = trace.ints("bytes", -1)[rows]
    number = np.bincount(step, minlength=steps_count).astype(np.int64)
    unknown = (groupby.sums(step, steps_count, size >= 0) == 0) & (number > 0)
    result["copies"] = number
    result["copied_bytes"] = pd.arrays.IntegerArray(groupby.sums(step, steps_count, np.maximum(size, 0)), unknown)
    result["copy_ns"] = intervals.union_length_by(step, steps_count, start[rows], end[rows])
    step, first, last = intervals.union_by(step, steps_count, start[rows], end[rows])
    ranks, code = np.unique(trace.ints("rank")[steps][step], return_inverse=True)
    hidden = np.zeros(steps_count, np.int64)
    for rank, in_rank in zip(ranks.tolist(), groupby.parts(code, len(ranks)), strict=True):
        np.add.at(
            hidden, step[in_rank], intervals.covered_ns(acts.of(trace, rank).compute, first[in_rank], last[in_rank])
        )
    return result.assign(hidden_copy_ns=hidden)


def _in_step(trace: Trace, steps: arrays.IntArray, events: arrays.BoolArray) -> tuple[arrays.IntArray, arrays.IntArray]:
    """Return the rows of ``events`` (a mask) that lie in a step, and the index of each row's step in ``steps``."""
    rows = np.flatnonzero(events)
    step = position(trace, steps, trace.ints("rank")[rows], trace.ints("step")[rows])
    return rows[step >= 0], step[step >= 0]


COLUMNS = (
    *OF_STEP,
    text("loader", "Loader", "names of the data loaders, separated by commas"),
    count("loads", "Loads", "calls of the data loader"),
    duration("input_wait_ns", "Input wait"),
    share("input_ratio", "Input", description="input wait as a share of the step time"),
    count("copies", "Copies"),
    size("copied_bytes", "Copied"),
    duration("copy_ns", "Copy", "union of the copies"),
    duration("hidden_copy_ns", "Hidden copy", "part of the copy time in which a device also computes"),
)

VIEW = View(
    name="input_pipeline",
    title="Input of the steps",
    description="each step's wait for the data loader, and the copies of its input to the device",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: (
        message("neither a data loader nor copies from the host to a device were recorded")
        if len(step_rows(trace))
        else WITHOUT_STEPS
    ),
)
