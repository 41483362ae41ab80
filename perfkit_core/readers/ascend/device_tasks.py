"""What the tasks of an Ascend device are. The readers of text and of databases end here.

- Kernels are the tasks of the compute units. The vendor describes them in a table of their own (``details``).
- A collective is one event, and its tasks on a stream are its parts. Both have the same connection id. The vendor's
  text has each part twice, on its stream and on a plane of the collective; the two become one event.
- Tasks that only order streams are no work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import (
    NO_ROW,
    BoolArray,
    Codes,
    IntArray,
    first_match,
    one_of,
    picked,
    to_codes,
    valid,
)
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.readers.ascend.arguments import combined, extracted
from perfkit_core.trace.assembly.draft import EXTERNAL, RecordedEvents, integers, with_cells
from perfkit_core.trace.assembly.labels import with_sizes
from perfkit_core.trace.model import collective, device_task, schema
from perfkit_core.trace.model.collective import Collective

BACKEND: Final = "npu"
TASK_TYPE, PART_TYPE = "Task Type", "task type"
"""Arguments with the type of a task on a stream, and of a part of a collective on a plane."""
_TASK: Final = ("Task Id", "Subtask Id")
_PART: Final = ("task id", "context id")
PART_BYTES, COPY_BYTES = "size(Byte)", "dataSize(B)"
"""Arguments with the size of a part of a collective, and of a copy."""
_SIZES: Final = (PART_BYTES, COPY_BYTES)
_NUMBERS: Final = (*_SIZES, "stream id", *_PART, *_TASK)
RANK_SIZE: Final = "rank_size"
"""Argument of a collective with the number of ranks in its group."""
OWN_RANK, OTHER_RANK = "src rank", "dst rank"
"""Arguments with the numbers of the rank and of the other rank of a part of a collective, in their group."""
_COMPUTES: Final = re.compile(r"(?:KERNEL_)?(?:AI_|AIV|AIC|MIX_|DSA|DVPP|STARS_COMMON)\w*")
_KINDS: Final = (
    (re.compile(r"(?:\w+_)?(?:MEMCPY|SDMA|RDMA|PCIE_DMA)(?:_\w+)?"), schema.MEMCPY),
    (re.compile(r"MEMSET(?:_\w+)?"), schema.MEMSET),
    (re.compile(r"(?:EVENT|NOTIFY|WRITE|STREAM|LABEL|CMO|WAIT|VALUE|REMOTE_EVENT)(?:[_ ]\w+)*", re.I), schema.SYNC),
    (re.compile(r"PROFIL\w+"), schema.OVERHEAD),
    (re.compile(r"[A-Z0-9_]+"), schema.UNKNOWN),
)
"""Names of tasks that are no kernels. A name in capital letters is the type of a task, not the name of a kernel."""
_WAIT: Final = r"(?i)^notify.?wait$"
_NO_RANK: Final = 1 << 31
_FEWEST_RANKS: Final = 4
"""A rank that names all ranks from 0 to 3 exchanges data with every rank. Of a ring, it may be rank 1 that names only
ranks 0 to 2."""
_NEAR_NS: Final = 1000
"""Two records of one task begin within this time."""
_ROUNDED_NS: Final = (0, -1, 1)
"""Differences between the starts of one task in two of the vendor's tables, because both are rounded."""

DETAILS: Final = pa.schema(
    [
        pa.field("start_ns", pa.int64()), pa.field("dur_ns", pa.int64()), pa.field("name", pa.string()),
        pa.field("type", pa.string()), pa.field("core", pa.string()), pa.field("wait_ns", pa.int64()),
        pa.field("blocks", pa.int64()), pa.field("shapes", pa.string()), pa.field("dtypes", pa.string()),
    ]
)  # fmt: skip
"""The vendor's table of kernels. ``shapes`` and ``dtypes`` are written as in the event table. If ``dur_ns`` is null,
the duration is that of the event."""
_COLLECTIVE: Final = re.compile(r"(?:hcom|hccl)_(?P<call>[A-Za-z]+?)_*(?:__(?P<group>\d+)_\d+_\d+)?", re.IGNORECASE)
"""The name of a collective: its call, the end of the number of its group, and its number in the recording."""
_CALLS: Final = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgatherv": "all_gather", "reducescatter": "reduce_scatter",
    "reducescatterv": "reduce_scatter", "alltoall": "all_to_all", "alltoallv": "all_to_all",
    "alltoallvc": "all_to_all", "broadcast": "broadcast", "barrier": "barrier", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter", "send": "send", "receive": "recv", "recv": "recv", "batchsendrecv": "send_recv",
}  # fmt: skip
_TYPES: Final = {
    "INT8": ("char", 1), "INT16": ("short", 2), "INT32": ("int", 4), "INT64": ("long", 8), "UINT8": ("byte", 1),
    "UINT16": ("uint16", 2), "UINT32": ("uint32", 4), "UINT64": ("uint64", 8), "FP16": ("half", 2),
    "BFP16": ("bfloat16", 2), "FP32": ("float", 4), "FP64": ("double", 8), "INT128": ("int128", 16),
}  # fmt: skip
"""The vendor's types of elements, as frameworks name them, and their sizes in bytes."""


