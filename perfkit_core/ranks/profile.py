"""Computation of the tables of views: from a trace in memory, from many ranks, or from files of partial results."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pandas as pd

from perfkit_core.base.language.messages import Text, message
from perfkit_core.base.system import machine
from perfkit_core.base.system.paths import PathLike, absolute, as_path, is_remote
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.ranks import files, reduce, run
from perfkit_core.ranks.plan import Job, Partial, Plan, RankSummary, plan
from perfkit_core.readers import join_ranks, load
from perfkit_core.readers.read_options import DEFAULT, ReadOptions
from perfkit_core.trace.model.columns import DEVICE
from perfkit_core.trace.model.meta import (
    NO_DEVICE,
    Finding,
    TraceMeta,
    about_job,
    joined_meta,
    left_out,
    mixed_levels,
    mixed_runs,
    united,
    waits_not_known,
)
from perfkit_core.trace.model.timed_steps import TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import reduction, table_of
from perfkit_core.views.select import check_steps, step_numbers
from perfkit_core.views.steps.inferred_steps import CODES, with_inferred_steps

_VIEW_BYTES: Final = 20
"""Memory that a view needs for each event, in addition to what is checked when columns are read."""
_UNPACKED: Final = {".gz": 10, ".parquet": 30}
"""File suffix → estimated size of the unpacked trace, as a multiple of the file size."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The tables of views, and facts for a report."""

    meta: TraceMeta
    quality: tuple[Finding, ...]
    steps: tuple[int, ...]  # The recorded step numbers.
    timed: TimedSteps  # The steps that a clock timed.
    request: ViewRequest
    averaged: bool  # Whether the tables count only events in steps. Averages per step need this.
    tables: Mapping[str, pd.DataFrame]  # Name of a view → its table.
    why_empty: Callable[[View], Text]  # Returns the reason why the table of a view has no rows.
    holds: Callable[[str], bool]  # Returns whether any event has a value in a given column.


def of_ranks(ranks: list[Trace], views: Sequence[View], job: Job) -> Computed:
    """Compute views of traces that have one rank each. Takes the traces from ``ranks``. Raises UsageError."""
    if len(ranks) > 1:
        ranks.reverse()  # each trace is freed after its reduction, with everything that the views have cached
        return merge([reduce.reduce_trace(ranks.pop(), job) for _ in range(len(ranks))], views, job)
    trace = ranks[0] if job.request.native else with_inferred_steps(ranks[0])
    in_parts = [view for view in views if view.computed.in_parts]
    partials: Sequence[Partial] = ()
    # else most columns are needed as a whole anyway, or a grouping may depend on the whole recording
    if 2 * len(in_parts) > len(views) and not (job.request.native or job.request.by):
        partials = reduce.reduce_parts(trace, in_parts, job)
    tables: dict[str, pd.DataFrame] = {}
    steps = tuple(sorted({step for partial in partials for step in partial.facts.steps})) or step_numbers(trace)
    request = replace(job.request, steps=steps) if job.only_steps else job.request
    if partials:
        check_steps(request, steps)
        with suppress(SourceError):  # numbers of parts may be too large for a sum of their absolute values
            tables = _merged(partials, in_parts, request)
    for view in views:
        if view.name not in tables:
            machine.require(_VIEW_BYTES * len(trace), f"the view {view.name}")
            tables[view.name] = table_of(view, trace, reduce.understood(view, request))
    tables = _without_device(tables, views, request, [trace.quality])

    def why_empty(view: View) -> Text:
        return view.explain_empty(trace)

    return Computed(
        trace.meta,
        trace.quality,
        steps,
        trace.timed_steps,
        job.request,
        job.own_steps,
        tables,
        why_empty,
        trace.has_values,
    )


def _merged(partials: Sequence[Partial], views: Sequence[View], request: ViewRequest) -> dict[str, pd.DataFrame]:
    return {
        view.name: reduction(view).merge(
            [partial.views[view.name] for partial in partials], reduce.understood(view, request)
        )
        for view in views
    }


