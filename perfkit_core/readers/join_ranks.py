"""Joining of traces into one trace, if they are recordings of ranks or cycles of one job."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, TypeVar

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace

from perfkit_core.base.language.messages import plural
from perfkit_core.base.system.machine import host_digest
from perfkit_core.base.system.paths import readable
from perfkit_core.base.system.processes import shell_path
from perfkit_core.errors import SourceError
from perfkit_core.trace.model.meta import Finding, TraceMeta, hull, left_out
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.side_tables import COLLECTIVES
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.trace.storage import bytestream

T = TypeVar("T")

_RANK: Final = re.compile(r"(?<![A-Za-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""Matches the rank in a file name, for example ``rank3``. Other numbers may be processes, hosts, devices or times."""

_HEAD_BYTES: Final = 1 << 16
"""Number of bytes at the start of a file in which the id of its process is looked for."""
_PROCESS: Final = re.compile(
    r"(?P<process>.+_(?P<pid>\d{1,9}))\.\d{13,20}\.pt\.trace\.json(?:\.gz)?"
    r"|(?P<exported>host_.+pid_\d{1,9})_time_\d{4}(?:_\d\d){5}(?:_\d{6})?\.\w+\.(?:json|pb)(?:\.gz)?"
)
"""Matches the file names that profilers choose themselves: host, process id, and the time of the export."""

BY_ORDER: Final = "ranks-by-order"
BY_NAME: Final = "ranks-by-name"


def read_each(files: Sequence[Path], read: Callable[[Path], T], partial: bool) -> tuple[list[T], tuple[Finding, ...]]:
    """Return what ``read`` returns for each file. If ``partial`` is set, files that cannot be read are left out, and a
    data-quality warning reports them. Raises SourceError, also if no file can be read."""
    results: list[T] = []
    failed: dict[int, SourceError] = {}
    for number, file in enumerate(files):
        try:
            results.append(read(file))
        except SourceError as error:
            failed[number] = error
            if not partial or len(failed) == len(files):
                raise failed[min(failed)] from None
    return results, left_out({at: readable(error.message) for at, error in failed.items()}, len(files), files=True)


def one_job(traces: Sequence[Trace]) -> Trace:
    """Join traces of the ranks and cycles of one job.

    A trace without a rank gets the rank in its file name, or else the next free rank in the given order. A data-quality
    warning reports this. Raises SourceError if the traces cannot belong to one job:

    - their frameworks differ,
    - two traces contain the same steps or times of a rank, or
    - ranks had to be assigned in order, but the traces were recorded at different times.
    """
    if len(traces) == 1:
        return traces[0]
    metas = [trace.meta for trace in traces]
    check_frameworks(metas)
    # the processes that do not state a rank, by recording id, or by source if there is no id
    processes: dict[tuple[str, bool], list[TraceMeta]] = {}
    for meta in metas:
        if not meta.ranks:
            processes.setdefault((meta.recording or meta.source, meta.recording is None), []).append(meta)
    stated = {rank for meta in metas for rank in meta.ranks}
    if len(processes) == 1 and not stated:
        check_apart(traces)
        return concat_traces(sorted(traces, key=in_time)).with_findings(*cycles_by_name(metas))
    numbers, findings = numbered_processes({meta.source: meta.recording for meta in metas if not meta.ranks}, stated)
    if any(finding.code == BY_ORDER for finding in findings):
        windows = (hull([meta.window_ns for meta in cycles if meta.window_ns]) for cycles in processes.values())
        first = (min(cycles, key=lambda meta: meta.window_ns or (0, 0)) for cycles in processes.values())
        check_one_time(replace(meta, window_ns=window) for meta, window in zip(first, windows, strict=True))
    ranked = [trace if trace.meta.ranks else with_rank(trace, numbers[trace.meta.source]) for trace in traces]
    check_apart(ranked)
    ordered = sorted(ranked, key=lambda trace: (trace.meta.ranks, in_time(trace)))
    return concat_traces(ordered).with_findings(*findings, *cycles_by_name(metas))


