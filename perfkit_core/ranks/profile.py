"""A profile to make a report of: a trace, many ranks, or partials in files. Each computes views.

The tables of a profile, of one trace or merged from many ranks, with what a report says about them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec
import pandas as pd

from perfkit_core.errors import SourceError
from perfkit_core.language.messages import Text
from perfkit_core.model.findings import about_job, left_out, waits_not_known
from perfkit_core.model.meta import Finding, TraceMeta
from perfkit_core.model.trace import Trace, joined_meta
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.ranks import files
from perfkit_core.ranks import job as cluster
from perfkit_core.ranks.executors import executor
from perfkit_core.ranks.job import Job, Partial, understood
from perfkit_core.ranks.plan import Plan, plan
from perfkit_core.ranks.reduce import reduce_trace, split
from perfkit_core.ranks.run import error, run
from perfkit_core.readers.load import load
from perfkit_core.system.paths import PathLike, as_path, is_remote
from perfkit_core.views.select import step_numbers
from perfkit_core.views.tables import reduction


@dataclass(frozen=True, slots=True)
class Computed:
    """``tables``: by the name of the view; ``why_empty(view)``: why a table has no rows; ``holds(column)``: whether the
    events have anything in a column; ``steps``: numbers of the steps that were recorded; ``request``: what was
    counted; ``averaged``: whether only what is in steps was, for sums of one step."""

    meta: TraceMeta
    quality: tuple[Finding, ...]
    steps: tuple[int, ...]
    request: ViewRequest
    averaged: bool
    tables: Mapping[str, pd.DataFrame]
    why_empty: Callable[[View], Text]
    holds: Callable[[str], bool]


def compute(trace: Trace, views: Sequence[View], job: Job) -> Computed:
    """The views of a trace; one of several ranks is reduced rank by rank. Raises UsageError."""
    found = of_ranks(split(trace), views, job)
    waits = _waits(found.tables, trace.meta, job)
    return replace(found, meta=trace.meta, quality=tuple(dict.fromkeys((*trace.quality, *waits))))


def of_ranks(ranks: Sequence[Trace], views: Sequence[View], job: Job) -> Computed:
    """The views of traces of one rank each. Raises UsageError."""
    if len(ranks) > 1:
        return merge([reduce_trace(one, job) for one in ranks], views, job)
    (trace,) = ranks
    steps = step_numbers(trace)
    request = replace(job.request, steps=steps) if job.own_steps and job.request.steps is None else job.request
    tables = {view.name: view.table(trace, understood(view, request)) for view in views}
    return Computed(
        meta=trace.meta,
        quality=trace.quality,
        steps=steps,
        request=job.request,
        averaged=job.own_steps,
        tables=tables,
        why_empty=lambda view: view.explain_empty(trace),
        holds=trace.known,
    )


def merge(partials: Sequence[Partial], views: Sequence[View], job: Job) -> Computed:
    """The views of many ranks, merged in the order of the ranks. Raises UsageError for steps that no rank has, and
    SourceError for partials that are not of one job."""
    ordered = sorted(partials, key=lambda partial: partial.facts.meta.ranks)
    facts = [partial.facts for partial in ordered]
    findings = cluster.check(facts)
    steps = cluster.steps(facts, job.request.steps)
    tables = {
        view.name: reduction(view).merge([one.views[view.name] for one in ordered], understood(view, job.request))
        for view in views
    }

    def why_empty(view: View) -> Text:
        explain = reduction(view).explain
        return explain([one.views[view.name] for one in ordered]) if explain else cluster.why_empty(view.name, facts)

    recorded = frozenset(name for fact in facts for name in fact.recorded)
    meta = joined_meta([fact.meta for fact in facts])
    return Computed(
        meta=meta,
        quality=(
            *cluster.quality(facts),
            *findings,
            *about_job(meta),
            *_waits(tables, meta, job),
        ),
        steps=steps,
        request=job.request,
        averaged=job.own_steps,
        tables=tables,
        why_empty=why_empty,
        holds=recorded.__contains__,
    )


def _waits(tables: Mapping[str, pd.DataFrame], meta: TraceMeta, job: Job) -> tuple[Finding, ...]:
    """Whose waiting the view stragglers does not know, where it knows that of others. Not where only some collectives
    are counted: others may tell."""
    table, request = tables.get("stragglers"), job.request
    restricted = job.own_steps or request.steps is not None or any((request.pattern, request.kind, request.device))
    if table is None or table.empty or "rank" not in table or restricted:
        return ()
    known = set(table.loc[table["collectives"] > 0, "rank"].tolist())
    incomplete = float(table["incomplete"].sum() / max(table["collectives"].sum(), 1))
    return waits_not_known(set(meta.ranks) - known, len(meta.ranks), incomplete)


Report = Callable[[str], None]
_PACKED: Final = {".gz": 10, ".parquet": 30}
"""About how many times as large the text of a trace is."""


class Profile(Protocol):
    """Computes views. ``own_steps``: only what is in steps counts, where the request names none."""

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        """The tables of the views. Raises UsageError and SourceError."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A trace in memory."""

    trace: Trace

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        """The tables of the views. Raises UsageError."""
        return compute(self.trace, views, _job(views, request, own_steps))


