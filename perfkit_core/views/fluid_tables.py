"""Views ``fluid_head``, ``fluid_events`` and ``fluid_memcpy``: the head, the operator tree and the copies of a report
like that of Paddle 1.x. The copies are asynchronous or synchronous, by direction, inside and outside operators.

Below an outermost operator are the operators that it calls, its details (such as shape inference and computation), and
the calls that copy memory. Time is host time plus the time of the device work launched inside.

The mode of a copy follows from the name of the call that launched it (``cudaMemcpyAsync``), or from the name of an
event that the framework recorded around this call (``GpuMemcpySync:GPU->CPU``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, groupby, nesting, trees
from perfkit_core.base.algorithms.arrays import filled
from perfkit_core.base.language.messages import Message, Sentence, Text, mark, message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.columns import CALLS, DEPTH, DEVICE, HOST, NAME, RATIO, Average, Share, duration, share
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import fluid_overhead, select, tables
from perfkit_core.views.fluid_overhead import (
    GROUP,
    GROUPINGS,
    INSTANCE,
    THREAD,
    direction,
    launches,
    thread_numbers,
    total_time,
)
from perfkit_core.views.operators.calls import is_call

_HOW: Final = {True: message("apart"), False: message("merged")}


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    by_thread, by_instance = THREAD in request.by, INSTANCE in request.by
    parent, launched_by = trace.ints("parent"), trace.ints("launched_by")
    launched = np.bincount(launched_by[launches(trace)], minlength=len(trace))
    copies = np.bincount(launched_by[launches(trace, schema.MEMCPY)], minlength=len(trace))
    copy_calls = (copies > 0) & (copies == launched)  # calls that launched copies, and no other device work
    events = trace.host & trace.rows("kind", *schema.OPERATOR_KINDS, schema.OPERATOR_DETAIL)
    inside = fluid_overhead.outermost(trace, request) != arrays.NO_ROW
    member = inside & select.selected(trace, request) & ((events & is_call(trace)) | copy_calls)

    key, names = _labels(trace, member, copy_calls, by_thread, by_instance)
    tree = trees.merge(parent, key, member)
    cpu, device = trace.ints("dur_ns"), filled(len(trace), 0)
    work = launches(trace)
    np.add.at(device, launched_by[work], trace.ints("dur_ns")[work])
    device = nesting.sum_up(parent, device)
    calls, cpu_ns, device_ns = (tree.exclusive(values) for values in (np.ones(len(trace), np.bool_), cpu, device))
    total = cpu_ns + device_ns
    smallest, largest = groupby.extremes(tree.node, len(tree), cpu + device)
    result = pd.DataFrame({
        "depth": tree.depth(),
        "name": [names[node] for node in tree.key.tolist()],
        "calls": calls,
        "total_ns": total,
        "cpu_ns": cpu_ns,
        "cpu_ratio": tables.ratio(cpu_ns, total),
        "device_ns": device_ns,
        "device_ratio": tables.ratio(device_ns, total),
        "min_ns": smallest,
        "max_ns": np.maximum(largest, 0),
        "avg_ns": tables.rounded_division(total, calls),
        "ratio": tables.ratio(total, total[tree.parent == arrays.NO_ROW].sum()),
    })  # fmt: skip
    weight = trees.heaviest_first(result["name"], result["total_ns"].to_numpy(np.int64))
    return result.iloc[trees.preorder(tree.parent, weight)].reset_index(drop=True)


def _labels(
    trace: Trace, member: arrays.BoolArray, copy_calls: arrays.BoolArray, by_thread: bool, by_instance: bool
) -> tuple[arrays.IntArray, list[str]]:
    """Return the index of each event's label in a list of labels (-1 outside the mask ``member``), and this list. If
    ``by_thread``, labels look like ``thread0::conv2d``. If ``by_instance``, outermost events get ``conv2d_0``."""
    rows = np.flatnonzero(member)
    name, kind = trace.codes("name"), trace.codes("copy_kind")
    # the names of calls that copy memory end with the direction; all other events have the code `plain`
    plain = len(kind.values) + 1
    copied = np.full(len(trace), plain, np.int64)
    copies = launches(trace, schema.MEMCPY)
    copied[trace.ints("launched_by")[copies]] = kind.codes[copies]
    copied[~copy_calls] = plain
    width = len(kind.values) + 3
    pairs, text = groupby.ranked(name.codes[rows] * np.int64(width) + copied[rows] + 1, len(name.values) * width)
    texts, word = [], fluid_overhead.device_word(trace)
    for pair in pairs.tolist():
        label, code = name.values[pair // width], pair % width - 1
        towards = fluid_overhead.direction(kind.values[code] if 0 <= code < len(kind.values) else "", word)
        texts.append(label if code == plain else f"{label}: {towards}")

    top = nesting.outermost(trace.ints("parent"), member)[rows]
    parts = pd.DataFrame({"text": text, "thread": -1, "instance": -1})
    if by_thread:
        parts["thread"] = thread_numbers(trace)[0][top]
    if by_instance:
        parts.loc[top == rows, "instance"] = parts[top == rows].groupby(["text", "thread"]).cumcount()
    key = np.full(len(trace), -1, np.int64)
    key[rows], first = groupby.sorted_codes([parts[part].to_numpy(np.int64) for part in parts], len(parts))
    names = []
    for number, thread, instance in parts.iloc[first].itertuples(index=False):
        prefix, suffix = f"thread{thread}::" if thread >= 0 else "", f"_{instance}" if instance >= 0 else ""
        names.append(f"{prefix}{texts[number]}{suffix}")
    return key, names


def head(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the head of the report, one row per ``setting``. If grouped by thread, each thread has a row, too."""
    by_thread, version = THREAD in request.by, (trace.meta.framework, trace.meta.framework_version)
    recorded = len(select.step_numbers(trace))
    if not recorded:
        steps = message("no steps were recorded")
    elif request.steps is None:
        steps = message("all {count} recorded steps, and the time outside steps", count=recorded)
    else:
        numbers = ", ".join(map(str, sorted(set(request.steps))))
        steps = message("{steps} of {count} recorded steps", steps=numbers, count=recorded)
    rows: list[tuple[str, str | Text]] = [
        (mark("place"), _profiled_devices(trace)),
        (mark("framework"), " ".join(filter(None, version)) or message("not recorded")),
        (mark("steps"), steps),
        (mark("time unit"), message("unit in the heading of each column; ns in csv and json")),
        (mark("sorted by"), request.sort or str(VIEW.order)),
        (mark("operator instances"), _HOW[INSTANCE in request.by]),
        (mark("threads"), _HOW[by_thread]),
    ]
    for number, row in enumerate(thread_numbers(trace)[1].tolist() if by_thread else ()):
        rank, pid, tid = (trace.ints(name)[row] for name in select.THREAD_KEY)
        names = (trace.meta.thread_names.get(f"{r}:{pid}:{tid}") for r in (rank, 0))
        name = next((f" ({name})" for name in names if name), "")
        prefix = f"rank {rank}, " if len(trace.meta.ranks) > 1 else ""
        rows.append((f"thread{number}", f"{prefix}tid {tid}{name}"))
    values = [Sentence(value) if isinstance(value, Message) else value for _, value in rows]
    return pd.DataFrame({"setting": [name for name, _ in rows], "value": pd.Series(values, dtype=object)})


