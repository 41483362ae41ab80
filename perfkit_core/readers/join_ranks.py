"""Several sources named together: the ranks of one job, and nothing else."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from perfkit_core.errors import SourceError
from perfkit_core.language.messages import Message, plural
from perfkit_core.model.meta import Finding, TraceMeta, hull
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace, concat_traces, with_rank

_RANK: Final = re.compile(r"(?<![A-Za-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""How a file's name tells a rank. Other numbers in it are processes, hosts, devices and times."""


@dataclass(frozen=True, slots=True)
class Part:
    """What tells whether a source belongs to the same job as others. ``recording``: what all cycles of a process have
    in common, where they tell."""

    source: str
    framework: str | None
    ranks: tuple[int, ...]
    clock: str
    window_ns: tuple[int, int] | None
    recording: str | None = None
    cycle: int | None = None

    @classmethod
    def of(cls, meta: TraceMeta) -> Part:
        """The part that a trace is."""
        told = (meta.source, meta.framework, meta.ranks, meta.clock, meta.window_ns)
        return cls(*told, meta.recording, meta.cycle)


def one_job(traces: Sequence[Trace]) -> Trace:
    """Several traces as one, a rank each (or some of its cycles). Ranks that the sources do not tell are those of their
    names, or numbered in the order given, with a finding. Raises SourceError where the sources cannot be of one job:
    other frameworks, one rank's steps or times twice, or recordings of unknown rank that were made one after the other.
    """
    if len(traces) == 1:
        return traces[0]
    parts = [Part.of(trace.meta) for trace in traces]
    check_frameworks(parts)
    unknown = processes([part for part in parts if not part.ranks])
    if len(unknown) == 1 and all(not part.ranks for part in parts):
        check_apart(traces)
        return concat_traces(sorted(traces, key=in_time))
    known = {rank for part in parts for rank in part.ranks}
    numbers, findings = numbered_processes({part.source: part.recording for part in parts if not part.ranks}, known)
    if any(finding.code == BY_ORDER for finding in findings):
        check_one_time(map(_whole, unknown))
    ranked = [trace if trace.meta.ranks else with_rank(trace, numbers[trace.meta.source]) for trace in traces]
    check_apart(ranked)
    return concat_traces(sorted(ranked, key=lambda trace: trace.meta.ranks)).with_findings(*findings)


def processes(parts: Iterable[Part]) -> list[list[Part]]:
    """The parts of each process: cycles of one recording, in order; a part that names no recording stands alone."""
    found: dict[tuple[str, bool], list[Part]] = {}
    for part in parts:
        found.setdefault((part.recording or part.source, part.recording is None), []).append(part)
    return [sorted(some, key=lambda part: part.window_ns or (0, 0)) for some in found.values()]


def in_time(trace: Trace) -> tuple[tuple[int, int], int]:
    """A key that sorts the cycles of a process."""
    return trace.meta.window_ns or (0, 0), trace.meta.cycle or 0


def _whole(cycles: Sequence[Part]) -> Part:
    """The cycles of a process as one part, with the extent of all."""
    return replace(cycles[0], window_ns=hull([part.window_ns for part in cycles if part.window_ns]))


BY_ORDER: Final = "ranks-by-order"
BY_NAME: Final = "ranks-by-name"


def numbered(sources: Sequence[str], known: Iterable[int]) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """The rank of each source that does not tell it: of its name, where all of them have one there that is not
    ``known``; else a free number, in the order given."""
    if not sources:
        return {}, ()
    taken, names = set(known), [rank_of_name(source) for source in sources]
    told = {source: rank for source, rank in zip(sources, names, strict=True) if rank is not None}
    if len(told) == len(sources) and not taken & set(told.values()):
        return told, (Finding(BY_NAME, _by_name(len(sources))),)
    free = (rank for rank in itertools.count() if rank not in taken)
    return dict(zip(sources, free, strict=False)), (Finding(BY_ORDER, _by_order(len(sources))),)


def numbered_processes(
    recordings: Mapping[str, str | None], known: Collection[int]
) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """As :func:`numbered`, the same number for all cycles of a process: of each source the recording that it is a cycle
    of, None for a source that stands alone. A single process has no number where none is ``known``."""
    process = {source: recording or source for source, recording in recordings.items()}
    first = {name: source for source, name in reversed(process.items())}
    sources = [first[name] for name in dict.fromkeys(process.values())]
    if len(sources) == 1 and not known:  # nothing asks for one
        return {}, ()
    numbers, findings = numbered(sources, known)
    return {source: numbers[first[name]] for source, name in process.items()}, findings