def in_time(trace: Trace) -> tuple[tuple[int, int], int]:
    """Return a sort key that puts the cycles of a process in order."""
    return trace.meta.window_ns or (0, 0), trace.meta.cycle or 0


def numbered(sources: Sequence[str], stated: Iterable[int]) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """Return ranks for sources that do not state their rank, and a data-quality warning. If each file name contains a
    rank that is not in ``stated``, these ranks are used. Otherwise free ranks are assigned in order."""
    if not sources:
        return {}, ()
    used_ranks, names = set(stated), [rank_of_name(source) for source in sources]
    by_name = {source: rank for source, rank in zip(sources, names, strict=True) if rank is not None}
    if len(set(by_name.values())) < len(by_name) and all(process_of_name(source) for source in by_name):
        by_name = {}  # these are processes of hosts whose names look like ranks
    if len(by_name) == len(sources) and not used_ranks & set(by_name.values()):
        text = plural(
            "1 source does not state its rank; the rank is taken from the file name",
            "{n} sources do not state their rank; the ranks are taken from the file names",
            len(sources),
        )
        return by_name, (Finding(BY_NAME, text),)
    text = plural(
        "1 source does not state its rank; it is numbered in the given order",
        "{n} sources do not state their rank; they are numbered in the given order",
        len(sources),
    )
    free = (rank for rank in itertools.count() if rank not in used_ranks)
    return dict(zip(sources, free, strict=False)), (Finding(BY_ORDER, text),)


def numbered_processes(
    recordings: Mapping[str, str | None], stated: Collection[int]
) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """Like :func:`numbered`, but all cycles of a process get the same rank. ``recordings`` maps each source to the id
    of its recording, which all cycles of a process share. A source with the id None is a process by itself. If there is
    only one process and ``stated`` is empty, return no ranks."""
    process = {source: recording or source for source, recording in recordings.items()}
    first = {name: source for source, name in reversed(process.items())}
    sources = [first[name] for name in dict.fromkeys(process.values())]
    if len(sources) == 1 and not stated:
        return {}, ()
    numbers, findings = numbered(sources, stated)
    return {source: numbers[first[name]] for source, name in process.items()}, findings


def rank_of_name(source: str) -> int | None:
    """Return the rank in a file name (``rank3.json``, ``run_worker-12.pt.trace.json``), or None if there is no rank."""
    ranks = _RANK.findall(PurePath(source).name)
    return int(ranks[0]) if len(set(ranks)) == 1 else None


def process_of_name(source: str) -> str | None:
    """Return host and process id in a file name that a profiler has chosen, or None if the name has another form."""
    match = _PROCESS.fullmatch(PurePath(source).name)
    return match and (match["process"] or match["exported"])


def recording_of_name(path: Path) -> str | None:
    """Return an id that all cycles of one process share, if a profiler has chosen the file's name. A user may have
    chosen a name of this form, with another number than a process id: this number is not in the file."""
    match = _PROCESS.fullmatch(path.name)
    if match is None:
        return None
    pid = match["pid"]
    if pid and not re.search(rb'"pid"\s*:\s*"?%d\b' % int(pid), bytestream.head(path, _HEAD_BYTES)):
        return None
    return host_digest(match["process"] or match["exported"])


def cycles_by_name(metas: Sequence[TraceMeta]) -> tuple[Finding, ...]:
    """Return a note if the traces have several cycles of one process, and only the file names say so."""
    named = Counter(meta.recording for meta in metas if meta.recording is not None and meta.cycle is None)
    count = sum(cycles for cycles in named.values() if cycles > 1)
    if not count:
        return ()
    text = plural(
        "{files} files are cycles of 1 process: their names have the same host and process id",
        "{files} files are cycles of {n} processes: their names have the same host and process id",
        sum(cycles > 1 for cycles in named.values()),
        files=count,
    )
    return (Finding("cycles-by-name", text, note=True),)


