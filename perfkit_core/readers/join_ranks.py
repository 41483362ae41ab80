"""Joining of sources that are ranks, or cycles, of one job."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from perfkit_core.errors import SourceError
from perfkit_core.language.messages import plural
from perfkit_core.model.meta import Finding, TraceMeta, hull
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace, concat_traces, with_rank

_RANK: Final = re.compile(r"(?<![A-Za-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""A rank in a file name. Other numbers in it are processes, hosts, devices and times."""

BY_ORDER: Final = "ranks-by-order"
BY_NAME: Final = "ranks-by-name"


def one_job(traces: Sequence[Trace]) -> Trace:
    """Join traces, each of a rank or of some of its cycles. Unstated ranks are taken from the file names, or numbered
    in the given order, with a finding. Raises SourceError if the sources cannot be of one job: different frameworks, a
    rank's steps or times twice, or recordings of unknown rank that followed one another."""
    if len(traces) == 1:
        return traces[0]
    metas = [trace.meta for trace in traces]
    check_frameworks(metas)
    processes: dict[tuple[str, bool], list[TraceMeta]] = {}  # of unknown rank; a source without a recording is alone
    for meta in metas:
        if not meta.ranks:
            processes.setdefault((meta.recording or meta.source, meta.recording is None), []).append(meta)
    known = {rank for meta in metas for rank in meta.ranks}
    if len(processes) == 1 and not known:
        check_apart(traces)
        return concat_traces(sorted(traces, key=in_time))
    numbers, findings = numbered_processes({meta.source: meta.recording for meta in metas if not meta.ranks}, known)
    if any(finding.code == BY_ORDER for finding in findings):
        windows = (hull([meta.window_ns for meta in cycles if meta.window_ns]) for cycles in processes.values())
        first = (min(cycles, key=lambda meta: meta.window_ns or (0, 0)) for cycles in processes.values())
        check_one_time(replace(meta, window_ns=window) for meta, window in zip(first, windows, strict=True))
    ranked = [trace if trace.meta.ranks else with_rank(trace, numbers[trace.meta.source]) for trace in traces]
    check_apart(ranked)
    return concat_traces(sorted(ranked, key=lambda trace: trace.meta.ranks)).with_findings(*findings)


def in_time(trace: Trace) -> tuple[tuple[int, int], int]:
    """Return a key that sorts the cycles of a process."""
    return trace.meta.window_ns or (0, 0), trace.meta.cycle or 0


def numbered(sources: Sequence[str], known: Iterable[int]) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """Return the rank of each source that does not state it, and a finding: the ranks in their names if all have one
    that is not ``known``, otherwise free numbers in the given order."""
    if not sources:
        return {}, ()
    taken, names = set(known), [rank_of_name(source) for source in sources]
    by_name = {source: rank for source, rank in zip(sources, names, strict=True) if rank is not None}
    if len(by_name) == len(sources) and not taken & set(by_name.values()):
        text = plural(
            "1 source does not state its rank: taken from the file name",
            "{n} sources do not state their rank: taken from the file names",
            len(sources),
        )
        return by_name, (Finding(BY_NAME, text),)
    text = plural(
        "1 source does not state its rank: numbered in the order given",
        "{n} sources do not state their rank: numbered in the order given",
        len(sources),
    )
    free = (rank for rank in itertools.count() if rank not in taken)
    return dict(zip(sources, free, strict=False)), (Finding(BY_ORDER, text),)


def numbered_processes(
    recordings: Mapping[str, str | None], known: Collection[int]
) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """Return ranks as :func:`numbered`, the same for all cycles of a process. ``recordings`` maps each source to the
    recording of which it is a cycle (None: separate). A single process gets no number if none is ``known``."""
    process = {source: recording or source for source, recording in recordings.items()}
    first = {name: source for source, name in reversed(process.items())}
    sources = [first[name] for name in dict.fromkeys(process.values())]
    if len(sources) == 1 and not known:
        return {}, ()
    numbers, findings = numbered(sources, known)
    return {source: numbers[first[name]] for source, name in process.items()}, findings


def rank_of_name(source: str) -> int | None:
    """Return the rank in a file name (``rank3.json``, ``run_worker-12.pt.trace.json``), None without one."""
    ranks = _RANK.findall(PurePath(source).name)
    return int(ranks[0]) if len(set(ranks)) == 1 else None


def check_frameworks(metas: Iterable[TraceMeta]) -> None:
    frameworks = sorted({str(meta.framework) for meta in metas})
    if len(frameworks) > 1:
        named = " and ".join(frameworks)
        raise SourceError(f"cannot merge {named} sources into one run", "use perfkit compare to compare two runs")


def check_one_time(unknown: Iterable[TraceMeta]) -> None:
    """Raise SourceError for recordings of unknown rank that were not made at the same time, as ranks of a job are. Only
    epoch clocks can be compared. Intervals share a moment exactly if no two are disjoint; the error names the two that
    are farthest apart."""
    timed = [(meta.window_ns, meta) for meta in unknown if meta.clock == "epoch" and meta.window_ns]
    if not timed:
        return
    (_, end), first = min(timed, key=lambda item: item[0][1])
    (start, _), last = max(timed, key=lambda item: item[0][0])
    if end < start:
        raise SourceError(
            f"{first.source} and {last.source} were recorded at different times and do not state their rank: "
            "they may be two runs, or two recordings of one run",
            f"perfkit compare {first.source} {last.source}",
        )


def check_apart(traces: Iterable[Trace]) -> None:
    """Raise SourceError for traces with the same steps or times of one rank, or the same cycle of one recording.
    Different cycles of one recording may have equal step numbers."""
    cycles: dict[object, TraceMeta] = {}
    by_rank: dict[int, list[Trace]] = {}
    for trace in traces:
        meta = trace.meta
        if meta.recording is not None and meta.cycle is not None:
            _check_new(cycles, (meta.recording, meta.cycle, meta.ranks), meta)
        for rank in meta.ranks:
            by_rank.setdefault(rank, []).append(trace)
    for rank, of_rank in by_rank.items():
        if all(_other_cycle(of_rank[0].meta, trace.meta) for trace in of_rank[1:]):
            continue  # avoids reading the steps of stored files
        steps: dict[object, TraceMeta] = {}
        for trace in of_rank:
            for step in set(trace.ints("step")[trace.rows("kind", STEP)].tolist()):
                _check_new(steps, step, trace.meta)
        # cycles of a rank do not overlap; only epoch clocks can be compared
        metas = (trace.meta for trace in of_rank)
        timed = [(meta.window_ns, meta) for meta in metas if meta.clock == "epoch" and meta.window_ns]
        for ((_, end), a), ((start, _), b) in itertools.pairwise(sorted(timed, key=lambda item: item[0])):
            if start < end and not _other_cycle(a, b):
                raise SourceError(
                    f"{a.source} and {b.source} cover the same time of rank {rank}",
                    "give one source for each rank and cycle; use perfkit compare to compare two runs",
                )


def _check_new(seen: dict[object, TraceMeta], key: object, meta: TraceMeta) -> None:
    other = seen.get(key)
    if other is not None and not _other_cycle(other, meta):
        raise SourceError(
            f"{other.source} and {meta.source} contain the same steps of the same rank",
            "give one source for each rank; use perfkit compare to compare two runs",
        )
    seen.setdefault(key, meta)


def _other_cycle(a: TraceMeta, b: TraceMeta) -> bool:
    cycles = {a.cycle, b.cycle}
    return a.recording is not None and a.recording == b.recording and len(cycles - {None}) == 2
