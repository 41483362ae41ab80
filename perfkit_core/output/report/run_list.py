"""The list of the runs below a folder. Its numbers come from file metadata and from the step events."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfkit_core.base.system import paths
from perfkit_core.errors import PerfkitError, SourceError
from perfkit_core.output.report import source_facts
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers import run_folder
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.columns import ADDRESS, TEXT, Column, count, duration, size, text
from perfkit_core.trace.model.meta import Finding, TraceMeta, about_job, joined_meta, united
from perfkit_core.trace.storage import bytestream, store, stored_file

COLUMNS: Final[tuple[Column, ...]] = (
    text("path", "Path"),
    text("format", "Format"),
    text("framework", "Framework"),
    text("devices", "Devices"),
    count("ranks", "Ranks"),
    count("cycles", "Cycles"),
    count("steps", "Steps"),
    duration("median_step_ns", "Median step"),
    count("events", "Events"),
    size("file_bytes", "File"),
    count("findings", "Findings"),
    text("recorded_utc", "Recorded UTC"),
    text("written_utc", "Written UTC"),
    text("recorded_or_written_utc", "Recorded or written UTC"),
    text("why_not_read", "Read error"),
    Column("page", "Page", kind=TEXT, thing=ADDRESS),
)
"""Columns of the list in text, Markdown and HTML. There, ``error`` is named ``why_not_read``, and ``recorded_at`` is
named ``recorded_utc``, ``written_utc`` or ``recorded_or_written_utc``."""

RUN: Final = "run"
_RECOGNISED: Final = 2
"""A reader recognises its profiler in a file if its ``sniff`` returns at least this number for the file."""
_COUNTS: Final = ("ranks", "cycles", "steps", "median_step_ns", "events", "file_bytes", "findings")
_NAMES: Final = ("path", "format", "framework", "devices", "ranks", "cycles", "steps", "median_step_ns",
                 "recorded_at", "events", "file_bytes", "findings", "error")  # fmt: skip
Run = dict[str, Any]
"""One row of the list: column → value. A value is missing or None if it requires reading the entire trace file."""


def list_runs(folder: str | os.PathLike[str], *, read_files: bool = False) -> pd.DataFrame:
    """Return a table of all run folders, Parquet files of perfkit and trace files below ``folder``, newest first.

    Columns:

    - path: the path, with non-UTF-8 parts escaped
    - format: the name of the reader
    - framework: name and version
    - devices: product names, such as ``8 × NVIDIA H100``
    - ranks, cycles, events: numbers of ranks, cycles and events
    - steps: the number of distinct step numbers
    - median_step_ns: the median duration of all steps of all ranks
    - recorded_at: the start of the recording in UTC, or the modification time of an unread trace file
    - file_bytes: the total size of the files
    - findings: the number of data-quality warnings
    - error: the reason why the run cannot be read

    Unknown values are NA. Trace files are read only if ``read_files`` is set; otherwise most of their values are NA.
    ``folder`` may be the address of a store. Raises SourceError if it does not exist.
    """
    return runs_below(paths.as_path(folder), lambda path: True, read_files)


def runs_below(root: Path, allowed: Callable[[Path], bool], read_files: bool = False) -> pd.DataFrame:
    """Return the table of :func:`list_runs`. Files and folders for which ``allowed`` returns False are not read."""
    store.flush(root)
    unread: list[Run] = []

    def failed(folder: Path, error: Exception) -> None:
        unread.append({"path": paths.readable(folder), "format": RUN, "error": _reason(error)})

    with _reaching(root):
        if not paths.is_folder(root):
            problem = "not a folder" if paths.exists(root) else "no such folder"
            raise SourceError(f"{root}: {problem}", "name the folder that contains your runs")
        places = filter(allowed, _places(root, failed))
        runs = [run for path in places if (run := _run(path, read_files)) is not None] + unread
    table = pd.DataFrame({name: pd.Series([run.get(name) for run in runs], dtype=object) for name in _NAMES})
    table = table.astype(dict.fromkeys(_COUNTS, "Int64"))
    table["recorded_at"] = pd.to_datetime(table["recorded_at"], utc=True)
    for name in ("framework", "devices", "error"):
        table[name] = table[name].where(table[name].notna(), pd.NA)
    return table.sort_values(["recorded_at", "path"], ascending=[False, True], ignore_index=True, na_position="last")


@contextlib.contextmanager
def _reaching(root: Path) -> Iterator[None]:
    """Convert errors of a folder to a SourceError."""
    try:
        with paths.reaching(root):
            yield
    except OSError as error:
        raise SourceError(f"{root}: {_reason(error)}", "check the permissions of the folder") from None


def _reason(error: Exception) -> str:
    return f"cannot be read ({' '.join(paths.readable(getattr(error, 'strerror', None) or error).split())})"


def recognised(path: Path) -> bool:
    """Return whether a path is a folder, or a file that a reader recognises by its name and first bytes."""
    return paths.is_folder(path) or _source(path) is not None


def _source(path: Path) -> Source | None:
    try:
        start = bytestream.head(path) if paths.is_file(path) else b""
    except (OSError, PerfkitError):
        return None
    rated = [(source.sniff(path, start), index, source) for index, source in enumerate(get_plugins().sources())]
    best = max(rated, key=lambda item: (item[0], -item[1]), default=(0, 0, None))
    return best[2] if start and best[0] >= _RECOGNISED else None


def _places(root: Path, failed: Callable[[Path, Exception], None]) -> Iterator[Path]:
    for here, subfolders, files in paths.walk(root, failed):
        # The list is changed in place, because the walk continues with this list.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        cycles = [name for name in files if name.endswith(store.SUFFIX)]
        if cycles:
            yield here
        yield from (here / name for name in sorted(set(files) - set(cycles)) if not name.startswith("."))


def _run(path: Path, read_files: bool) -> Run | None:
    """Return the row of a folder or file, or None for a file that is no profile. ``error`` says why reading failed."""
    run: Run = {"path": paths.readable(path), "format": RUN}
    folder, source = paths.is_folder(path), None
    if not folder:
        source = _source(path)
        if source is None:
            return None
        run["format"] = source.name
    try:
        if folder:
            return _stored(run, *run_folder.cycles(path))
        if run["format"] != RUN:
            return _trace_file(run, path, read_files)
        return _stored(run, [path], ()) if _is_stored_run(path) else None
    except PerfkitError as error:
        name, text = run["path"], paths.readable(error)
        return run | {"error": text.removeprefix(f"{name}: ").removeprefix(f"{name}{os.sep}")}
    except (OSError, pa.ArrowException, ValueError) as error:
        return run | {"error": _reason(error)}


def _is_stored_run(path: Path) -> bool:
    try:
        with paths.arrow_input(path) as file:
            return stored_file.is_ours(pq.read_metadata(file))
    except (OSError, pa.ArrowException):
        return path.name.endswith(store.SUFFIX)


def _stored(run: Run, files: Sequence[Path], about_folder: tuple[Finding, ...]) -> Run:
    stored_files = [stored_file.read_footer(file) for file in files]
    stored = {str(file.path): file.stored for file in stored_files}
    steps = pa.concat_tables(map(_steps, stored_files))
    # A finding about missing data in one cycle is dropped if another cycle of the same rank has the data.
    numbers, about_ranks = run_folder.numbered({file: cycle.meta for file, cycle in stored.items()})
    metas = [
        msgspec.structs.replace(cycle.meta, ranks=(numbers[file],)) if file in numbers else cycle.meta
        for file, cycle in stored.items()
    ]
    findings = [[finding.finding() for finding in cycle.quality] for cycle in stored.values()]
    of_ranks = united([(meta.ranks, of_cycle) for meta, of_cycle in zip(metas, findings, strict=True)])
    return _described(run, [cycle.meta for cycle in stored.values()]) | {
        "cycles": len({meta.cycle for meta in metas}),
        "steps": len(np.unique(steps["step"].to_numpy())),
        "median_step_ns": _median(steps["dur_ns"].to_numpy()),
        "events": sum(file.footer.num_rows for file in stored_files),
        "file_bytes": sum(file.stat().st_size for file in files),
        "findings": len({*of_ranks, *about_ranks, *about_job(joined_meta(metas)), *about_folder}),
    }


def _steps(file: stored_file.StoredFile) -> pa.Table:
    """Return the columns ``step`` and ``dur_ns`` of the steps in a stored file."""
    fields = pa.schema([schema.SCHEMA.field(name) for name in ("step", "dur_ns", "kind", "device")])
    table = file.with_content().read(range(file.footer.num_row_groups), fields)
    steps = table.filter((pc.field("kind") == schema.STEP) & (pc.field("device") == schema.CPU))
    return steps.select(["step", "dur_ns"])


def _trace_file(run: Run, path: Path, read: bool) -> Run:
    written = paths.modified_ns(path)
    at = None if written is None else pd.Timestamp(written, unit="ns", tz="UTC")
    run = run | {"file_bytes": path.stat().st_size, "recorded_at": at}
    if not read:
        return run
    from perfkit_core.readers.load import load_one

    trace = load_one(path)
    steps = trace.host & trace.rows("kind", schema.STEP)
    described = _described(run, [trace.meta])
    return described | {
        "recorded_at": described["recorded_at"] or at,
        "cycles": 1,
        "steps": len(np.unique(trace.ints("step")[steps])),
        "median_step_ns": _median(trace.ints("dur_ns")[steps]),
        "events": len(trace),
        "findings": len(trace.quality),
    }


def _described(run: Run, metas: Sequence[TraceMeta]) -> Run:
    ranks = {rank for meta in metas for rank in meta.ranks}
    devices = {device.id: device for meta in metas for device in meta.devices}
    times = [ns for meta in metas if (ns := source_facts.recorded_at_ns(meta)) is not None]
    return run | {
        "framework": source_facts.framework(metas[0]) or None,
        "devices": source_facts.devices(tuple(devices.values())) or None,
        "ranks": len(ranks) or None,
        "recorded_at": pd.Timestamp(min(times), unit="ns", tz="UTC") if times else None,
    }


def _median(durations: Any) -> int | None:
    middle = np.sort(durations)[(len(durations) - 1) // 2 : len(durations) // 2 + 1].tolist()
    return (2 * sum(middle) + len(middle)) // (2 * len(middle)) if middle else None