def _profiled_devices(trace: Trace) -> Text:
    """Return the profiled places, named as in Paddle 1.x: CPU, GPU or All."""
    codes = trace.codes("device")
    used = np.unique(codes.codes[trace.rows("kind", *schema.DEVICE_WORK) & (codes.codes >= 0)])
    if not len(used):
        return "CPU"
    products = {device.id: device.name for device in trace.meta.devices}
    names = sorted(codes.values[code] for code in used)
    shown = ", ".join(f"{name} ({products[name]})" if products.get(name) else name for name in names)
    host = (trace.host & trace.rows("kind", *schema.NESTED_KINDS)).any()
    return message("All: CPU and {devices}", devices=shown) if host else f"{fluid_overhead.device_word(trace)}: {shown}"


COLUMNS: Final = (
    DEPTH,
    NAME,
    CALLS,
    duration("total_ns", "Total", "CPU time plus device time", over="steps"),
    duration("cpu_ns", "CPU", over="steps", place=HOST),
    share("cpu_ratio", "CPU", Share("cpu_ns", column="total_ns"), place=HOST),
    duration("device_ns", "Device", over="steps", place=DEVICE),
    share("device_ratio", "Device", Share("device_ns", column="total_ns"), place=DEVICE),
    duration("min_ns", "Min", "minimum over calls of (CPU + device time)", merge=columns.MIN, over="capture"),
    duration("max_ns", "Max", merge=columns.MAX, over="capture"),
    duration("avg_ns", "Avg", merge=Average("total_ns")),
    replace(RATIO, merge=Share("total_ns"), description="share of the sum of the outermost rows"),
)

