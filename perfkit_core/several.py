"""Several sources named together: the ranks of one job, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from perfkit_core.errors import SourceError
from perfkit_core.schema import STEP
from perfkit_core.trace import Finding, Trace, concat_traces, with_rank


def one_job(traces: Sequence[Trace]) -> Trace:
    """Several traces as one, a rank each. Ranks that the sources do not tell are numbered in the order given, with a
    finding. Raises SourceError where the sources cannot be of one job: other frameworks, one rank's steps twice, or
    recordings of unknown rank that were made one after the other.
    """
    if len(traces) == 1:
        return traces[0]
    frameworks = sorted({str(trace.meta.framework) for trace in traces})
    if len(frameworks) > 1:
        told = " and ".join(frameworks)
        raise SourceError(f"sources of {told} are not one run", "perfkit compare sets two runs side by side")
    unknown = [trace for trace in traces if not trace.meta.ranks]
    for a, b in itertools.combinations(unknown, 2):
        _at_one_time(a, b)
    numbered = list(_numbered(traces))
    for a, b in itertools.combinations(numbered, 2):
        _apart(a, b)
    whole = concat_traces(numbered)
    if not unknown:
        return whole
    text = f"{len(unknown)} of {len(traces)} sources do not tell their rank: they are numbered in the order given"
    return whole.with_findings(Finding("ranks-by-order", text))


def _numbered(traces: Sequence[Trace]) -> Iterator[Trace]:
    known = {rank for trace in traces for rank in trace.meta.ranks}
    free = (rank for rank in itertools.count() if rank not in known)
    for trace in traces:
        yield trace if trace.meta.ranks else with_rank(trace, next(free))


def _at_one_time(a: Trace, b: Trace) -> None:
    """Ranks of a job run at the same time; the clocks of epoch tell."""
    if a.meta.clock != "epoch" or b.meta.clock != "epoch" or not (a.meta.window_ns and b.meta.window_ns):
        return
    (a_start, a_end), (b_start, b_end) = a.meta.window_ns, b.meta.window_ns
    if a_end < b_start or b_end < a_start:
        raise SourceError(
            f"{a.meta.source} and {b.meta.source} were recorded at different times and do not tell their rank: "
            "they are two runs, or two recordings of one",
            f"perfkit compare {a.meta.source} {b.meta.source}",
        )


def _apart(a: Trace, b: Trace) -> None:
    if set(a.meta.ranks) & set(b.meta.ranks) and _steps(a) & _steps(b):
        raise SourceError(
            f"{a.meta.source} and {b.meta.source} hold the same steps of the same rank",
            "name one source a rank; perfkit compare sets two runs side by side",
        )


def _steps(trace: Trace) -> set[int]:
    return set(trace.ints("step")[trace.rows("kind", STEP)].tolist())
