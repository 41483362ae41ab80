"""Reduces the ranks of a plan wherever an executor runs them, and collects the partials.

Written against ``concurrent.futures.Executor``: this process, a pool of processes, or a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool

from perfkit_core.errors import PerfkitError, SourceError, UsageError
from perfkit_core.ranks.job import Failed, Job, Partial
from perfkit_core.ranks.plan import Plan
from perfkit_core.ranks.reduce import reduce_rank
from perfkit_core.trace import Finding

Report = Callable[[int], None]
Answer = tuple[Partial, ...] | Failed


def run(
    executor: Executor, plan: Plan, job: Job, report: Report = lambda done: None
) -> tuple[list[Partial], tuple[Finding, ...]]:
    """The partials of all ranks, in the order of the plan, and findings about the files.

    ``report`` is called with the number of ranks that are done. A rank that cannot be read is named by a SourceError;
    with ``job.partial`` it is left out, with a finding. Raises UsageError for a request that makes no sense.
    """
    futures: list[Future[Answer]] = []
    try:
        for files in plan.ranks:
            futures.append(executor.submit(reduce_rank, files, job))
            if futures[-1].done():  # of an executor that works at once
                _stop_at_failure(futures[-1].result(), job)
                report(len(futures))
        for done, future in enumerate(as_completed(futures), 1):
            _stop_at_failure(future.result(), job)
            report(done)
    except BrokenProcessPool:
        raise UsageError(
            "a worker process ended while it read a rank", "was it out of memory? try fewer --workers"
        ) from None
    finally:
        for future in futures:
            future.cancel()
    return _collected([future.result() for future in futures], plan)


def _stop_at_failure(answer: Answer, job: Job) -> None:
    if isinstance(answer, Failed) and (answer.usage or not job.partial):
        raise _error(answer)


def _error(failed: Failed) -> PerfkitError:
    return (UsageError if failed.usage else SourceError)(failed.message, failed.hint)


def _collected(answers: list[Answer], plan: Plan) -> tuple[list[Partial], tuple[Finding, ...]]:
    partials = [partial for answer in answers if not isinstance(answer, Failed) for partial in answer]
    failed = [answer for answer in answers if isinstance(answer, Failed)]
    if not failed:
        return partials, plan.findings
    if not partials:
        raise _error(failed[0])
    text = f"{len(failed)} of {len(answers)} ranks could not be read and are left out, the first: {failed[0].message}"
    return partials, (*plan.findings, Finding("ranks-left-out", text))
