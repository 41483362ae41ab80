"""A profile to make a report of: a trace, many ranks, or partials in files. Each computes views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec

from perfkit_core.errors import SourceError
from perfkit_core.loading import load
from perfkit_core.paths import PathLike, as_path, is_remote
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.rank_findings import left_out
from perfkit_core.ranks import files
from perfkit_core.ranks.computed import Computed, compute, merge
from perfkit_core.ranks.executors import executor
from perfkit_core.ranks.job import Job
from perfkit_core.ranks.plan import Plan, plan
from perfkit_core.ranks.run import error, run
from perfkit_core.trace import Finding, Trace

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
