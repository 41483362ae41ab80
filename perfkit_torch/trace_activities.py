"""Events of a finished torch profiler, read from ``kineto_results.trace_activities()``.

Exact integer nanoseconds and unmangled names, without the one export that a trace allows. Read column by column, a few
thousand events at a time: torch's own calls are then most of the cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any, Final

import numpy as np

from perfkit_torch.event_text import INSTANT, LiveBatch, texts
from perfkit_torch.names import MEMORY_EVENT

_BATCH: Final = 1 << 13
"""Events at a time: their text stays in the processor's cache, and other threads wait for a few ms at most."""

_EXTERNAL: Final = frozenset(("cpu_op", "user_annotation"))
_WITHOUT_IDS: Final = frozenset(("python_function", INSTANT))


def available(kineto_results: Any) -> bool:
    """Whether this torch offers it (asked for, not assumed: it is private)."""
    return callable(getattr(kineto_results, "trace_activities", None))


def batches(kineto_results: Any, with_flops: bool) -> Iterator[LiveBatch]:
    """The events as the Chrome export would write them, in its order.

    ``with_flops`` adds what only ``events()`` knows, at its cost (3 µs an event).
    """
    flops = _flops(kineto_results.events()) if with_flops else {}
    activities = kineto_results.trace_activities()
    for i in range(0, len(activities), _BATCH):
        part = activities[i : i + _BATCH]
        activities[i : i + _BATCH] = repeat(None, len(part))  # torch's objects go as soon as they have been read
        yield _batch(part, flops)


def _flops(events: list[Any]) -> dict[int, int]:
    """Floating point operations by correlation id, of the operators that torch counts."""
    if not events:
        return {}
    kind = type(events[0])
    counted = np.flatnonzero(np.fromiter(map(kind.flops, events), np.uint64, len(events)))
    return {events[i].correlation_id(): events[i].flops() for i in counted}


def _batch(activities: list[Any], flops: dict[int, int]) -> LiveBatch:
    kind, count = type(activities[0]), len(activities)
    names = texts(kind.name, activities)
    start_ns = np.fromiter(map(kind.timestamp, activities), np.int64, count)
    dur_ns = np.fromiter(map(kind.duration, activities), np.int64, count)
    dur_ns[np.fromiter(map(MEMORY_EVENT.__eq__, names), np.bool_, count)] = 0  # torch leaves garbage
    categories = [*map(kind.type, activities)]
    correlations, linked = ([*map(read, activities)] for read in (kind.correlation_id, kind.linked_correlation_id))
    return LiveBatch(
        categories,
        names,
        [*map(kind.device_id, activities)],
        [*map(kind.resource_id, activities)],
        texts(kind.metadata_json, activities),
        (start_ns, dur_ns),
        partial(_ids, categories, correlations, linked, flops),
    )


def _ids(
    categories: list[str], correlations: list[int], linked: list[int], flops: dict[int, int], metadata: list[str]
) -> list[str]:
    if _EXTERNAL.issuperset(categories):
        ids = [f'"External id":{correlation}' for correlation in correlations]
    else:
        ids = [*map(_id, categories, metadata, correlations, linked)]
    if flops:
        return [_counted(*row, flops) for row in zip(ids, categories, correlations, strict=True)]
    return ids


def _id(category: str, metadata: str, correlation: int, linked: int) -> str:
    if category in _EXTERNAL:
        return f'"External id":{correlation}'
    if category in _WITHOUT_IDS:
        return ""
    own = "" if '"correlation":' in metadata else f'"correlation":{correlation}'
    external = f'"External id":{linked}' if linked and '"External id":' not in metadata else ""
    return f"{own},{external}" if own and external else own or external


def _counted(ids: str, category: str, correlation: int, flops: dict[int, int]) -> str:
    return f'{ids},"flops":{flops[correlation]}' if category in _EXTERNAL and correlation in flops else ids
