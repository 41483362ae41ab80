"""Steps that the user chooses in a recording: each range of a given name, or each call of a function, becomes a step
(``--step-on NAME``)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, matches
from perfkit_core.base.language.messages import message, plural
from perfkit_core.errors import UsageError
from perfkit_core.trace.assembly import lost_records, server_steps, steps
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.timed_steps import STEP_CLOCK
from perfkit_core.trace.model.trace import Trace

NONE: Final = "none"
CHOSEN: Final = "chosen-steps"
_RANGES: Final = sorted(schema.NESTED_KINDS - {schema.RUNTIME, schema.SYNC})
_OF_STEPS: Final = frozenset(
    {
        steps.NO_STEPS, steps.PARTIAL, steps.EMPTY, "overlapping-steps", "repeated-step-numbers",
        *lost_records.CODES, lost_records.CUT_OFF,
    }
)  # fmt: skip
"""Codes of findings that name recorded steps, which are replaced."""
_FUNCTION: Final = re.compile(r"(?:([\w./\\-]+):)?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
"""A function, as ``perfkit record --step-on`` takes it: ``file.py:function``, ``module:Class.method``, or its name."""
_NUMBER: Final = re.compile(r"(\d{1,18})\D?$")


def with_steps_on(trace: Trace, pattern: str) -> Trace:
    """Return the trace with the ranges named ``pattern`` as steps, instead of the recorded steps.

    ``pattern`` is the name of a range or operator, or else a function whose calls are recorded as Python frames
    (``file.py:function``, ``module:function`` or ``function``), or else an RE2 pattern that matches anywhere in the
    name. Of nested matches, only the outermost are steps. If the names of a rank's ranges end with different numbers,
    these are the step numbers; otherwise the ranges are numbered from 0. With the pattern :data:`NONE`, the trace has
    no steps, so that the whole recording counts. Raises UsageError if a rank has no such range.
    """
    mask = _matching(trace, pattern) if pattern != NONE else np.zeros(len(trace), np.bool_)
    mask &= ~nesting.lies_in(trace.ints("parent"), mask)
    changed = without_markers(trace, mask)
    names = trace.codes("name")
    number = np.full(len(trace), -1, np.int64)
    of_rank = trace.ints("rank")
    ranks = np.unique(of_rank)
    for rank in ranks if pattern != NONE else ():
        rows = np.flatnonzero(mask & (of_rank == rank))
        if not len(rows):
            scope = f"rank {rank}" if len(ranks) > 1 else "the recording"
            error = f"--step-on {pattern!r}: {scope} has no range, operator or Python frame of this name"
            raise UsageError(error, _ranges_hint(trace))
        number[rows] = step_numbers_of([names.values[code] for code in names.codes[rows]])
    changed = server_steps.with_kind(changed, np.flatnonzero(mask), schema.STEP).with_ints(step=number)
    step, findings = steps.assign_steps_of_ranks(changed)
    text = plural(
        "1 range that matches {wanted} is a step (--step-on)",
        "{n} ranges that match {wanted} are the steps (--step-on)",
        int(mask.sum()),
        wanted=pattern,
    )
    if pattern == NONE:
        text = message("the whole recording counts, without steps (--step-on none)")
        findings = ()
    unrelated = tuple(finding for finding in trace.quality if finding.code not in _OF_STEPS)
    # measured step times of the recorded steps do not belong to the chosen ones
    chosen = changed.with_ints(step=step).with_tables(step_clock=STEP_CLOCK.table({}))
    quality = (*unrelated, *lost_records.findings(chosen), *findings, Finding(CHOSEN, text, note=True))
    return replace(chosen, quality=quality)


def without_markers(trace: Trace, chosen: BoolArray) -> Trace:
    """Return the trace without the events of steps, which only mark a time: they are no work, and nothing lies in them.
    If some of the ``chosen`` ranges are recorded steps, the other recorded steps become annotations."""
    marks = trace.host & trace.rows("kind", schema.STEP)
    if (marks & chosen).any():
        return server_steps.with_kind(trace, np.flatnonzero(marks), schema.ANNOTATION)
    occupies = trace.ints("self_ns", NO_ROW) != NO_ROW
    parent = np.where(marks, NO_ROW, nesting.nearest_above(trace.ints("parent"), ~marks))
    self_ns = nesting.self_times_in_order(occupies & ~marks, parent, trace.ints("start_ns"), trace.end_ns)
    relinked = trace.with_columns(parent=pa.array(parent)).with_ints(self_ns=self_ns)
    return server_steps.with_kind(relinked, np.flatnonzero(marks), schema.OTHER)


def _matching(trace: Trace, pattern: str) -> BoolArray:
    """Return the mask of the ranges of this name, or else of the calls of this function, or else of the ranges whose
    names match the pattern."""
    names = trace.codes("name")
    ranges = trace.host & trace.rows("kind", *_RANGES)
    exact: BoolArray = ranges & trace.rows("name", pattern)
    frames = ranges & trace.rows("kind", schema.PYTHON)
    function = _FUNCTION.fullmatch(pattern)
    if not exact.any() and function and frames.any():
        exact = frames & names.lookup(matches(names.values, _frame_pattern(*function.groups())), False)
    return exact if exact.any() else ranges & names.lookup(matches(names.values, pattern), False)


def _frame_pattern(source: str | None, function: str) -> str:
    """Return an RE2 pattern of the frames of a function: ``path/file.py(line): function``. Profilers do not record the
    class of a method."""
    file = ""
    if source is not None:
        separator = r"[/\\]" if source.endswith(".py") else r"\."
        parts = re.split(separator, source.removesuffix(".py"))
        file = r"(?:^|[/\\])" + r"[/\\]".join(map(re.escape, parts)) + r"\.py"
    return file + r"\(\d+\): (?:.*\.)?" + re.escape(function.rpartition(".")[2]) + "$"


def step_numbers_of(names: list[str]) -> list[int]:
    """Return the numbers at the end of the names of ranges if they are all different, else count from 0."""
    numbers = [match and int(match[1]) for match in map(_NUMBER.search, names)]
    return [*range(len(names))] if None in numbers or len(set(numbers)) < len(names) else [n or 0 for n in numbers]


def _ranges_hint(trace: Trace) -> str:
    names, labels = trace.codes("name"), trace.host & trace.rows("kind", schema.ANNOTATION, schema.STEP)
    common = Counter(names.codes[labels].tolist()).most_common(3)
    shown = ", ".join(names.values[code] for code, _ in common)
    hint = (
        f"ranges in the recording: {shown}, … (--view annotations lists all)" if shown else "it has no labelled range"
    )
    frames = trace.rows("kind", schema.PYTHON).any()
    return hint if frames else f"{hint}; Python frames were not recorded"
