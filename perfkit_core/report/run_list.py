"""Which runs lie below a folder, and what is the most important about each? Reads metadata, not events.

What is the most important about one run? Told by the metadata of its files and the columns that tell its steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfkit_core.errors import PerfkitError, SourceError
from perfkit_core.model import schema
from perfkit_core.model.columns import Column, count, duration, size, text
from perfkit_core.model.meta import Finding, TraceMeta, about_job, joined_meta, united
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers import run_folder
from perfkit_core.report import facts
from perfkit_core.storage import store
from perfkit_core.storage.bytestream import head
from perfkit_core.storage.store import SUFFIX
from perfkit_core.storage.stored_file import Stored, is_ours, read_metadata
from perfkit_core.system.paths import (
    arrow_input,
    as_path,
    exists,
    is_file,
    is_folder,
    is_remote,
    modified_ns,
    reaching,
    readable,
    walk_store,
)

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
    text("why_not_read", "Why not read"),
)
"""Columns of the list as people read it; ``recorded_at`` has a name that says what its dates are."""


@dataclass(frozen=True, slots=True)
class Run:
    """Head figures of one run; None where they are not known without reading the whole file."""

    path: str
    format: str
    framework: str | None = None
    devices: str | None = None
    ranks: int | None = None
    cycles: int | None = None
    steps: int | None = None
    median_step_ns: int | None = None
    recorded_at: pd.Timestamp | None = None
    events: int | None = None
    file_bytes: int | None = None
    findings: int | None = None
    error: str | None = None


def of_folder(run: Run, path: Path) -> Run:
    """Figures of a run folder. Raises SourceError, OSError, ArrowException."""
    files, findings = run_folder.cycles(path)
    return of_stored(run, files, findings)


def of_stored(run: Run, files: Sequence[Path], about_folder: tuple[Finding, ...]) -> Run:
    """Figures of Parquet files: their metadata, and the columns that tell the steps."""
    opened = [pq.ParquetFile(arrow_input(file)) for file in files]
    stored = [read_metadata(one.metadata, file) for one, file in zip(opened, files, strict=True)]
    number, duration = _steps(files)
    findings = {*_findings({str(file): one for file, one in zip(files, stored, strict=True)}), *about_folder}
    metas = [one.meta for one in stored]
    return replace(
        _described(run, metas),
        cycles=len({meta.cycle for meta in metas}),
        steps=len(np.unique(number)),
        median_step_ns=_median(duration),
        events=sum(one.metadata.num_rows for one in opened),
        file_bytes=sum(file.stat().st_size for file in files),
        findings=len(findings),
    )


def _findings(stored: Mapping[str, Stored]) -> tuple[Finding, ...]:
    """Those of the files read as one run: what a cycle lacks is none where another one of its rank has it."""
    numbers, findings = run_folder.numbered({file: one.meta for file, one in stored.items()})
    metas = [
        msgspec.structs.replace(one.meta, ranks=(numbers[file],)) if file in numbers else one.meta
        for file, one in stored.items()
    ]
    parts = [
        (meta.ranks, [found.finding() for found in one.quality])
        for meta, one in zip(metas, stored.values(), strict=True)
    ]
    return (*united(parts), *findings, *about_job(joined_meta(metas)))


def _steps(files: Sequence[Path]) -> tuple[Any, Any]:
    """Number and duration of each recorded step."""
    wanted = (pc.field("kind") == schema.STEP) & (pc.field("device") == schema.CPU)
    columns = ["step", "dur_ns"]
    whole = pa.concat_tables([pq.read_table(arrow_input(file), columns=columns, filters=wanted) for file in files])
    return whole["step"].to_numpy(), whole["dur_ns"].to_numpy()


def _median(durations: Any) -> int | None:
    """To the nearest ns, None without steps."""
    middle = np.sort(durations)[(len(durations) - 1) // 2 : len(durations) // 2 + 1].tolist()
    return (2 * sum(middle) + len(middle)) // (2 * len(middle)) if middle else None


def _described(run: Run, metas: Sequence[TraceMeta]) -> Run:
    ranks = {rank for meta in metas for rank in meta.ranks}
    told = {device.id: device for meta in metas for device in meta.devices}
    first = metas[0]
    at = [facts.recorded_at_ns(meta) for meta in metas]
    known = [ns for ns in at if ns is not None]
    return replace(
        run,
        framework=" ".join(part for part in (first.framework, first.framework_version) if part) or None,
        devices=facts.devices(tuple(told.values())) or None,
        ranks=len(ranks) or None,
        recorded_at=pd.Timestamp(min(known), unit="ns", tz="UTC") if known else None,
    )


def of_file(run: Run, path: Path, read: bool) -> Run:
    """Figures of a trace file: those of the file system, and with ``read`` those of its events."""
    written = modified_ns(path)
    at = None if written is None else pd.Timestamp(written, unit="ns", tz="UTC")
    run = replace(run, file_bytes=path.stat().st_size, recorded_at=at)
    if not read:
        return run
    from perfkit_core.readers.load import load_one

    trace = load_one(path)
    steps = trace.host & trace.rows("kind", schema.STEP)
    described = _described(run, [trace.meta])
    return replace(
        described,
        recorded_at=described.recorded_at or run.recorded_at,
        cycles=1,
        steps=len(np.unique(trace.ints("step")[steps])),
        median_step_ns=_median(trace.ints("dur_ns")[steps]),
        events=len(trace),
        findings=len(trace.quality),
    )


RUN: Final = "run"
_RECOGNISED: Final = 2
"""What a reader says of a file when it knows the framework's dialect; less is any JSON file."""
_COUNTS: Final = ("ranks", "cycles", "steps", "median_step_ns", "events", "file_bytes", "findings")


