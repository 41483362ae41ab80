"""Traces with a very large number of one thing. Columns are created as arrays, so that the traces can be large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.model.trace import Trace

STEP_NS = 1000


def trace_of(count: int, **columns: Any) -> Trace:
    """Return a trace of ``count`` events on one host thread, which are operators ``op`` by default. ``columns`` gives
    other values for a column: one value for all rows; an array; or a pair of the distinct texts and, for each row, the
    index of its text."""
    values = {"name": "op", "kind": schema.OPERATOR, "start_ns": 0, "dur_ns": 0, "self_ns": 0, "pid": 1, "tid": 1,
              "device": schema.CPU, "launched_by": NO_ROW, "parent": NO_ROW} | columns  # fmt: skip
    arrays = [_column(values.get(field.name), field, count) for field in schema.SCHEMA]
    ranks = np.unique(columns.get("rank", 0)).tolist()
    return Trace(pa.table(arrays, schema=schema.SCHEMA), TraceMeta(source="made", format="made", ranks=tuple(ranks)))


def _column(value: Any, field: pa.Field, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, field.type)
    if isinstance(value, tuple):
        texts, codes = value
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(texts, pa.string()))
    if isinstance(value, str):
        return _column(([value], np.zeros(count, np.int32)), field, count)
    return pa.array(np.broadcast_to(np.asarray(value, np.int64), count), field.type)


def one_instant(count: int) -> Trace:
    """Return events without duration that all occur at the same time."""
    return trace_of(count, start_ns=7)


def nested(count: int, depth: int) -> Trace:
    """Return stacks of ``depth`` operators. Each operator lies inside the previous operator of its stack."""
    level = np.arange(count) % depth
    row = np.arange(count)
    start = row // depth * 2 * depth + level
    return trace_of(count, start_ns=start, dur_ns=2 * (depth - level), self_ns=2, name=(["op", "inner"], level % 2),
                    parent=np.where(level == 0, NO_ROW, row - 1))  # fmt: skip


def all_named_apart(count: int) -> Trace:
    """Return operators that all have different names."""
    names = [f"op{number}" for number in range(count)]
    return trace_of(count, start_ns=np.arange(count), dur_ns=1, self_ns=1, name=(names, np.arange(count)))


def steps(count: int, ranks: int = 1) -> Trace:
    """Return consecutive steps of ``ranks`` ranks. In each step, each rank has a forward operator, a backward operator,
    a runtime call that launches a kernel and a copy, an allocation and a free."""
    kinds = [schema.STEP, schema.OPERATOR, schema.RUNTIME, schema.KERNEL, schema.MEMCPY, schema.MEMORY]
    width = 8
    number, part = np.arange(count * ranks), np.arange(width)
    step, first = number % count, width * number

    def rows(each: Sequence[int]) -> np.ndarray:
        return np.tile(np.asarray(each), count * ranks)

    def linked(each: Sequence[int]) -> np.ndarray:
        """Return row numbers from numbers within the step; -1 stands for no row."""
        return np.where(rows(each) < 0, NO_ROW, rows(each) + np.repeat(first, width))

    total = count * ranks * width
    return trace_of(
        total,
        name=([f"part{number}" for number in range(width)], rows(part)),
        kind=(kinds, rows([0, 1, 5, 1, 5, 2, 3, 4])),
        start_ns=np.repeat(step * STEP_NS, width) + rows([0, 0, 100, 500, 550, 600, 650, 700]),
        dur_ns=rows([STEP_NS, 400, 0, 400, 0, 10, 100, 100]),
        self_ns=rows([200, 400, 0, 390, 0, 10, 0, 0]),
        rank=np.repeat(number // count, width),
        device=(["cpu", "cuda:0"], rows([0, 0, 1, 0, 1, 0, 1, 1])),
        stream=rows([0, 0, 0, 0, 0, 0, 7, 8]),
        correlation=np.repeat(number, width),
        parent=linked([-1, 0, 1, 0, 3, 3, -1, -1]),
        launched_by=linked([-1, -1, -1, -1, -1, -1, 5, 5]),
        step=np.repeat(step, width),
        phase=(["other", "forward", "backward"], rows([0, 1, 1, 2, 2, 2, 2, 2])),
        sequence=np.repeat(number, width),
        copy_kind=(["HtoD"], np.zeros(total, np.int32)),
        bytes=rows([0, 0, 512, 0, -512, 0, 0, 64]),
        address=np.repeat(first, width),
    )


def streams(count: int) -> Trace:
    """Return kernels without a launch, each on a separate stream."""
    return trace_of(count, kind=schema.KERNEL, device="cuda:0", start_ns=np.arange(count), dur_ns=10,
                    stream=np.arange(count))  # fmt: skip


def devices(count: int, each: int) -> Trace:
    """Return a trace with ``each`` kernels on every device."""
    names = [f"cuda:{number}" for number in range(count)]
    return trace_of(count * each, kind=schema.KERNEL, device=(names, np.arange(count * each) % count),
                    start_ns=np.arange(count * each), dur_ns=10, stream=7)  # fmt: skip
