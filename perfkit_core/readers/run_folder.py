"""Reader of run folders and of single files in them. A folder may hold recordings of several processes.

- Recordings made at the same time are ranks of one job. Recordings without a rank are numbered in order.
- Recordings of processes of one recorded script are ranks of one job.
- Recordings made at different times are ranks of one job if their ranks differ and their world sizes are equal.
- Of recordings that do not belong together, only the latest is read. A data-quality warning reports the older ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from perfkit_core.base.language.messages import message, plural
from perfkit_core.base.system.paths import is_folder
from perfkit_core.base.system.processes import shell_path
from perfkit_core.errors import SourceError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.join_ranks import numbered_processes, one_job, read_each, recording_of_name
from perfkit_core.trace.model.event_columns import Columns
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import bytestream, checksums, recorded_events, store, stored_file
from perfkit_core.trace.storage.older_format import OlderColumns
from perfkit_core.trace.storage.store import Pending

TRACE_SUFFIXES = (".json", ".json.gz", ".pb", ".pb.gz", ".sqlite")


def sniff(path: Path, start: bytes) -> int:
    """Return the fit of this reader: 2 for a Parquet file or a folder of cycles, 1 for another folder, 0 otherwise."""
    if start or not is_folder(path):
        return 2 if start.startswith(checksums.MAGIC) else 0
    return 2 if any(path.glob(f"*{store.SUFFIX}")) else 1


def read(path: Path, partial: bool = False) -> Trace:
    """Return all cycles of all ranks as one Trace. If ``partial`` is set, the columns of each file are checked at once,
    and damaged files in a folder are left out. Raises SourceError if they are unreadable or not of one job."""

    def stored(file: Path) -> Trace:
        return read_stored(file, check=partial).with_meta(source=str(file))

    if not is_folder(path):
        return stored(path)
    files, findings = cycles(path, partial)
    traces, lost = read_each(files, stored, partial)
    return one_job(traces).with_meta(source=str(path)).with_findings(*findings, *lost)


def read_stored(path: Path, check: bool = False) -> Trace:
    """Read a file that :func:`~perfkit_core.trace.storage.store.write_trace` or a ``RecordedWriter`` wrote. The
    columns of a trace are read on demand. If ``check`` is set, they are checked at once. The events of a
    ``RecordedWriter`` are read and assembled at once. Raises SourceError for other files."""
    file = stored_file.read_footer(path)
    stored = file.stored
    if stored.stage == "trace":
        quality = tuple(finding.finding() for finding in stored.quality)
        columns: Columns = stored_file.stored_columns(file, check)
        tables = stored_file.tables(file)
        if stored.schema_version == 1:
            columns = OlderColumns(columns)
            tables = tables.replaced(columns.facts())
        if check:
            tables.load_all()
        return store.with_step_times(Trace(columns, stored.meta, quality, tables), path)
    try:
        plugins = get_plugins()
        completing = (source.complete for source in plugins.sources() if source.name == stored.reader)
        complete = next(filter(None, completing), None)
        if stored.reader and complete is None:
            text = f"{path}: no installed plugin can read the events in this file: reader {stored.reader!r} is missing"
            raise SourceError(text, "run perfkit plugins to see what is broken or missing")
        operator_names = plugins.framework(stored.meta.framework).operator_names()
        return recorded_events.read_recorded(file, operator_names, complete)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise stored_file.unreadable(path, error) from None


def peek(path: Path) -> int | None:
    ranks = _meta(path).ranks
    return ranks[0] if len(ranks) == 1 else None


def recording(path: Path) -> str | None:
    """Return the recording id in a stored file, or that of another file's name. None if there is none."""
    return _meta(path).recording if bytestream.head(path).startswith(checksums.MAGIC) else recording_of_name(path)


def cycles(path: Path, partial: bool = False) -> tuple[list[Path], tuple[Finding, ...]]:
    """Return the files of the run in a folder, sorted by rank and cycle, and data-quality warnings. Reads only the
    metadata of the files. If ``partial`` is set, files with damaged metadata are left out. Raises SourceError."""
    # Pending files are listed first: a cycle that is written meanwhile is found as a file.
    pending = store.pending(path)
    files, lost, mark = sorted(path.glob(f"*{store.SUFFIX}")), [], path / store.INCOMPLETE_MARK
    if mark.exists():
        lost = mark.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lost and not pending:  # if the disk was full, the file is empty
            lost = ["the reason could not be saved either"]
    if not files:
        raise _no_recordings(path, lost, pending)
    read, damaged = read_each(files, lambda file: (file, _meta(file)), partial)
    metas = dict(read)
    chosen, findings = _latest(metas)
    findings += damaged
    if lost:
        text = message("{count} cycles could not be saved. The first failure: {why}", count=len(lost), why=lost[0])
        findings.append(Finding("incomplete-run", text))
    numbers: dict[str, set[int]] = {}  # each process numbers its cycles from 0
    for file in chosen:
        meta = metas[file]
        if meta.recording and meta.cycle is not None:
            numbers.setdefault(meta.recording, set()).add(meta.cycle)
    written = {meta.recording for meta in metas.values()}
    begin = min(_begin_ns(metas[file]) for file in chosen)
    pending = [
        cycle
        for cycle in pending  # those of older recordings do not matter
        if cycle.recording in numbers or (cycle.recording not in written and cycle.since_ns >= begin)
    ]
    findings += _unwritten(pending)
    for cycle in pending:
        numbers.setdefault(cycle.recording, set()).add(cycle.cycle)
    missing = sum(max(present) + 1 - len(present) for present in numbers.values()) - len(lost)
    if missing > 0:
        text = message("{count} earlier cycles are missing from the folder", count=missing)
        findings.append(Finding("missing-cycles", text))
    return chosen, tuple(findings)


