"""A profile in memory: the event table, what is known about the run, and what is doubtful in the data.

What several views need of a trace is computed once, by the first that asks, and shared read only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from perfkit_core.algorithms.arrays import BoolArray, Codes, IntArray, constant, nullable, to_codes, to_int64
from perfkit_core.model import schema
from perfkit_core.model.column_sources import ChangedColumns, Columns, JoinedColumns, TableColumns
from perfkit_core.model.findings import united
from perfkit_core.model.meta import Device, Finding, TraceMeta

__all__ = ["BoolArray", "Codes", "Device", "Finding", "IntArray", "Trace", "TraceMeta", "concat_traces", "with_rank"]


_OF_COLUMN: Final = ("known", "ints", "codes", "rows")
"""First words of what is remembered about one column, which is the second."""


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Trace:
    """Events (columns of :data:`perfkit_core.model.schema.SCHEMA`, sorted by start), meta and data quality.

    A stored trace reads a column when it is first asked for: :meth:`ints`, :meth:`codes`, :meth:`column` touch one,
    ``events`` touches all.
    """

    _columns: Columns
    meta: TraceMeta
    quality: tuple[Finding, ...]
    _cache: dict[Any, Any]

    def __init__(
        self,
        events: pa.Table | Columns | None = None,
        meta: TraceMeta | None = None,
        quality: tuple[Finding, ...] = (),
        _cache: dict[Any, Any] | None = None,
        _columns: Columns | None = None,
    ) -> None:
        """``events`` and ``meta`` are needed; the last two are for ``dataclasses.replace``."""
        columns = _columns if events is None else events
        if columns is None or meta is None:
            raise TypeError("a Trace needs events and meta")
        values = (columns if isinstance(columns, Columns) else TableColumns(columns), meta, quality, _cache)
        for name, value in zip(("_columns", "meta", "quality", "_cache"), values, strict=True):
            object.__setattr__(self, name, {} if value is None else value)

    def __repr__(self) -> str:
        return f"Trace({len(self)} events of {self.meta.framework}, {self.meta.source}, {len(self.quality)} findings)"

    def __len__(self) -> int:
        return self._columns.num_rows

    @property
    def events(self) -> pa.Table:
        """All columns as one Arrow table; of a stored trace this reads the whole file, once."""
        return self._cached("events", self._columns.table)

    def column(self, name: str) -> pa.ChunkedArray:
        """One column as it is in ``events``. A stored one is read anew each time."""
        return self._cache["events"].column(name) if "events" in self._cache else self._columns.column(name)

    def pick(self, name: str, rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """Some cells of a column, shape (len(rows),); a stored trace reads only the row groups that hold them."""
        if "events" in self._cache:
            return TableColumns(self._cache["events"]).pick(name, rows)
        return self._columns.pick(name, rows)

    def known(self, name: str) -> bool:
        """Whether a column holds anything but nulls. Computed once; a stored trace knows without reading it."""
        return self._cached(("known", name), lambda: self._columns.known(name))

    def ints(self, column: str, missing: int = -1) -> IntArray:
        """An integer column as int64, nulls replaced by ``missing``. Read only, computed once."""
        if not self.known(column):  # the same array for all columns of nothing
            return self._cached(("ints", None, missing), lambda: _frozen(np.full(len(self), missing, np.int64)))
        make = partial(to_int64, count=len(self), missing=missing)
        return self._cached(("ints", column, missing), lambda: make(self._columns.chunks(column)))

    def codes(self, column: str) -> Codes:
        """A text column as codes and distinct values. Computed once."""
        if not self.known(column):
            return self._cached(("codes", None), lambda: Codes(_frozen(np.full(len(self), -1, np.int32)), []))
        return self._cached(("codes", column), lambda: Codes(*to_codes(self._columns.chunks(column), len(self))))

    def rows(self, column: str, *wanted: str) -> BoolArray:
        """True where a text column holds one of ``wanted``. Read only, computed once."""
        return self._cached(("rows", column, wanted), lambda: _frozen(self.codes(column).rows(*wanted)))

    @property
    def end_ns(self) -> IntArray:
        """start_ns + dur_ns, shape (rows,)."""
        return self._cached("end_ns", lambda: self.ints("start_ns") + self.ints("dur_ns"))

    @property
    def host(self) -> BoolArray:
        """True for events on the host."""
        return self.rows("device", schema.CPU)

    @property
    def operators(self) -> BoolArray:
        """True for operators on the host."""
        return self.host & self.rows("kind", *schema.OPERATOR_KINDS)

    def to_pandas(self) -> pd.DataFrame:
        """The event table as a DataFrame with the columns of the schema: categoricals, nullable integers."""
        nullable = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
        frame: pd.DataFrame = self.events.to_pandas(types_mapper=nullable.get)
        return frame

    def with_findings(self, *findings: Finding) -> Trace:
        """The same trace with more findings; repeated ones are kept once."""
        return Trace(self._columns, self.meta, tuple(dict.fromkeys(self.quality + findings)), self._cache)

    def with_meta(self, **changes: Any) -> Trace:
        """The same events with other metadata."""
        meta = msgspec.structs.replace(self.meta, **changes)
        return Trace(self._columns, meta, self.quality, self._known_without(()))

    def with_columns(self, **changes: pa.Array | pa.ChunkedArray) -> Trace:
        """The same trace with some columns replaced, each in the type of the schema; what is known of the others
        stays known, and what is unread unread."""
        chunked = {name: pa.chunked_array([c]) if isinstance(c, pa.Array) else c for name, c in changes.items()}
        return Trace(ChangedColumns(self._columns, chunked), self.meta, self.quality, self._known_without(changes))

    def with_ints(self, **changes: IntArray) -> Trace:
        """The same trace with some integer columns replaced, where negative is null. The arrays must not be changed."""
        changed = self.with_columns(**{name: nullable(values) for name, values in changes.items()})
        changed._cache.update({("ints", name, -1): _frozen(values) for name, values in changes.items()})
        return changed

    def slice(self, start: int, count: int) -> Trace:
        """``count`` events from row ``start`` on; row references still count from the first row of this trace."""
        return Trace(self.events.slice(start, count), self.meta, self.quality)

    def _known_without(self, changed: Collection[str]) -> dict[Any, Any]:
        """What is remembered about single columns, but those."""
        cached = dict(self._cache)  # another thread may be adding to it
        about = {key: found for key, found in cached.items() if isinstance(key, tuple) and key[0] in _OF_COLUMN}
        return {key: found for key, found in about.items() if key[1] not in changed}

    def _cached(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def _frozen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values.setflags(write=False)
    return values


def concat_traces(traces: Sequence[Trace]) -> Trace:
    """Several traces (ranks, cycles) as one. Row references are shifted, so they stay inside their own part.

    The first trace names the framework; ranks, devices, thread names and findings are united; a finding says of which
    ranks it is.
    """
    if len(traces) == 1:
        return traces[0]
    quality = united([(trace.meta.ranks, trace.quality) for trace in traces])
    meta = joined_meta([trace.meta for trace in traces])
    return Trace(JoinedColumns([trace._columns for trace in traces]), meta, quality)


def joined_meta(metas: Sequence[TraceMeta]) -> TraceMeta:
    """The metadata of several parts (ranks, cycles) as one: the first one's, with what is united over all."""
    return msgspec.structs.replace(
        metas[0],
        ranks=tuple(sorted({rank for m in metas for rank in m.ranks})),
        worlds=tuple(sorted({told for m in metas for told in m.told_worlds()})),
        devices=tuple({device.id: device for m in metas for device in m.devices}.values()),
        thread_names={key: name for m in metas for key, name in m.thread_names.items()},
        window_ns=hull([m.window_ns for m in metas if m.window_ns]),
        incomplete=any(m.incomplete for m in metas),
        cycle=metas[0].cycle if len({m.cycle for m in metas}) == 1 else None,
    )