def with_tasks(
    recorded: RecordedEvents, details: pa.Table | None, copy_kind: Callable[[str], str | None],
    sums: IntArray | None = None,
) -> tuple[RecordedEvents, int, int, int]:  # fmt: skip
    """Return the events with kinds, sizes and facts of the device's tasks, the number of tasks that were recorded
    twice, the number of rows of the vendor's table ``details`` that match no kernel, and the number of kernels without
    a row. ``copy_kind`` returns the
    direction of a copy from the name of the call that launched it. The rows ``sums`` are left out."""
    left_out = np.empty(0, np.int64) if sums is None else sums
    details = DETAILS.empty_table() if details is None else details
    columns = recorded.columns
    devices = Codes(*to_codes(columns["device"].chunks, columns.num_rows))
    rows = np.flatnonzero(devices.rows(*(device for device in devices.values if device.startswith(f"{BACKEND}:"))))
    if not len(rows):
        return recorded.without(left_out), 0, len(details), 0
    given, (types, part_types) = extracted(picked(columns["args"], rows), _NUMBERS, (TASK_TYPE, PART_TYPE))
    described_parts = valid(part_types)
    kinds, whole = _kinds(picked(columns["name"], rows), types)
    on_plane = described_parts & ~valid(types)
    connection = integers(columns, "correlation")[rows]
    ids = connection[whole & (connection >= 0)]
    parts = described_parts | (np.isin(connection, ids) & (kinds != schema.KERNEL))
    kinds[parts] = schema.OTHER
    kinds[~valid(types) & ~whole & ~parts & valid(types).any()] = schema.OVERHEAD  # marks of mstx and of schedulers
    columns = with_cells(columns, "kind", rows, pa.array(kinds.tolist(), pa.string()).dictionary_encode())
    columns = _with_directions(columns, rows[kinds == schema.MEMCPY], copy_kind)
    columns = _with_streams(columns, rows[whole], rows[parts & ~on_plane])
    columns, second, first = _with_parts(columns, rows, given, on_plane)
    given[:, first] = np.where(given[:, first] < 0, given[:, np.searchsorted(rows, second)], given[:, first])
    recorded = _with_collectives(replace(recorded, columns=columns), rows[whole])
    sizes = given[: len(_SIZES)].max(axis=0)
    sized = (parts | (kinds == schema.MEMCPY)) & (sizes >= 0)
    recorded = with_sizes(recorded, rows[sized], sizes[sized])
    kernel = kinds == schema.KERNEL
    recorded, found = _with_details(recorded, rows[kernel], details)
    unmatched = len(details) - len(np.unique(found[found >= 0]))
    undescribed = int((~whole[kernel] & (found == NO_ROW)).sum())
    return recorded.without(np.union1d(left_out, second)), len(second), unmatched, undescribed


def _kinds(names: pa.Array, types: pa.Array) -> tuple[npt.NDArray[np.object_], BoolArray]:
    """Return the kinds of tasks, and which of them are whole collectives."""
    named, typed = (Codes(*to_codes([column.dictionary_encode()], len(column)))
                    for column in (names.cast(pa.string()), types))  # fmt: skip
    pairs, of_pair = combined(named, typed)
    kinds, whole = np.empty(len(pairs), object), np.zeros(len(pairs), np.bool_)
    for at, (name, of_type) in enumerate(pairs):
        whole[at] = not of_type and _COLLECTIVE.fullmatch(name) is not None
        kind = next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), schema.KERNEL)
        computes = _COMPUTES.fullmatch(of_type) or _COMPUTES.fullmatch(name)
        kinds[at] = schema.KERNEL if computes and kind == schema.UNKNOWN else kind
    return kinds[of_pair], whole[of_pair]


def _with_directions(columns: pa.Table, rows: IntArray, copy_kind: Callable[[str], str | None]) -> pa.Table:
    """Return the events with the directions of the copies ``rows``, from their arguments or the names of
    their calls."""
    if not len(rows):
        return columns
    external = integers(columns, EXTERNAL)
    calls = np.flatnonzero(one_of(columns["kind"], *schema.OPERATOR_KINDS) & (external != NO_ROW))
    call = first_match(external[rows], external[calls], calls)
    without_digits = pc.replace_substring_regex(picked(columns["args"], rows), r"\d+", "")  # few texts remain
    names = picked(columns["name"], np.maximum(call, 0)).cast(pa.string())
    names = pc.if_else(pa.array(call == NO_ROW), None, names)
    texts = (Codes(*to_codes([column.dictionary_encode()], len(rows))) for column in (without_digits, names))
    pairs, of_row = combined(*texts)
    found = [next(filter(None, map(copy_kind, filter(None, pair))), None) for pair in pairs]
    cells = pa.array(found, pa.string()).take(pa.array(of_row)).dictionary_encode()
    return with_cells(columns, "copy_kind", rows, cells)