def steps_and_groups(trace: Trace) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the sorted numbers of the steps, and the groups of collectives."""
    steps = np.unique(trace.ints("step")[trace.rows("kind", STEP)]).tolist()
    groups = pc.unique(trace.tables[COLLECTIVES]["group"]).drop_null().to_pylist()
    return tuple(steps), tuple(sorted(groups))


def check_frameworks(metas: Iterable[TraceMeta]) -> None:
    frameworks = sorted({str(meta.framework) for meta in metas})
    if len(frameworks) > 1:
        names = " and ".join(frameworks)
        raise SourceError(f"cannot merge {names} sources into one run", "use perfkit compare to compare two runs")


def check_one_time(metas: Iterable[TraceMeta]) -> None:
    """Raise SourceError if two recordings without a rank do not overlap in time; ranks of one job do. Only
    recordings with an epoch clock are compared, and not those of one recorded script. The error names the two
    recordings that are farthest apart."""
    metas = list(metas)
    if len({meta.job for meta in metas}) == 1 and metas[0].job:
        return
    timed = [(meta.window_ns, meta) for meta in metas if meta.clock == "epoch" and meta.window_ns]
    if not timed:
        return
    (_, end), first = min(timed, key=lambda item: item[0][1])
    (start, _), last = max(timed, key=lambda item: item[0][0])
    if end < start:
        raise SourceError(
            f"{first.source} and {last.source} were recorded at different times and do not state their rank: "
            "they may be two runs, or two recordings of one run",
            f"perfkit compare {shell_path(first.source)} {shell_path(last.source)}",
        )


def check_apart(traces: Iterable[Trace]) -> None:
    """Raise SourceError if two traces contain the same cycle of a recording. Also raise it if two traces of one rank,
    or of one process without a rank, have equal step numbers or overlap in time, unless they are different cycles of
    one recording."""
    cycles: dict[object, TraceMeta] = {}
    by_rank: dict[int | str, list[Trace]] = {}
    for trace in traces:
        meta = trace.meta
        if meta.recording is not None and meta.cycle is not None:
            _check_new(cycles, (meta.recording, meta.cycle, meta.ranks), meta)
        for rank in meta.ranks or ((meta.recording,) if meta.recording else ()):
            by_rank.setdefault(rank, []).append(trace)
    for rank, of_rank in by_rank.items():
        if all(_other_cycle(of_rank[0].meta, trace.meta) for trace in of_rank[1:]):
            continue  # different cycles of one recording do not conflict
        steps: dict[object, TraceMeta] = {}
        for trace in of_rank:
            for step in steps_and_groups(trace)[0]:
                _check_new(steps, step, trace.meta)
        # Traces of one rank must not overlap in time. Only times of epoch clocks can be compared.
        metas = (trace.meta for trace in of_rank)
        timed = [(meta.window_ns, meta) for meta in metas if meta.clock == "epoch" and meta.window_ns]
        for ((_, end), a), ((start, _), b) in itertools.pairwise(sorted(timed, key=lambda item: item[0])):
            if start < end and not _other_cycle(a, b):
                whose = f"rank {rank}" if isinstance(rank, int) else "one process"
                raise SourceError(
                    f"{a.source} and {b.source} cover the same time of {whose}",
                    "give one source for each rank and cycle; use perfkit compare to compare two runs",
                )


def _check_new(metas: dict[object, TraceMeta], key: object, meta: TraceMeta) -> None:
    other = metas.get(key)
    if other is not None and not _other_cycle(other, meta):
        whose = "one process" if meta.cycle is None and not meta.ranks else "the same rank"
        raise SourceError(
            f"{other.source} and {meta.source} contain the same steps of {whose}",
            "give one source for each rank; use perfkit compare to compare two runs",
        )
    metas.setdefault(key, meta)


def _other_cycle(a: TraceMeta, b: TraceMeta) -> bool:
    cycles = {a.cycle, b.cycle}
    return a.recording is not None and a.recording == b.recording and len(cycles - {None}) == 2