def list_runs(folder: str | os.PathLike[str], *, read_files: bool = False) -> pd.DataFrame:
    """Every run folder, stored run and trace file below ``folder``, the newest first.

    Columns path (what is not UTF-8 in it is escaped), format (the reader), framework, devices, ranks, cycles, steps
    (distinct step numbers), median_step_ns (over all steps of all ranks), recorded_at (UTC; of a trace file that was
    not read: when the file was written), events, file_bytes, findings (about data quality), error (why it cannot be
    read). Unknown is NA: of a trace file, framework to median_step_ns, events and findings need the whole file, which
    ``read_files`` reads.
    ``folder`` may be the address of a store. Raises SourceError where there is no such folder.
    """
    root = as_path(folder)
    store.flush(root)
    with reaching(root):
        if not is_folder(root):
            missing = "no folder" if exists(root) else "no such folder"
            raise SourceError(f"{root}: {missing}", "name the folder that your runs are in")
        found = [run for path in _places(root) if (run := _run(path, read_files)) is not None]
    table = pd.DataFrame(
        {field.name: pd.Series([getattr(run, field.name) for run in found], dtype=object) for field in fields(Run)}
    )
    for name in _COUNTS:
        table[name] = table[name].astype("Int64")
    table["recorded_at"] = pd.to_datetime(table["recorded_at"], utc=True)
    for name in ("framework", "devices", "error"):
        table[name] = table[name].where(table[name].notna(), pd.NA)
    return table.sort_values(["recorded_at", "path"], ascending=[False, True], ignore_index=True, na_position="last")


def _places(root: Path) -> Iterator[Path]:
    """Run folders, and files that are not part of one."""
    for here, files in _folders(root):
        cycles = [name for name in files if name.endswith(SUFFIX)]
        if cycles:
            yield here
        yield from (here / name for name in sorted(set(files) - set(cycles)) if not name.startswith("."))


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each folder with the names of its files; hidden folders are left out."""
    walk = walk_store(root) if is_remote(root) else map(_as_paths, os.walk(root))
    for here, subfolders, files in walk:
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield here, files


def _as_paths(found: tuple[str, list[str], list[str]]) -> tuple[Path, list[str], list[str]]:
    return Path(found[0]), found[1], found[2]


def _run(path: Path, read_files: bool) -> Run | None:
    """The figures of a place, with an error where it is broken; None for what is no profile."""
    if is_folder(path):
        return _guarded(Run(readable(path), RUN), lambda run: of_folder(run, path))
    source = _source(path)
    if source is None:
        return None
    if source.name != RUN:
        return _guarded(Run(readable(path), source.name), lambda run: of_file(run, path, read_files))
    return _guarded(Run(readable(path), RUN), lambda run: of_stored(run, [path], ())) if _ours(path) else None


def recognised(path: Path) -> bool:
    """Whether a reader knows a file or folder for a profile, by its name and first bytes."""
    return is_folder(path) or _source(path) is not None


def _ours(path: Path) -> bool:
    """False for a Parquet file of somebody else."""
    try:
        with arrow_input(path) as file:
            return is_ours(pq.read_metadata(file))
    except (OSError, pa.ArrowException):
        return path.name.endswith(SUFFIX)


def _guarded(run: Run, fill: Callable[[Run], Run]) -> Run:
    try:
        return fill(run)
    except PerfkitError as error:
        return replace(run, error=readable(error).removeprefix(f"{run.path}: ").removeprefix(f"{run.path}{os.sep}"))
    except (OSError, pa.ArrowException, ValueError) as error:
        return replace(run, error=f"cannot be read ({' '.join(readable(error).split())})")


def _source(path: Path) -> Source | None:
    try:
        start = head(path) if is_file(path) else b""
    except (OSError, PerfkitError):
        return None
    rated = [(source.sniff(path, start), index, source) for index, source in enumerate(get_plugins().sources())]
    best = max(rated, key=lambda item: (item[0], -item[1]), default=(0, 0, None))
    return best[2] if start and best[0] >= _RECOGNISED else None
