"""Attribution of device work to host events, and rules by which the frameworks' own tables count and print events.

The owner of a device event is the innermost host event around its launch. A runtime call is an owner only if no other
host event encloses it. The self device time of a host event is the time of the device events that it owns. Its total
device time includes that of the events inside it. Both are sums over streams, so they can exceed the elapsed time.

Paddle's ``summary()`` (``native``) counts a runtime call only if another host event encloses it. It counts device work
only if the owner is not a runtime call."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, filled
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import DEVICE_WORK, MEMORY, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.tables import categorical


@once
def owners(trace: Trace) -> IntArray:
    """Return the row of each device event's owner, -1 if no launch was recorded. Host events have -1. Shape (rows,)."""
    launched = np.flatnonzero(trace.ints("launched_by") != NO_ROW)
    launcher = trace.ints("launched_by")[launched]
    above = nesting.nearest_on_path(trace.ints("parent"), ~trace.rows("kind", RUNTIME, SYNC))[launcher]
    owner = filled(len(trace), NO_ROW)
    owner[launched] = np.where(above == NO_ROW, launcher, above)
    return owner


@once
def self_device_ns(trace: Trace, *kinds: str) -> IntArray:
    """Return each host event's self device time in ns, shape (rows,). ``kinds`` selects device work (default: all)."""
    owner = owners(trace)
    work = np.flatnonzero(trace.rows("kind", *(kinds or DEVICE_WORK)) & (owner != NO_ROW))
    owner = owner[work]
    device_ns = filled(len(trace), 0)
    np.add.at(device_ns, owner, trace.ints("dur_ns")[work])
    return device_ns


@once
def total_device_ns(trace: Trace, *kinds: str) -> IntArray:
    """Return each host event's total device time in ns, shape (rows,). ``kinds`` selects device work (default: all)."""
    return nesting.sum_up(trace.ints("parent"), self_device_ns(trace, *kinds))


def native_owners(trace: Trace) -> IntArray:
    """Return the result of :func:`owners`, with -1 instead of runtime calls. Paddle's tables use these owners."""
    owner = owners(trace)
    return np.where(_calls(trace)[owner], NO_ROW, owner)


def native_counted(trace: Trace) -> BoolArray:
    calls = _calls(trace)
    alone = calls & (nesting.nearest_on_path(trace.ints("parent"), ~calls) == NO_ROW)
    lost = trace.rows("kind", *DEVICE_WORK) & (native_owners(trace) == NO_ROW)
    counts: BoolArray = ~alone & ~lost & ~trace.rows("kind", MEMORY)
    return counts


def _calls(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", RUNTIME, SYNC)


_UNKNOWN_SHAPES: Final = "[]"
_PARAMETERS: Final = r"^(?P<short>.+?<.*>)\(.*\)"


def shapes_as_printed(shapes: pd.Categorical) -> pd.Categorical:
    """Return input shapes as torch prints them. Lists of tensors and missing shapes are printed as ``[]``."""
    short = []
    for text in shapes.categories:
        try:
            arguments = msgspec.json.decode(text)
        except msgspec.DecodeError:
            arguments = None
        if isinstance(arguments, list):
            nested = [isinstance(a, list) and any(isinstance(size, list) for size in a) for a in arguments]
            shown = [[] if is_list else a for a, is_list in zip(arguments, nested, strict=True)]
            short.append(msgspec.json.encode(shown).decode())
        else:
            short.append(text)
    return categorical(np.where(shapes.codes < 0, len(short), shapes.codes), [*short, _UNKNOWN_SHAPES])


def short_kernel_names(names: pd.Categorical) -> pd.Categorical:
    """Return kernel names without the parameter list that follows the template arguments."""
    texts = pa.array(list(names.categories), pa.string())
    short = pc.coalesce(pc.struct_field(pc.extract_regex(texts, _PARAMETERS), "short"), texts)
    return categorical(names.codes, short.to_pylist())