def _with_streams(columns: pa.Table, whole: IntArray, parts: IntArray) -> pa.Table:
    """Return the events in which the collectives ``whole`` have the stream of their first part."""
    connection, stream = (integers(columns, name) for name in ("correlation", "stream"))
    first = first_match(connection[whole], connection[parts], parts)
    found = np.where(first == NO_ROW, NO_ROW, stream[first])
    return with_cells(columns, "stream", whole, pa.array(found, mask=found < 0))


def _with_parts(
    columns: pa.Table, rows: IntArray, given: IntArray, on_plane: BoolArray
) -> tuple[pa.Table, IntArray, IntArray]:
    """Add what the planes of collectives say about tasks to the tasks on the streams. ``given`` has the arguments
    _NUMBERS of the tasks ``rows``. Return the events, the rows on planes whose task is on a stream, and the places of
    these tasks in ``rows``."""
    part, task = rows[on_plane], rows[~on_plane]
    if not len(part):
        return columns, part, part
    start = integers(columns, "start_ns")
    of_part, of_task = given[len(_SIZES) :, on_plane], given[len(_SIZES) :, ~on_plane]
    of_streams = of_part[0], integers(columns, "stream")[task]
    of_tasks = zip(of_part[1:3], of_task[3:], strict=True)
    codes, _ = distinct(map(np.concatenate, (of_streams, *of_tasks)), len(rows))
    place_of_part, place_of_task = (
        _places(codes[part_of_codes], start[of_codes])
        for part_of_codes, of_codes in ((slice(len(part)), part), (slice(len(part), None), task))
    )
    other = first_match(place_of_part, place_of_task, task)
    same = (other != NO_ROW) & (np.abs(start[other] - start[part]) <= _NEAR_NS)
    by_target = np.argsort(other[same])
    targets, second = other[same][by_target], part[same][by_target]
    mine = pc.utf8_slice_codeunits(picked(columns["args"], targets), 0, -1)
    more = pc.utf8_slice_codeunits(columns["args"].take(pa.array(second)).combine_chunks(), 1)
    texts = pc.binary_join_element_wise(mine, more, ", ")
    return with_cells(columns, "args", targets, texts), second, np.searchsorted(rows, targets)


def _places(codes: IntArray, start_ns: IntArray) -> IntArray:
    """Return for each task a number of its code and its place, in time, among those with this code: numbers of tasks
    are used again."""
    order = np.lexsort((start_ns, codes))
    ordered = codes[order]
    places = np.empty(len(codes), np.int64)
    places[order] = (ordered << 32) + np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return places


def _with_details(recorded: RecordedEvents, rows: IntArray, details: pa.Table) -> tuple[RecordedEvents, IntArray]:
    """Return the events with what the vendor's table of kernels says about the kernels ``rows``, and the number of the
    row of each in the table, or -1."""
    if not len(details):
        return recorded, np.full(len(rows), NO_ROW)
    columns = recorded.columns
    names = [picked(columns["name"], rows).cast(pa.string()), details["name"].cast(pa.string()).combine_chunks()]
    codes = to_codes([pa.concat_arrays(names).dictionary_encode()], len(rows) + len(details))[0]
    starts, described = integers(columns, "start_ns")[rows], integers(details, "start_ns")
    found = np.full(len(rows), NO_ROW)
    for shift in _ROUNDED_NS:
        keys, _ = distinct([codes, np.append(starts + shift, described)], len(codes))
        last = np.arange(len(details))[::-1]
        found = np.where(found == NO_ROW, first_match(keys[: len(rows)], keys[len(rows) :][last], last), found)
    rows, chosen = rows[found >= 0], details.take(pa.array(found[found >= 0]))
    exact = valid(chosen["dur_ns"].combine_chunks())
    for name, source in (("dur_ns", "dur_ns"), ("shapes", "shapes"), ("dtypes", "dtypes")):
        at_rows, cells = rows[exact] if name == "dur_ns" else rows, chosen[source].combine_chunks()
        cells = cells.filter(pa.array(exact)) if name == "dur_ns" else cells.dictionary_encode()
        columns = with_cells(columns, name, at_rows, cells)
    facts = device_task.TABLE.table(
        {"row": pa.array(rows)} | {name: chosen[name] for name in ("type", "core", "wait_ns", "blocks")}
    )
    return replace(recorded, columns=columns).with_facts(device_task.TABLE, facts), found