def merge(partials: Sequence[Partial], views: Sequence[View], job: Job) -> Computed:
    """Merge the views of many ranks, in rank order. Raises UsageError if the request names a step that no rank
    recorded. Raises SourceError if the ranks cannot belong to one run."""
    ordered = sorted(partials, key=lambda partial: partial.facts.meta.ranks)
    facts = [partial.facts for partial in ordered]
    findings = check(facts)
    steps = tuple(sorted({step for fact in facts for step in fact.steps}))
    check_steps(job.request, steps)
    tables = _merged(ordered, views, job.request)
    tables = _without_device(tables, views, job.request, [fact.quality for fact in facts])

    def why_empty(view: View) -> Text:
        explain = reduction(view).explain
        if explain:
            return explain([partial.views[view.name] for partial in ordered])
        reasons = [fact.empty[view.name] for fact in facts if view.name in fact.empty]
        return reasons[0] if reasons else message("nothing of this kind was recorded")

    holds = frozenset(name for fact in facts for name in fact.recorded).__contains__
    metas = [fact.meta for fact in facts]
    meta = joined_meta(metas)
    recorded = united([(fact.meta.ranks, fact.quality) for fact in facts])
    together = (*mixed_levels(metas), *mixed_runs((fact.meta, fact.steps, fact.groups) for fact in facts))
    quality = (*recorded, *findings, *together, *about_job(meta), *_unknown_waits(tables, meta, job))
    timed = next((fact.timed for fact in facts if fact.timed.steps), TimedSteps())
    return Computed(meta, quality, steps, timed, job.request, job.own_steps, tables, why_empty, holds)


def _without_device(
    tables: dict[str, pd.DataFrame],
    views: Sequence[View],
    request: ViewRequest,
    findings_of_ranks: Sequence[Sequence[Finding]],
) -> dict[str, pd.DataFrame]:
    """Return the tables with NA in the device columns if no rank recorded device work. Views compute 0 for these
    columns, as the native tables of the frameworks do. Native tables, and columns with other values, are unchanged."""
    if not all(any(finding.code == NO_DEVICE for finding in findings) for findings in findings_of_ranks):
        return tables
    for view in views:
        table = tables[view.name]
        zeros = {
            str(name): pd.Series(pd.NA, table.index, "Int64" if pd.api.types.is_integer_dtype(values) else "Float64")
            for name, values in table.items()
            if view.column(str(name)).place == DEVICE
            and pd.api.types.is_numeric_dtype(values)
            and not values.fillna(0).any()
        }
        if zeros and not reduce.understood(view, request).native:
            tables = tables | {view.name: table.assign(**zeros)}
    return tables


def check(facts: Sequence[RankSummary]) -> tuple[Finding, ...]:
    """Return warnings about ranks whose numbers perfkit assigned. Raises SourceError if the ranks cannot belong to one
    run: frameworks differ, a rank occurs twice, or recordings without a rank are from different times."""
    if not facts:
        raise SourceError("no rank could be read", "omit --partial to see the first error")
    join_ranks.check_frameworks(fact.meta for fact in facts)
    source_of: dict[tuple[int, ...], str] = {}
    for fact in facts:
        source, ranks = fact.meta.source, fact.meta.ranks
        if source_of.setdefault(ranks, source) != source:
            raise SourceError(
                f"{source_of[ranks]} and {source} both contain rank {', '.join(map(str, ranks)) or 'unknown'}",
                "give the files of one run; perfkit compare compares two runs",
            )
    unknown = [fact.meta for fact in facts if fact.meta.ranks and not fact.rank_recorded]
    recorded_ranks = {rank for fact in facts if fact.rank_recorded for rank in fact.meta.ranks}
    _, findings = join_ranks.numbered([meta.source for meta in unknown], recorded_ranks)
    if any(finding.code == join_ranks.BY_ORDER for finding in findings):
        join_ranks.check_one_time(unknown)
    return findings


