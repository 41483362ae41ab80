"""The tables of a profile, of one trace or merged from many ranks, with what a report says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from perfkit_core.analyses.over_ranks.views import reduction
from perfkit_core.analyses.select import step_numbers
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.rank_findings import not_read
from perfkit_core.ranks import cluster
from perfkit_core.ranks.job import Job, Partial, understood
from perfkit_core.ranks.reduce import reduce_trace
from perfkit_core.ranks.split import split
from perfkit_core.trace import Finding, Trace, TraceMeta


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
    return replace(of_ranks(split(trace), views, job), meta=trace.meta, quality=trace.quality)


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
    recorded = frozenset(name for fact in facts for name in fact.recorded)
    meta = cluster.meta(facts)
    return Computed(
        meta=meta,
        quality=(*cluster.quality(facts), *findings, *not_read(meta)),
        steps=steps,
        request=job.request,
        averaged=job.own_steps,
        tables=tables,
        why_empty=lambda view: cluster.why_empty(view.name, facts),
        holds=recorded.__contains__,
    )