def _with_collectives(recorded: RecordedEvents, rows: IntArray) -> RecordedEvents:
    """Return the events with the side table of collectives for ``rows``, and with the sizes of their messages."""
    if not len(rows):
        return recorded
    names = picked(recorded.columns["name"], rows).to_pylist()
    given, (types,) = extracted(picked(recorded.columns["args"], rows), ("count", RANK_SIZE), ("data_type",))
    counts, ranks = given.tolist()
    facts, sizes = [], np.full(len(rows), -1, np.int64)
    for at, (name, count, members, of_type) in enumerate(zip(names, counts, ranks, types.to_pylist(), strict=True)):
        match = _COLLECTIVE.fullmatch(name)
        call = match["call"].lower() if match else name.lower()
        dtype, element_bytes = _TYPES.get(of_type or "", (None, 0))
        elements = count if count >= 0 else None
        facts.append(
            Collective(
                _CALLS.get(call, call),
                group=match["group"] if match else None,
                elements=elements,
                dtype=dtype,
                group_size=members if members > 0 else None,
            )
        )
        if elements is not None and 0 < element_bytes <= (2**63 - 1) // max(elements, 1):
            sizes[at] = elements * element_bytes
    recorded = with_sizes(recorded, rows, sizes)
    table = collective.TABLE.of_structs(facts, row=pa.array(rows))
    return recorded.with_facts(collective.TABLE, table)


def with_awaited_ranks(
    recorded: RecordedEvents, rank: int | None, groups: Collection[Sequence[int]]
) -> tuple[RecordedEvents, int | None]:
    """Return the events with the side table of awaited ranks, and the number of ranks that collectives name, None if
    they do not name all. ``groups`` has the ranks of each process group, as far as the program stated them.

    A wait that begins before the first transfer between ranks ends when the other rank has reached the collective. A
    later wait is part of the transfer. Of several waits, the one that ends last delays the collective."""
    columns = recorded.columns
    wholes = recorded.tables[collective.TABLE.name]["row"].to_numpy()
    parts = np.flatnonzero(one_of(columns["kind"], schema.OTHER))
    given, (types,) = extracted(picked(columns["args"], parts), (OWN_RANK, OTHER_RANK, PART_BYTES), (PART_TYPE,))
    pair, moved = given[:2].T, given[2]
    connection, start = integers(columns, "correlation"), integers(columns, "start_ns")
    place = first_match(connection[parts], connection[wholes], np.arange(len(wholes)))
    remote = (pair >= 0).all(axis=1) & (pair[:, 0] != pair[:, 1]) & (pair[:, 1] < _NO_RANK) & (place != NO_ROW)
    parts, pair, place, moved = parts[remote], pair[remote], place[remote], moved[remote]
    of_pair, first = distinct(pair.T, len(pair))
    named = np.array([_in_run(own, other, rank, groups) for own, other in pair[first].tolist()], np.int64)
    awaited = named[of_pair]
    never = np.iinfo(np.int64).max
    transfer = np.full(len(wholes), never)
    moves = moved > 0
    np.minimum.at(transfer, place[moves], start[parts[moves]])
    waits = np.asarray(pc.match_substring_regex(types, _WAIT).fill_null(False), np.bool_)[remote]
    early = np.flatnonzero(waits & (start[parts] < transfer[place]) & (transfer[place] < never))
    end = start + integers(columns, "dur_ns")
    early = early[np.lexsort((end[parts[early]], place[early]))]
    last = early[np.diff(place[early], append=len(wholes)) > 0]
    whole = wholes[place[last]]
    after, until = (np.minimum(times[parts[last]], end[whole]) - start[whole] for times in (start, end))
    valid_ = (awaited[last] >= 0) & (after >= 0) & (until > after)
    cells = {"row": whole, "awaited": awaited[last], "after_ns": after, "wait_ns": until - after}
    table = collective.AWAITED.table({name: values[valid_] for name, values in cells.items()})
    known = {number_ for number_ in (rank, *named.tolist()) if number_ is not None and number_ >= 0}
    complete = len(known) >= _FEWEST_RANKS and max(known) + 1 == len(known)
    return recorded.with_facts(collective.AWAITED, table), len(known) if complete else None


def _in_run(own: int, other: int, rank: int | None, groups: Collection[Sequence[int]]) -> int:
    """Return the rank of the job with the number ``other`` in a group in which ``rank`` has the number ``own``, or -1
    if it is unknown. If no groups are stated, the numbers are ranks where the rank's own number is."""
    if not groups:
        return other if own == rank else NO_ROW
    ranks = {group[other] for group in groups if max(own, other) < len(group) and group[own] == rank}
    return ranks.pop() if len(ranks) == 1 else NO_ROW
