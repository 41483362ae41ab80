"""The tables of a profile, of one trace or merged from many ranks, with what a report says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from perfkit_core.analyses.merging import reduction
from perfkit_core.analyses.select import step_numbers
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.rank_findings import about_job, waits_not_known
from perfkit_core.ranks import cluster
from perfkit_core.ranks.job import Job, Partial, understood
from perfkit_core.ranks.reduce import reduce_trace
from perfkit_core.ranks.split import split
from perfkit_core.trace import Finding, Trace, TraceMeta, joined_meta


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
    why_empty: Callable[[View], str]
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

    def why_empty(view: View) -> str:
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
