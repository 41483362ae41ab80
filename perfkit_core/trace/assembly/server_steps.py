"""Steps of inference servers: what an adapter reads from the name of a range, and which ranges become steps.

A server labels each step with a range whose name says what the step computes. An adapter returns a
:class:`ServingStep` for such a name (``Dialect.serving_step``), and declares the range as a step without a number. The
description is stored in ``args`` under :data:`SERVING_KEY`.

- If the profiler recorded steps of its own, these stay the steps. A step that contains exactly one outermost range of
  a server gets the description of this range.
- Otherwise the outermost ranges are the steps, numbered from 0 in time order.
- All other ranges of servers are annotations.

A server launches a step while a device still computes earlier steps. So a step ends when its range and the device work
that it launched have ended, and not before earlier steps. The time of a step is the time since the end of the previous
step. Without device work in the steps, a step ends with its range, and the gap lies between two ranges.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import mark
from perfkit_core.trace.assembly import labels
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace

PREFILL: Final = mark("prefill")
DECODE: Final = mark("decode")
MIXED: Final = mark("mixed")
DENOISE: Final = mark("denoise")
CAPTURE: Final = mark("capture")
KINDS: Final = (PREFILL, DECODE, MIXED, DENOISE, CAPTURE)
"""Kinds of steps. A mixed step computes prompts and continues answers. A capture records a graph of kernels, whose
replays are later steps."""
SERVING_KEY: Final = "perfkit.serving"
"""The key in ``args`` under which the description of a step is stored."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]  # larger numbers are no counts, and their sums exceed 64 bits
Time = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class ServingStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server step computes. A field is None if the name of the range does not say it."""

    kind: str
    requests: Count | None = None  # number of requests; of a capture, its batch size
    context_requests: Count | None = None  # requests whose prompt is computed
    generation_requests: Count | None = None  # requests whose answer is continued
    tokens: Count | None = None  # tokens computed: query lengths, summed over the requests
    context_tokens: Count | None = None
    generation_tokens: Count | None = None
    context_keys: Count | None = None  # key lengths, summed over the requests
    generation_keys: Count | None = None
    time_ns: Time | None = None  # from the end of the previous step to the end of this step
    gap_ns: Time | None = None  # from the end of the device work of earlier steps to the first work of this step


class _Args(msgspec.Struct):
    step: ServingStep | None = msgspec.field(name=SERVING_KEY, default=None)


_DECODER: Final = msgspec.json.Decoder(_Args)


def language_step(
    context_requests: int | None, context_tokens: int | None, generation_requests: int | None,
    generation_tokens: int | None, context_keys: int | None = None, generation_keys: int | None = None,
    kind: str | None = None,
) -> ServingStep | None:  # fmt: skip
    """Return the step of a language model, or None for a step of 0 requests. If both groups have a number of requests,
    the kind follows from these. Otherwise it is ``kind``, which the name of the range says."""
    requests = None
    if context_requests is not None and generation_requests is not None:
        requests = context_requests + generation_requests
        kind = DECODE if not context_requests else MIXED if generation_requests else PREFILL
    if kind is None or requests == 0:
        return None
    groups = (context_requests, context_tokens), (generation_requests, generation_tokens)
    unknown = any(number is None for requests, number in groups if requests != 0)
    tokens = None if unknown else sum(number or 0 for _, number in groups)
    return ServingStep(
        kind, requests, context_requests, generation_requests, tokens, context_tokens, generation_tokens, context_keys,
        generation_keys,
    )  # fmt: skip


def with_step(text: str | None, step: ServingStep | None) -> str | None:
    """Return the ``args`` of an event with the description added, or unchanged if there is none."""
    if step is None or (text is not None and not text.startswith("{")):
        return text
    added = msgspec.json.encode({SERVING_KEY: step}).decode()
    return added if text in (None, "{}") else f"{text[:-1]},{added[1:]}"


def _described(texts: Sequence[str | None]) -> list[ServingStep | None]:
    steps: list[ServingStep | None] = [None] * len(texts)
    for number, text in enumerate(texts):
        if text is not None and f'"{SERVING_KEY}"' in text:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                steps[number] = _DECODER.decode(text).step
    return steps


@once
def serving_steps(trace: Trace) -> tuple[IntArray, list[ServingStep]]:
    """Return the rows of the steps that a server described, in the order of the trace, and their descriptions."""
    rows = np.flatnonzero(trace.host & trace.rows("kind", schema.STEP))
    described = [(row, step) for row, step in zip(rows, _described(trace.pick("args", rows).to_pylist()), strict=True)
                 if step is not None and step.kind in KINDS]  # fmt: skip
    return np.array([row for row, _ in described], np.int64), [step for _, step in described]


def with_server_steps(draft: Trace) -> Trace:
    """Return the events of a draft, sorted by time, in which only those ranges of a server that are steps have the kind
    ``step``."""
    rows = np.flatnonzero(draft.host & draft.rows("kind", schema.STEP))
    numbered = draft.ints("step")[rows] >= 0
    framework_steps, ranges = rows[numbered], rows[~numbered]  # the name of a server's range has no number
    ranges = ranges[[step is not None for step in _described(draft.pick("args", ranges).to_pylist())]]
    if not len(ranges):
        return draft
    thread, _ = groupby.distinct([draft.ints(name)[ranges] for name in ("pid", "tid")], len(ranges))
    start, end = draft.ints("start_ns"), draft.end_ns
    outer = ranges[nesting.nest(thread, start[ranges], end[ranges]) == NO_ROW]
    if not len(framework_steps):
        return with_kind(draft, np.setdiff1d(ranges, outer), schema.ANNOTATION)
    step = np.searchsorted(start[framework_steps], start[outer], side="right") - 1
    inside = (step >= 0) & (start[outer] < end[framework_steps][step])
    only = inside & (np.bincount(step[inside], minlength=len(framework_steps))[step] == 1)
    steps, descriptions = framework_steps[step[only]], _described(draft.pick("args", outer[only]).to_pylist())
    args = draft.pick("args", steps).to_pylist()
    texts = [with_step(*pair) for pair in zip(args, descriptions, strict=True)]
    return with_kind(with_args(draft, steps, texts), ranges, schema.ANNOTATION)


def with_times(trace: Trace) -> Trace:
    """Return the trace of one process with the times and gaps of the steps added to their descriptions."""
    rows, steps = serving_steps(trace)
    if not len(rows):
        return trace
    number = trace.ints("step")[rows]
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    device = trace.rows("kind", *schema.DEVICE_WORK)
    work = np.flatnonzero(device & np.isin(trace.ints("step"), number))
    order = np.argsort(number, kind="stable")
    step = order[np.searchsorted(number[order], trace.ints("step")[work])]
    first, last, works = start, end, np.ones(len(rows), np.bool_)
    if len(work):
        first, _ = groupby.extremes(step, len(rows), trace.ints("start_ns")[work])
        _, last = groupby.extremes(step, len(rows), trace.end_ns[work])
        works = np.bincount(step, minlength=len(rows)) > 0
    ended = np.maximum.accumulate(np.maximum(end, np.where(works, last, end)))
    gaps: dict[int, int] = {}
    if len(work) or not device.any():  # if no step launched the recorded device work, its gaps are unknown
        busy = np.flatnonzero(works)
        before = np.maximum.accumulate(last[busy])
        gaps.update(zip(busy[1:].tolist(), np.maximum(first[busy[1:]] - before[:-1], 0).tolist(), strict=True))
    times = [None, *np.diff(ended).tolist()]
    timed = [msgspec.structs.replace(step, time_ns=times[at], gap_ns=gaps.get(at)) for at, step in enumerate(steps)]
    args = [msgspec.json.decode(text) for text in trace.pick("args", rows).to_pylist()]
    texts = [msgspec.json.encode(arg | {SERVING_KEY: step}).decode() for arg, step in zip(args, timed, strict=True)]
    return with_args(trace, rows, texts)


def with_args(trace: Trace, rows: IntArray, texts: Sequence[str | None]) -> Trace:
    """Return the trace with the args of some rows, in ascending order, replaced."""
    mask = np.zeros(len(trace), np.bool_)
    mask[rows] = True
    columns = labels.replaced(pa.table({"args": trace.column("args")}), "args", mask, pa.array(texts, pa.string()))
    return trace.with_columns(args=columns["args"])


def with_kind(trace: Trace, rows: IntArray, kind: str) -> Trace:
    """Return the trace with the kind of some rows replaced."""
    if not len(rows):
        return trace
    kinds = trace.codes("kind")
    values = [*kinds.values, *({kind} - set(kinds.values))]
    codes = kinds.codes.copy()
    codes[rows] = values.index(kind)
    return trace.with_columns(kind=pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string())))


def of_kind(trace: Trace, kind: str) -> Trace:
    """Return the trace with only the steps of one kind."""
    rows, steps = serving_steps(trace)
    return without_steps(trace, rows[np.array([step.kind != kind for step in steps], np.bool_)])


def without_steps(trace: Trace, rows: IntArray) -> Trace:
    """Return the trace in which the steps in ``rows`` are annotations, and their events belong to no step."""
    step, rank = trace.ints("step"), trace.ints("rank")
    gone = np.zeros(len(trace), np.bool_)
    for number in np.unique(rank[rows]).tolist():
        gone |= (rank == number) & np.isin(step, step[rows][rank[rows] == number])
    return with_kind(trace, rows, schema.ANNOTATION).with_ints(step=np.where(gone, -1, step))