def _unknown_waits(tables: Mapping[str, pd.DataFrame], meta: TraceMeta, job: Job) -> tuple[Finding, ...]:
    """Return warnings if waits in the view ``stragglers`` are unknown or too low. Return none if the request selects
    steps or events, because waits may then be unknown only due to the selection."""
    table, request = tables.get("stragglers"), job.request
    restricted = job.own_steps or request.steps is not None or any((request.pattern, request.kind, request.device))
    if table is None or table.empty or "rank" not in table or restricted:
        return ()
    with_waits = set(table.loc[table["collectives"] > 0, "rank"].tolist())
    incomplete = float(table["incomplete"].sum() / max(table["collectives"].sum(), 1))
    return waits_not_known(set(meta.ranks) - with_waits, len(meta.ranks), incomplete)


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A trace in memory. A trace of several ranks is reduced rank by rank."""

    trace: Trace
    reading: ReadOptions = DEFAULT

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        job, meta = Job(tuple(view.name for view in views), request, own_steps, self.reading), self.trace.meta
        computed = of_ranks(reduce.split(self.trace), views, job)
        quality = [finding for finding in self.trace.quality if finding.code not in CODES]
        about_steps = [finding for finding in computed.quality if finding.code in CODES]
        findings = (*quality, *about_steps, *_unknown_waits(computed.tables, meta, job))
        meta = msgspec.structs.replace(meta, window_ns=computed.meta.window_ns)
        return replace(computed, meta=meta, timed=self.trace.timed_steps, quality=tuple(dict.fromkeys(findings)))


@dataclass(frozen=True, slots=True)
class PerRankProfile:
    """Many ranks. Each rank is read when it is reduced, in ``workers`` processes or in the Dask cluster whose scheduler
    has the address ``scheduler``. ``report`` receives progress texts."""

    plan: Plan
    reading: ReadOptions = DEFAULT
    workers: int = 1
    scheduler: str | None = None
    report: Callable[[str], None] = lambda text: None

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        job = Job(tuple(view.name for view in views), request, own_steps, self.reading)
        count = len(self.plan.ranks)
        with run.executor(self.workers, self.scheduler) as pool:
            partials, failed = run.run(pool, self.plan, job, lambda done: self.report(f"rank {done} of {count}"))
        if not partials and failed:
            raise run.error(failed[min(failed)])
        self.report("merging")
        findings = left_out({number: failure.message for number, failure in failed.items()}, count)
        return _of_source(merge(partials, views, job), self.plan.source, self.plan.findings + findings)


@dataclass(frozen=True, slots=True)
class PartialResults:
    """Partial results that were read from files. Only the views in these files can be computed."""

    stored: files.Stored
    reading: ReadOptions = DEFAULT

    def compute(self, views: Sequence[View], request: ViewRequest, own_steps: bool = False) -> Computed:
        stored = self.stored
        job = files.restricted_job(stored, Job(tuple(view.name for view in views), request, own_steps, self.reading))
        if not stored.partials and stored.left_out:
            raise SourceError(stored.left_out[min(stored.left_out)], "no rank could be read")
        findings = stored.findings + left_out(stored.left_out, stored.ranks)
        return _of_source(merge(stored.partials, views, job), stored.source, findings)


Profile = LoadedProfile | PerRankProfile | PartialResults
"""A profile. ``compute`` returns the tables of views, or raises UsageError or SourceError."""


def _of_source(computed: Computed, source: str, findings: tuple[Finding, ...]) -> Computed:
    meta = msgspec.structs.replace(computed.meta, source=source)
    return replace(computed, meta=meta, quality=tuple(dict.fromkeys((*findings, *computed.quality))))


def opened(
    sources: Sequence[PathLike],
    options: ReadOptions = DEFAULT,
    workers: int = 1,
    scheduler: str | None = None,
    report: Callable[[str], None] = lambda text: None,
    together_bytes: int = 0,
) -> Profile:
    """Return the profile of the sources: files and folders of one or more ranks, or files of partial results.

    If the unpacked files have at most ``together_bytes``, all ranks are read as one trace. Otherwise, or with several
    ``workers`` or a ``scheduler``, each rank is read separately. Raises SourceError, and UsageError if other steps are
    chosen for partial results."""
    if scheduler is not None:  # a Dask worker may have another current folder
        sources = [absolute(source) for source in sources]
    if files.are_partials(sources):
        if options.step_on is not None:
            raise UsageError("partial results cannot be read with other steps", "give --step-on together with --shard")
        return PartialResults(files.read_all(sources, options.partial), options)
    planned = plan(sources, options.partial)
    if len(planned.ranks) == 1:
        return LoadedProfile(load.load_all(sources, options), options)
    if workers == 1 and scheduler is None:
        paths = [as_path(path) for rank in planned.ranks for path in rank.paths]
        sizes = (math.inf if is_remote(path) else path.stat().st_size * _UNPACKED.get(path.suffix, 1) for path in paths)
        if sum(sizes) <= together_bytes:
            trace = load.load_all(sources, options)
            return LoadedProfile(trace.with_meta(source=planned.source), options)
    return PerRankProfile(planned, options, workers, scheduler, report)


def as_profile(profile: Trace | PathLike | Sequence[PathLike], **reading: Any) -> Profile:
    """Return the profile of a Trace, or of one or more sources as :func:`opened` reads them with ``reading``."""
    if isinstance(profile, Trace):
        return LoadedProfile(profile)
    return opened([profile] if isinstance(profile, (str, os.PathLike)) else list(profile), **reading)
