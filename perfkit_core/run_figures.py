"""What is the most important about one run? Told by the metadata of its files and the columns that tell its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfkit_core import schema
from perfkit_core.paths import arrow_input, modified_ns
from perfkit_core.rank_findings import about_job, united
from perfkit_core.report import facts
from perfkit_core.sources import run_folder
from perfkit_core.storage.footer import Stored, read_metadata
from perfkit_core.trace import Finding, TraceMeta, joined_meta


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
    from perfkit_core.loading import load_one

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