VIEW = View(
    name="fluid_events",
    title="Event Summary",
    description="host and device time of the outermost operators and of the events that they call",
    table=Merged(table, siblings=("total_ns",), together_only=True),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_ns",
    explain_empty=lambda trace: message("no operators were recorded"),
    report=fluid_overhead.GROUP,
)

HEAD_VIEW = View(
    name="fluid_head",
    title="Profiling Report",
    description="settings of the fluid report: profiled places, steps, time unit, sort order, and grouping of rows",
    table=Merged(
        head,
        lambda rows, request: tables.in_order_of(rows, "setting", dict.fromkeys(rows["setting"])),
        together_only=True,
    ),
    columns=(columns.words("setting", "Setting"), columns.key("value", "Value")),
    groupings=GROUPINGS,
    report=fluid_overhead.GROUP,
)


MODES: Final = ("MemcpyAsync", "MemcpySync", "Memcpy (call not recorded)")
"""Names of modes. They follow the word for the device, as in ``GpuMemcpyAsync``."""
_ASYNC, _SYNC, _UNKNOWN = range(3)
_NAMES_MODE: Final = "(?i)memcpy_?a?sync"


def memcpy_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return a tree of modes (depth 0) and directions (1), with :data:`COLUMNS`. The ratio is NA without operators."""
    rows = np.flatnonzero(select.selected(trace, request) & trace.rows("kind", schema.MEMCPY))
    names, launched_by = trace.codes("name"), trace.ints("launched_by")[rows]
    names_mode = names.lookup(arrays.matches(names.values, _NAMES_MODE), False)
    around = nesting.outermost(trace.ints("parent"), names_mode & trace.host)[launched_by]
    calls, launched = trace.rows("kind", schema.RUNTIME, schema.SYNC)[launched_by], launched_by != arrays.NO_ROW
    event = np.where(names_mode[rows], rows, arrays.NO_ROW)  # Ascend: an operator launches, and the task has the mode
    event = np.where(launched & calls, launched_by, event)
    event = np.where(launched & (around >= 0), around, event)
    asynchronous = names.lookup(arrays.matches(names.values, "(?i)async"), False)[event]

    kinds, word = trace.codes("copy_kind"), fluid_overhead.device_word(trace)
    directions = np.array([direction(kind, word) for kind in (*kinds.values, "")], dtype=object)
    copies = pd.DataFrame({
        "mode": np.where(event == arrays.NO_ROW, _UNKNOWN, np.where(asynchronous, _ASYNC, _SYNC)),
        "name": directions[kinds.codes[rows]],
        "ns": trace.ints("dur_ns")[rows],
    })  # fmt: skip
    parts = []
    for depth, keys in enumerate((["mode"], ["mode", "name"])):
        sums = copies.groupby(keys)["ns"].agg(calls="count", total_ns="sum").reset_index()
        labels = sums["name"] if depth else [f"{word.capitalize()}{MODES[mode]}" for mode in sums["mode"]]
        parts.append(sums.assign(depth=depth, name=pd.Series(labels, index=sums.index, dtype=object)))
    result = pd.concat(parts).sort_values(["mode", "depth", "total_ns"], ascending=[True, True, False], kind="stable")
    result["ratio"] = result["total_ns"].astype("Float64") / (total_time(trace, request) or pd.NA)
    return result[["depth", "name", "calls", "total_ns", "ratio"]].reset_index(drop=True)


def _modes_in_order(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    mode = table["name"].str.replace("^.*?(?=Memcpy)", "", regex=True)
    mode_weight = mode.map({name: -number for number, name in enumerate(MODES)})
    depth = table["depth"].to_numpy(np.int64)
    weight = np.where(depth == 0, mode_weight.fillna(0).to_numpy(np.int64), table["total_ns"].to_numpy(np.int64))
    return table.iloc[trees.preorder(trees.parents(depth), weight)].reset_index(drop=True)


_OF_OPERATORS: Final = columns.Share("total_ns", whole=lambda trace, request, table: total_time(trace, request))
MEMCPY_COLUMNS: Final = (
    columns.DEPTH,
    replace(columns.NAME, description="mode or direction"),
    columns.CALLS,
    columns.duration("total_ns", "Total", over="steps"),
    replace(columns.RATIO, merge=_OF_OPERATORS, description="share of the total time of the operators"),
)

MEMCPY_VIEW = View(
    name="fluid_memcpy",
    title="Memcpy Summary",
    description="asynchronous and synchronous copies by direction, inside and outside operators",
    table=Merged(memcpy_table, _modes_in_order),
    columns=MEMCPY_COLUMNS,
    order="total_ns",
    explain_empty=lambda trace: message("no copies to, from or on a device were recorded"),
    report=GROUP,
)