def _begin_ns(meta: TraceMeta) -> int:
    return meta.window_ns[0] if meta.window_ns and meta.clock == "epoch" else meta.recorded_at_ns or 0


def _unwritten(pending: list[Pending]) -> Iterator[Finding]:
    """Yield data-quality warnings about cycles that were taken from the profiler, but not written."""
    lost = [cycle.name for cycle in pending if cycle.lost]
    if lost:
        text = message(
            "{count} cycles were lost, because their process ended before they were written. The first: {name}",
            count=len(lost),
            name=lost[0],
        )
        yield Finding("incomplete-run", text)
    if any(cycle.lost is False for cycle in pending):
        count = [cycle.lost for cycle in pending].count(False)
        text = plural("1 cycle is still being written", "{n} cycles are still being written", count)
        yield Finding("unwritten-cycles", text)
    unknown = [cycle.name for cycle in pending if cycle.lost is None]
    if unknown:
        text = message(
            "{count} cycles are not written. Their process may still write them, or has ended: this cannot be checked, "
            "because it ran on another machine, in another container or before a restart. The first: {name}",
            count=len(unknown),
            name=unknown[0],
        )
        yield Finding("unwritten-cycles", text)


def _no_recordings(path: Path, lost: list[str], pending: list[Pending]) -> SourceError:
    inside = sorted({file.parent.name for file in path.glob(f"*/*{store.SUFFIX}")})
    if inside:
        shown = ", ".join(inside[:3]) + (", …" if inside[3:] else "")
        return SourceError(
            f"{path}: the recordings are not directly in this folder, but in {shown}",
            f"give one of these folders; to list the runs inside, use: perfkit runs {shell_path(path)}",
        )
    if lost:
        text = f"{path}: no cycle could be saved. The first failure: {lost[0]}"
        return SourceError(text, "remove the cause of the failure and record again")
    if pending:
        first = pending[0].name
        if any(cycle.lost is False for cycle in pending):
            return SourceError(f"{path}: no cycle is written yet ({first})", "try again when it is written")
        if not all(cycle.lost for cycle in pending):
            text = f"{path}: no cycle is written, and perfkit cannot check whether its process still runs ({first})"
            return SourceError(text, "if the training has ended, the cycle is lost: record again")
        text = f"{path}: no cycle was written, because the process was killed before ({first})"
        return SourceError(text, "record again, and end the process by SIGTERM, or call the handler's flush() before")
    return SourceError(
        f"{path}: the folder contains no recordings (*{store.SUFFIX}) and no trace files ({', '.join(TRACE_SUFFIXES)})",
        "give the folder that was passed to trace_handler, or a folder of trace files; to search subfolders, use: "
        f"perfkit runs {shell_path(path)}",
    )


def _meta(file: Path) -> TraceMeta:
    return stored_file.read_footer(file).stored.meta


def numbered(metas: Mapping[str, TraceMeta]) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """Return ranks for the files that do not state their rank, and data-quality warnings about these files."""
    stated = {rank for meta in metas.values() for rank in meta.ranks}
    return numbered_processes({file: meta.recording for file, meta in metas.items() if not meta.ranks}, stated)


def _latest(metas: Mapping[Path, TraceMeta]) -> tuple[list[Path], list[Finding]]:
    recordings: dict[str, list[TraceMeta]] = {}
    files: dict[str, list[Path]] = {}
    for file, meta in metas.items():
        recordings.setdefault(meta.recording or file.name, []).append(meta)
        files.setdefault(meta.recording or file.name, []).append(file)
    # (end, start) of each recording, or (0, 0) if its files do not state them. Recordings are sorted by end.
    spans: dict[str, tuple[int, int]] = {}
    for name, cycles in recordings.items():
        windows = [meta.window_ns or (meta.recorded_at_ns or 0,) * 2 for meta in cycles]
        spans[name] = max(window[1] for window in windows), min(window[0] for window in windows)
    chosen: list[str] = []
    for name in sorted(recordings, key=lambda name: spans[name], reverse=True):
        (end, start), meta = spans[name], recordings[name][0]
        for other in chosen:
            (other_end, other_start), late = spans[other], recordings[other][0]
            other_rank = meta.ranks != late.ranks and all((meta.ranks, late.ranks, meta.world_size == late.world_size))
            of_script = meta.job and meta.job == late.job and (meta.ranks != late.ranks or not meta.ranks)
            if not other_rank and not of_script and not (start < other_end and other_start < end):
                break
        else:
            chosen.append(name)
    ordered = sorted((file for name in chosen for file in files[name]), key=lambda file: (metas[file].ranks, file.name))
    older = len(recordings) - len(chosen)
    if not older:
        return ordered, []
    text = message(
        "older recordings in the same folder are left out ({count}), only the newest is read ({name}); give a file to "
        "read another one, or a pattern such as DIR/* to compare all of them as captures of one run",
        count=older,
        name=ordered[0].name,
    )
    return ordered, [Finding("older-recordings", text)]