def _by_name(count: int) -> Message:
    return plural(
        "1 source does not tell the rank: taken from the names of the files",
        "{n} sources do not tell the rank: taken from the names of the files",
        count,
    )


def _by_order(count: int) -> Message:
    return plural(
        "1 source does not tell the rank: numbered in the order given",
        "{n} sources do not tell the rank: numbered in the order given",
        count,
    )


def rank_of_name(source: str) -> int | None:
    """The rank that the name of a file tells (``rank3.json``, ``run_worker-12.pt.trace.json``), None for others."""
    found = _RANK.findall(PurePath(source).name)
    return int(found[0]) if len(set(found)) == 1 else None


def check_frameworks(parts: Iterable[Part]) -> None:
    """Raises SourceError for parts of several frameworks."""
    frameworks = sorted({str(part.framework) for part in parts})
    if len(frameworks) > 1:
        told = " and ".join(frameworks)
        raise SourceError(f"sources of {told} are not one run", "perfkit compare sets two runs side by side")


def check_one_time(unknown: Iterable[Part]) -> None:
    """Ranks of a job run at the same time; the clocks of epoch tell. Intervals have a moment in common exactly when no
    two of them are apart. Raises SourceError for the two that are the farthest apart."""
    timed = [(part.window_ns, part) for part in unknown if part.clock == "epoch" and part.window_ns]
    if not timed:
        return
    (_, end), first = min(timed, key=lambda one: one[0][1])
    (start, _), last = max(timed, key=lambda one: one[0][0])
    if end < start:
        raise SourceError(
            f"{first.source} and {last.source} were recorded at different times and do not tell their rank: "
            "they are two runs, or two recordings of one",
            f"perfkit compare {first.source} {last.source}",
        )


def check_apart(traces: Iterable[Trace]) -> None:
    """Raises SourceError where two traces hold the same steps of the same rank, or the same cycle of one recording, or
    were made at the same time by one rank. Other cycles of one recording are apart, however their steps are
    numbered."""
    cycles: dict[object, Part] = {}
    of_rank: dict[int, list[tuple[Part, Trace]]] = {}
    for trace in traces:
        part = Part.of(trace.meta)
        if part.recording is not None and part.cycle is not None:
            _check_new(cycles, (part.recording, part.cycle, part.ranks), part)
        for rank in part.ranks:
            of_rank.setdefault(rank, []).append((part, trace))
    for rank, some in of_rank.items():
        (first, _), *others = some
        if not all(_other_cycle(first, part) for part, _ in others):  # to look costs reading the steps of stored files
            _check_steps(some)
            _check_times(rank, [part for part, _ in some])


def _check_steps(of_rank: Iterable[tuple[Part, Trace]]) -> None:
    seen: dict[object, Part] = {}
    for part, trace in of_rank:
        for step in set(trace.ints("step")[trace.rows("kind", STEP)].tolist()):
            _check_new(seen, step, part)


def _check_new(seen: dict[object, Part], key: object, part: Part) -> None:
    other = seen.setdefault(key, part)
    if other is not part and not _other_cycle(other, part):
        raise SourceError(
            f"{other.source} and {part.source} hold the same steps of the same rank",
            "name one source a rank; perfkit compare sets two runs side by side",
        )


def _check_times(rank: int, parts: Iterable[Part]) -> None:
    """A rank records one cycle after the other. Only clocks of epoch can be compared."""
    timed = [(part.window_ns, part) for part in parts if part.clock == "epoch" and part.window_ns]
    for ((_, end), one), ((start, _), other) in itertools.pairwise(sorted(timed, key=lambda one: one[0])):
        if start < end and not _other_cycle(one, other):
            raise SourceError(
                f"{one.source} and {other.source} hold the same time of rank {rank}",
                "name one source a rank and cycle; perfkit compare sets two runs side by side",
            )


def _other_cycle(one: Part, other: Part) -> bool:
    """Whether the two are different cycles of one recording."""
    cycles = {one.cycle, other.cycle}
    return one.recording is not None and one.recording == other.recording and len(cycles - {None}) == 2
