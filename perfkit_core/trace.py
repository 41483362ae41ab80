"""A profile in memory: the event table, what is known about the run, and what is doubtful in the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core import schema

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Finding(msgspec.Struct, frozen=True):
    """Something about the data that a reader must know before believing a number. ``code`` is stable, for scripts."""

    code: str
    message: str


class Device(msgspec.Struct, frozen=True):
    """A device as recorded: ``id`` as in the ``device`` column, ``name`` of the product, the rest as recorded."""

    id: str
    name: str | None = None
    memory_bytes: int | None = None
    properties: dict[str, Any] = {}


class TraceMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the run besides its events. None or empty where the source does not tell.

    ``clock`` is "epoch" (ns since 1970) or "relative" (origin unknown). ``window_ns`` is (start, end) of the
    recording, or of its events where the source does not tell.
    ``thread_names`` maps "rank:pid:tid" to a name. ``cpu_utilisation`` holds ratios by scope (process, system).
    ``recording`` is what one process shares over its cycles, ``cycle`` the number of this one.
    """

    source: str
    format: str
    framework: str | None = None
    framework_version: str | None = None
    clock: str = "epoch"
    window_ns: tuple[int, int] | None = None
    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    hostname: str | None = None
    recording: str | None = None
    cycle: int | None = None
    recorded_at_ns: int | None = None
    incomplete: bool = False
    devices: tuple[Device, ...] = ()
    options: dict[str, Any] = {}
    thread_names: dict[str, str] = {}
    cpu_utilisation: dict[str, float] = {}
    extra: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Codes:
    """A dictionary-encoded column: ``codes[i]`` indexes ``values``, -1 is null."""

    codes: npt.NDArray[np.int32]
    values: list[str]

    def rows(self, *wanted: str) -> BoolArray:
        """True where the column holds one of ``wanted``."""
        return self.lookup(np.array([value in wanted for value in self.values], dtype=np.bool_), False)

    def lookup(self, per_value: npt.NDArray[Any], missing: Any) -> npt.NDArray[Any]:
        """Spread one item a distinct value over the rows; ``missing`` where the row is null."""
        table = np.append(np.asarray(per_value), np.asarray([missing], dtype=np.asarray(per_value).dtype))
        return table[self.codes]


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """Events (an Arrow table of :data:`perfkit_core.schema.SCHEMA`, sorted by start), meta and data quality."""

    events: pa.Table
    meta: TraceMeta
    quality: tuple[Finding, ...] = ()
    _cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"Trace({len(self)} events of {self.meta.framework}, {self.meta.source}, {len(self.quality)} findings)"

    def __len__(self) -> int:
        return int(self.events.num_rows)

    def ints(self, column: str, missing: int = -1) -> IntArray:
        """An integer column as int64, nulls replaced by ``missing``. Read only, computed once."""
        return self._cached((column, missing), lambda: _to_int64(self.events[column], missing))

    def codes(self, column: str) -> Codes:
        """A text column as codes and distinct values. Computed once."""
        return self._cached(column, lambda: _to_codes(self.events[column]))

    def rows(self, column: str, *wanted: str) -> BoolArray:
        """True where a text column holds one of ``wanted``. Read only, computed once."""
        return self._cached((column, wanted), lambda: _read_only(self.codes(column).rows(*wanted)))

    @property
    def end_ns(self) -> IntArray:
        """start_ns + dur_ns, shape (rows,)."""
        return self._cached("end_ns", lambda: self.ints("start_ns") + self.ints("dur_ns"))

    @property
    def host(self) -> BoolArray:
        """True for events on the host."""
        return self.rows("device", schema.CPU)

    def to_pandas(self) -> pd.DataFrame:
        """The event table as a DataFrame with the columns of the schema: categoricals, nullable integers."""
        nullable = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
        frame: pd.DataFrame = self.events.to_pandas(types_mapper=nullable.get)
        return frame

    def with_findings(self, *findings: Finding) -> Trace:
        """The same trace with more findings; repeated ones are kept once."""
        return replace(self, quality=tuple(dict.fromkeys(self.quality + findings)))

    def _cached(self, key: Any, make: Any) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values.setflags(write=False)
    return values


def _to_int64(column: pa.ChunkedArray, missing: int) -> IntArray:
    filled = pc.fill_null(column.cast(pa.int64()), missing) if column.null_count else column.cast(pa.int64())
    return _read_only(filled.to_numpy().astype(np.int64, copy=False))


def _to_codes(column: pa.ChunkedArray) -> Codes:
    merged = column.unify_dictionaries().combine_chunks()
    if isinstance(merged, pa.ChunkedArray):
        merged = merged.chunk(0) if merged.num_chunks else pa.array([], type=column.type)
    codes = pc.fill_null(merged.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return Codes(codes, merged.dictionary.to_pylist())


def concat_traces(traces: Sequence[Trace]) -> Trace:
    """Several traces (ranks, cycles) as one. Row references are shifted, so they stay inside their own part.

    The first trace names the framework; ranks, devices, thread names and findings are united.
    """
    if len(traces) == 1:
        return traces[0]
    offsets = np.cumsum([0] + [len(trace) for trace in traces[:-1]])
    parts = [_shift_rows(trace.events, int(offset)) for trace, offset in zip(traces, offsets, strict=True)]
    metas = [trace.meta for trace in traces]
    meta = msgspec.structs.replace(
        metas[0],
        ranks=tuple(sorted({rank for m in metas for rank in m.ranks})),
        devices=tuple({device.id: device for m in metas for device in m.devices}.values()),
        thread_names={key: name for m in metas for key, name in m.thread_names.items()},
        window_ns=_hull([m.window_ns for m in metas if m.window_ns]),
        incomplete=any(m.incomplete for m in metas),
        cycle=metas[0].cycle if len({m.cycle for m in metas}) == 1 else None,
    )
    quality = tuple(dict.fromkeys(finding for trace in traces for finding in trace.quality))
    return Trace(pa.concat_tables(parts), meta, quality)


def with_rank(trace: Trace, rank: int) -> Trace:
    """The trace as that of one rank."""
    position = trace.events.schema.get_field_index("rank")
    column = pa.array(np.full(len(trace), rank, np.int32))
    events = trace.events.set_column(position, trace.events.schema.field("rank"), column)
    return Trace(events, msgspec.structs.replace(trace.meta, ranks=(rank,)), trace.quality)


def _hull(windows: list[tuple[int, int]]) -> tuple[int, int] | None:
    return (min(w[0] for w in windows), max(w[1] for w in windows)) if windows else None


def _shift_rows(events: pa.Table, offset: int) -> pa.Table:
    for name in ("parent", "launched_by"):
        rows = events[name].to_numpy()
        shifted = np.where(rows == schema.NO_ROW, schema.NO_ROW, rows + offset)
        events = events.set_column(events.schema.get_field_index(name), events.schema.field(name), pa.array(shifted))
    return events
