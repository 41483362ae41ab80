"""Run folders. A run folder contains one Parquet file for each cycle of each process. A file gets its name only when it
is complete. pandas, polars and duckdb can read the files. perfkit's metadata is in the footer, as JSON under the key
``perfkit``. Files of :mod:`perfkit_core.trace.storage.unwritten` name the cycles that are missing."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from perfkit_core.base.language.messages import message
from perfkit_core.base.system import failures, paths
from perfkit_core.base.system.machine import host_digest
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.trace.model import schema, timed_steps
from perfkit_core.trace.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.trace.model.side_tables import STEP_CLOCK
from perfkit_core.trace.model.timed_steps import TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import background, checksums, side_table_files, writer
from perfkit_core.trace.storage.stored_file import KEY, Stored

SUFFIX: Final = ".perfkit.parquet"
STEPS_SUFFIX: Final = ".perfkit.steps"
"""Suffix of the files with the step times of a process. They include steps after the last cycle was written."""
PARTIAL_SUFFIX: Final = ".perfkit.partial"
_ROW_GROUP: Final = 1 << 18
_CYCLE: Final = re.compile(r"-cycle\d+")
_CYCLE_OF_PROCESS: Final = re.compile(rf"rank.+-cycle\d+-\w+-(\d{{1,9}})-\w+{re.escape(SUFFIX)}")


def write_trace(trace: Trace, path: Path) -> Path:
    """Write a trace to one file, atomically. Raises OSError. If a remote store refuses the file, the file is kept on
    this machine, and the error names its path."""
    with paths.replacing(path, keep=True) as temporary, temporary.open("wb") as file:
        write_table(trace, file)
    return path


def write_table(trace: Trace, file: BinaryIO) -> None:
    table = trace.events.unify_dictionaries()
    stored = Stored(
        schema_version=schema.SCHEMA_VERSION,
        meta=trace.meta,
        quality=tuple(map(StoredFinding.of, trace.quality)),
        empty=tuple(name for name in table.column_names if table[name].null_count == len(table)),
        checksums=True,
    )
    table = table.replace_schema_metadata({KEY: stored.json()})
    writer.write(table, file, _ROW_GROUP, writer.encoding(table.schema), side_table_files.encoded(trace.tables))


def write_cycle(trace: Trace, run_dir: Path) -> Path:
    """Write one cycle of one process into a run folder. No other process or cycle can have the same file name."""
    return write_trace(trace, run_dir / cycle_name(trace.meta))


def cycle_name(meta: TraceMeta) -> str:
    """Return the file name of a cycle. It contains a digest of the host name and the id of the recording,
    so that it is unique, and does not tell the name of the host."""
    rank = f"rank{meta.ranks[0]:05d}" if meta.ranks else "rank-"
    recording = meta.recording or new_recording()
    return f"{rank}-cycle{meta.cycle or 0:05d}-{host_digest(meta.hostname)}-{recording}{SUFFIX}"


def process_of(name: str) -> int | None:
    """Return the id of the process that wrote the file ``name`` of a cycle, None for another name."""
    match = _CYCLE_OF_PROCESS.fullmatch(name)
    return int(match[1]) if match else None


def rank_of(name: str) -> int | None:
    """Return the rank of the process that wrote the file ``name`` of a cycle, None if it had none."""
    rank = name.removeprefix("rank").partition("-")[0]
    return int(rank) if rank.isdecimal() else None


def steps_path(cycle: Path) -> Path:
    """Return the file with the step times of the process that wrote the file ``cycle``."""
    return cycle.with_name(_CYCLE.sub("", cycle.name.removesuffix(SUFFIX)) + STEPS_SUFFIX)


def write_steps(path: Path, timed: Mapping[str, TimedSteps]) -> None:
    """Write the step times of a process, by rank. An older file is replaced. Never raises."""
    try:
        content = msgspec.json.encode(timed)
        with paths.replacing(path) as file:
            file.write_bytes(content + b"\n%08x" % checksums.crc(content))
    except Exception as error:
        failures.log_first(f"the step times could not be saved in {path.parent}, training continues", error)


def with_step_times(trace: Trace, path: Path) -> Trace:
    """Return a cycle with the step times that were saved after it, if there are any. A data-quality warning reports a
    damaged file."""
    if STEP_CLOCK not in trace.tables.names:
        return trace
    try:
        content, _, crc = steps_path(path).read_bytes().partition(b"\n")
        if crc and crc != b"%08x" % checksums.crc(content):  # older files have no checksum
            raise ValueError("its checksum differs")
        timed = decode_json(content, dict[str, TimedSteps])
    except OSError:  # no step followed, or the file was not copied
        return trace
    except ValueError as error:
        text = message(
            "the times of steps after the last cycle are missing: the file {name} is damaged ({error})",
            name=paths.readable(steps_path(path).name),
            error=str(error),
        )
        return trace.with_findings(Finding("step-times-damaged", text))
    between = [clock.between.text() for clock in timed.values() if clock.between is not None]
    trace = trace.with_findings(*(Finding("work-between-steps", text, note=True) for text in between))
    return trace.with_tables(step_clock=lambda: timed_steps.to_table({**trace.step_clocks, **timed}))


def new_recording() -> str:
    """Return a new id of a recording. All cycles of the recording have this id, and no other recording has it."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:12]}"


def flush(path: Path | None = None, timeout: float | None = None) -> bool:
    """Wait until all cycles that have been recorded so far are on disk. Return False after ``timeout`` seconds; None
    means no limit. If ``path`` is given, wait only for cycles in this path and in folders above and below it."""
    # A process that has recorded nothing has no queue. Making one here would change the order of its exit functions.
    return not background.shared.cache_info().currsize or background.shared().flush(path, timeout)
