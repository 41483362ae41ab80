"""Run folders. A run folder contains one Parquet file for each cycle of each process. A file gets its name only when it
is complete. pandas, polars and duckdb can read the files. perfkit's metadata is in the footer, as JSON under the key
``perfkit``.

Before the work on a cycle begins, an empty file with the suffix ``.perfkit.pending`` is created, whose name contains
the name of the cycle and its process. It is removed when the cycle is written. If the process is killed, the file
stays, so that readers can tell what was lost. Remote stores have no such files: each would cost the training two
requests. Cycles that could not be written are listed in the file ``INCOMPLETE``, with the reasons."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from perfkit_core.base.language.messages import message
from perfkit_core.base.system import failures, paths, processes
from perfkit_core.base.system.machine import host_digest
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.trace.model import schema, timed_steps
from perfkit_core.trace.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.trace.model.side_tables import STEP_CLOCK
from perfkit_core.trace.model.timed_steps import TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import background, checksums, stored_file, writer
from perfkit_core.trace.storage.stored_file import KEY, Stored

PENDING_SUFFIX: Final = ".perfkit.pending"
INCOMPLETE_MARK: Final = "INCOMPLETE"
"""Name of the file in a run folder that lists the cycles that could not be saved, and the reasons."""
_PENDING: Final = re.compile(rf"(.+-cycle(\d+)-.+-(\d+-[0-9a-f]+))\.([^.]+){re.escape(PENDING_SUFFIX)}")

_Line = tuple[str, Path | None]
_unsaved: dict[tuple[int, Path], list[_Line]] = {}
"""Process and run folder → lines that could not be added to the file ``INCOMPLETE``, and pending files of cycles."""


def begin(cycle: Path) -> Path | None:
    """Create the pending file of the cycle that will be written to ``cycle``, and return its path. Never raises."""
    if paths.is_remote(cycle):
        return None
    path = cycle.with_name(f"{cycle.name.removesuffix(SUFFIX)}.{processes.owner()}{PENDING_SUFFIX}")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:  # writing the cycle fails, too, and tells why
        return None
    return path


def end(pending: Path | None) -> None:
    """Remove a pending file. Never raises."""
    if pending is not None:
        with contextlib.suppress(OSError):
            pending.unlink()


@dataclass(frozen=True, slots=True)
class Pending:
    """A cycle without a file. ``lost``: whether its process has ended, or None if that cannot be known. ``since_ns``:
    when it was taken from the profiler, in ns since 1970."""

    name: str
    recording: str
    cycle: int
    lost: bool | None
    since_ns: int


def pending(run_dir: Path) -> list[Pending]:
    """Return the cycles in a local run folder that are not written, sorted by name."""
    cycles = []
    for path in () if paths.is_remote(run_dir) else sorted(run_dir.glob(f"*{PENDING_SUFFIX}")):
        match = _PENDING.fullmatch(path.name)
        with contextlib.suppress(OSError):  # written meanwhile
            if match is not None:
                since_ns, lost = path.stat().st_mtime_ns, processes.has_ended(match[4])
                if not path.with_name(match[1] + SUFFIX).exists():  # killed before the pending file was removed
                    cycles.append(Pending(match[1], match[3], int(match[2]), lost, since_ns))
    return cycles


def mark_incomplete(run_dir: Path, cycle: int, error: BaseException, pending: Path | None = None) -> None:
    """Write to the run folder that a cycle of this process could not be saved, and why. If this fails, for example
    because the disk is full, it is tried again with the next failure, and at the end of the process. Never raises."""
    key = os.getpid(), run_dir
    if key not in _unsaved:
        _unsaved[key] = []
        atexit.register(_save, key)
    _unsaved[key].append((f"process {os.getpid()}, cycle {cycle}: {failures.one_line(error)}", pending))
    _save(key)


def _save(key: tuple[int, Path]) -> None:
    if key[0] != os.getpid():  # a forked child has the lines of its parent
        return
    mark = key[1] / INCOMPLETE_MARK
    lines, _unsaved[key] = _unsaved[key], []
    if not lines:
        return
    text = "\n".join(line for line, _ in lines)
    try:
        if paths.is_remote(mark):  # remote stores cannot append
            before = mark.read_text(encoding="utf-8") if mark.exists() else ""
            mark.write_text(f"{before}{text}\n", encoding="utf-8")
        else:
            paths.append_line(mark, text.encode("utf-8", "backslashreplace"))
    except Exception as failure:  # each driver of a store has its own error classes
        _unsaved[key] = lines + _unsaved[key]
        failures.tell(f"{key[1]} cannot be written: {failure}", logging.DEBUG)
    else:
        for _, path in lines:
            end(path)


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
    writer.write(table, file, _ROW_GROUP, writer.encoding(table.schema), stored_file.encoded(trace.tables))


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
    trace = trace.with_findings(*(Finding(timed_steps.WORK_BETWEEN, text, note=True) for text in between))
    return trace.with_tables(step_clock=lambda: timed_steps.to_table({**trace.step_clocks, **timed}))


def new_recording() -> str:
    """Return a new id of a recording. All cycles of the recording have this id, and no other recording has it."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:12]}"


def flush(path: Path | None = None, timeout: float | None = None) -> bool:
    """Wait until all cycles that have been recorded so far are on disk. Return False after ``timeout`` seconds; None
    means no limit. If ``path`` is given, wait only for cycles in this path and in folders above and below it."""
    # A process that has recorded nothing has no queue. Making one here would change the order of its exit functions.
    return not background.shared.cache_info().currsize or background.shared().flush(path, timeout)