@dataclass(frozen=True, slots=True)
class Ranks:
    """Many ranks, each read when it is reduced. ``executor`` makes what runs them, ``report`` tells how far it is."""

    plan: Plan
    partial: bool = False
    executor: Callable[[], AbstractContextManager[Executor]] = executor
    report: Report = lambda text: None

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        """The tables of the views, merged. Raises UsageError and SourceError."""
        job = _job(views, request, own_steps, self.partial)
        count = len(self.plan.ranks)
        with self.executor() as running:
            partials, failed = run(running, self.plan, job, lambda done: self.report(f"rank {done} of {count}"))
        if not partials and failed:
            raise error(failed[min(failed)])
        self.report("merging")
        findings = left_out({number: one.message for number, one in failed.items()}, count)
        return _about(merge(partials, views, job), self.plan.source, self.plan.findings + findings)


@dataclass(frozen=True, slots=True)
class Reduced:
    """Partials that were written to files: they hold some views for one request, and can compute nothing else."""

    stored: files.Stored

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        """The tables of the views, merged. Raises UsageError for what the files do not hold."""
        job = files.asked(self.stored, _job(views, request, own_steps))
        held = self.stored
        if not held.partials and held.left_out:
            raise SourceError(held.left_out[min(held.left_out)], "no rank could be read")
        return _about(
            merge(held.partials, views, job), held.source, held.findings + left_out(held.left_out, held.ranks)
        )


def opened(
    sources: Sequence[PathLike],
    partial: bool = False,
    running: Callable[[], AbstractContextManager[Executor]] = executor,
    report: Report = lambda text: None,
    together_bytes: int = 0,
) -> Profile:
    """The profile of what a user names: files and folders of one rank or many, or of partials. Raises SourceError.

    ``together_bytes``: ranks whose files are not larger than this, unpacked, are read as one trace.
    """
    if files.are_partials(sources):
        return Reduced(files.read_all(sources, partial))
    found = plan(sources, partial)
    if len(found.ranks) == 1:
        return Whole(load(sources, partial=partial))
    if _unpacked_bytes(found) <= together_bytes:
        return Whole(load(sources, partial=partial).with_meta(source=found.source))
    return Ranks(found, partial, running, report)


def _unpacked_bytes(found: Plan) -> float:
    """About how large the text of all ranks is; endless where it is not on this machine."""
    paths = [as_path(path) for rank in found.ranks for path in rank.paths]
    if any(map(is_remote, paths)):
        return math.inf
    return sum(path.stat().st_size * _PACKED.get(path.suffix, 1) for path in paths)


def _about(found: Computed, source: str, findings: tuple[Finding, ...]) -> Computed:
    """With what was named, and what is doubtful about its files."""
    meta = msgspec.structs.replace(found.meta, source=source)
    return replace(found, meta=meta, quality=tuple(dict.fromkeys((*findings, *found.quality))))


def _job(views: Sequence[View], request: ViewRequest, own_steps: bool, partial: bool = False) -> Job:
    return Job(tuple(view.name for view in views), request, own_steps, partial)