def with_rank(trace: Trace, rank: int) -> Trace:
    """The trace as that of one rank."""
    column = constant(rank, pa.int32(), len(trace))
    return trace.with_columns(rank=column).with_meta(ranks=(rank,))


def hull(windows: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """From the first start to the last end; None of nothing."""
    return (min(w[0] for w in windows), max(w[1] for w in windows)) if windows else None


P = ParamSpec("P")
R = TypeVar("R")


def once(make: Callable[Concatenate[Trace, P], R]) -> Callable[Concatenate[Trace, P], R]:
    """A function of a trace (and of arguments that can be hashed) whose result is kept with the trace.

    Arrays in the result cannot be written to: a view that changed them would change what others see.
    """
    name = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def kept(trace: Trace, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (name, args, tuple(kwargs.items()))
        found: R = trace._cached(key, lambda: _read_only(make(trace, *args, **kwargs)))
        return found

    return cast(Callable[Concatenate[Trace, P], R], kept)


def _read_only(found: R) -> R:
    for part in _parts(found):
        if isinstance(part, np.ndarray):
            part.setflags(write=False)
    return found


def _parts(found: Any) -> list[Any]:
    if is_dataclass(found) and not isinstance(found, type):
        return [getattr(found, field.name) for field in fields(found)]
    return list(found) if isinstance(found, tuple) else [found]
