"""Export of a trace to a file: choice of the format, selection of steps, and atomic writing."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from isal import igzip

from perfkit_core.base.algorithms import arrays, intervals, nesting
from perfkit_core.base.language.messages import message
from perfkit_core.base.system.outside_text import texts
from perfkit_core.base.system.paths import as_path, replacing
from perfkit_core.errors import UsageError, spelled_like, unwritable
from perfkit_core.plugins.contracts import Exporter, ExportOptions, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import meta, schema
from perfkit_core.trace.model.sharing import shareable_trace
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import write_table
from perfkit_core.views.select import in_steps, span

_GZIP: Final = ".gz"
_GZIP_LEVEL: Final = 2


def export(
    trace: Trace,
    path: str | os.PathLike[str],
    to: str | None = None,
    *,
    weight: str | None = None,
    steps: Sequence[int] | None = None,
    align: bool = False,
    keep_host: bool = False,
) -> str:
    """Write a trace to a file. Return a sentence about data that is missing in the file, or "" if none is.

    - ``path``: local path, or address in a store (``s3://…``). With the suffix ``.gz``, the file is compressed.
    - ``to``: format, or None to select it by the suffix of ``path``.
    - ``weight``: weight of stacks: "cpu", "device", "calls" or "bytes".
    - ``steps``: step numbers to export, or None for all events. Device work that runs during these steps is also
      exported.
    - ``align``: whether to align the clocks of the ranks, using the collectives that they share.
    - ``keep_host``: whether to keep the host name, folders, and all keys of the header of a trace file. By default,
      the file contains only the metadata that perfkit uses (:func:`perfkit_core.trace.model.sharing.shareable`).

    Raises UsageError if the format, the weight or a step is unknown, or if the file cannot be written."""
    target = as_path(path)
    chosen, options = choose(to, target), ExportOptions(weight)
    check(chosen, options)
    if align:
        from perfkit_core.views.communication.clocks import aligned

        trace = aligned(trace)
    chosen_steps = only_steps(trace, None if steps is None else tuple(steps))
    with writing(target) as file, _compressed(chosen, target, file) as out:
        return write(chosen_steps, chosen, out, options, keep_host)


def write(trace: Trace, exporter: Exporter, file: BinaryIO, options: ExportOptions, keep_host: bool = False) -> str:
    """Write a trace to an open file. The arguments and the result are as for :func:`export`."""
    return exporter.write(trace if keep_host else shareable_trace(trace), file, options)


def choose(name: str | None, path: Path | None = None) -> Exporter:
    """Return the exporter ``name``. If None, choose it by the longest suffix of ``path``. Raises UsageError."""
    exporters = get_plugins().exporters()
    if name is not None:
        if name not in exporters:
            raise UsageError(f"unknown export format {name!r}", spelled_like(name, exporters))
        return exporters[name]
    text = path.name.lower() if path else ""
    fits = [(len(end), exporter) for exporter in exporters.values() for end in exporter.suffixes
            if text.endswith((end, end + _GZIP))]  # fmt: skip
    if not fits:
        ends = ", ".join(f"{exporter.suffixes[0]} ({exporter.name})" for exporter in exporters.values())
        raise UsageError(f"{path}: the file name does not determine a format", f"use --to, or a suffix: {ends}")
    return max(fits, key=lambda fit: fit[0])[1]


def check(exporter: Exporter, options: ExportOptions) -> None:
    """Raise UsageError if the exporter does not support the options."""
    if options.weight is not None and options.weight not in exporter.weights:
        weights = ", ".join(exporter.weights)
        hint = f"known: {weights}" if weights else "omit --weight"
        raise UsageError(f"the format {exporter.name} has no weight {options.weight!r}", hint)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for atomic writing, so that it appears only when it is complete. Raises UsageError."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


@contextlib.contextmanager
def _compressed(exporter: Exporter, path: Path, file: BinaryIO) -> Iterator[BinaryIO]:
    name = path.name.lower()
    if not name.endswith(_GZIP) or name.endswith(exporter.suffixes):  # .pb.gz is compressed by its exporter
        yield file
        return
    with igzip.IGzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as stream:
        buffered = io.BufferedWriter(cast("io.RawIOBase", stream), 1 << 20)
        yield cast("BinaryIO", buffered)
        buffered.flush()
        buffered.detach()


def only_steps(trace: Trace, steps: tuple[int, ...] | None) -> Trace:
    """Return the events of the given steps, or all events if ``steps`` is None. Device work of other steps that runs
    during these steps is added without launch, step, phase and module. Raises UsageError for an unknown step."""
    if steps is None:
        return trace
    chosen, rank = in_steps(trace, ViewRequest(steps=steps)), trace.ints("rank")
    launched_outside = np.zeros(len(trace), np.bool_)
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & ~chosen)
    for number in np.unique(rank[work]).tolist():
        mine = work[rank[work] == number]
        window = span(trace, chosen & (rank == number))
        launched_outside[mine] = intervals.covered_ns(window, trace.ints("start_ns")[mine], trace.end_ns[mine]) > 0
    if not launched_outside.any():
        return only_rows(trace, chosen)
    inherited = ("step", "phase", "module")  # device work inherits these columns from its launch
    changed = {name: pc.if_else(pa.array(~launched_outside), trace.column(name), None) for name in inherited}
    text = message(
        "{count} kernels, memcpys and memsets run in these steps but were launched outside these steps: they are "
        "exported without launch, operator, step and phase",
        count=int(launched_outside.sum()),
    )
    exported = only_rows(trace.with_columns(**changed), chosen | launched_outside)
    return exported.with_findings(meta.Finding("launched-outside-steps", text))


def only_rows(trace: Trace, keep: arrays.BoolArray) -> Trace:
    """Return the rows where ``keep`` is true. The parent of an event becomes its nearest ancestor among these rows."""
    parent, launched_by = trace.ints("parent"), trace.ints("launched_by")
    nearest = nesting.nearest_on_path(parent, keep)
    above = np.where(parent == arrays.NO_ROW, arrays.NO_ROW, nearest[parent])
    rows = np.flatnonzero(keep)
    number = np.full(len(trace) + 1, arrays.NO_ROW, np.int64)  # the last item is for row -1 (no row)
    number[rows] = np.arange(len(rows))
    events = trace.events.take(pa.array(rows))
    for name, values in (("parent", number[above[rows]]), ("launched_by", number[launched_by[rows]])):
        events = events.set_column(events.schema.get_field_index(name), schema.SCHEMA.field(name), pa.array(values))
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    window = (int(start.min()), int(end.max())) if len(rows) else None
    return trace.with_rows(events, number.take).with_meta(window_ns=window)


_ROWS: Final = 1 << 15


def write_csv(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write one row per event with all columns of the schema. Texts are quoted, and never formulas of a
    spreadsheet. Missing values are empty."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in trace.events.schema]
    fields = zip(trace.events.schema, types, strict=True)
    plain = pa.schema([pa.field(field.name, type_, field.nullable) for field, type_ in fields])
    with pyarrow.csv.CSVWriter(file, plain) as writer:
        for begin in range(0, len(trace), _ROWS):
            rows = trace.events.slice(begin, _ROWS).cast(plain)
            columns = [texts(c) if pa.types.is_string(c.type) else c for c in rows.columns]
            writer.write_table(pa.Table.from_arrays(columns, schema=plain))
    return "" if len(trace) else "no events were recorded"


def write_parquet(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write a Parquet file in the format of run folders."""
    write_table(trace, file)
    return "" if len(trace) else "no events were recorded"
