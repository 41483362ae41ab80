"""The account of the events that are rows of the event table, and the warning about rows that were not interpreted."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.language.messages import plural, say
from perfkit_core.trace.model import account, schema
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.meta import UNKNOWN_EVENTS, Finding
from perfkit_core.trace.model.trace import Trace

_NEGLIGIBLE: Final = 0.01
"""Unknown events that take less than this share of the recording are only noted."""
_SHOWN: Final = 4
"""Number of unknown types that a warning names."""


def rows_read(draft: Trace) -> tuple[ReadEvents, ...]:
    """Return the rows by category, and by the process or device on which they ran."""
    categories, devices = draft.codes("category"), draft.codes("device")
    names = {key.rpartition(":")[2]: name for key, name in draft.meta.process_names.items()}
    pid, width = draft.ints("pid"), len(devices.values) + 1
    key = 2 * (width * (categories.codes.astype(np.int64) + 1) + devices.codes + 1) + (pid >= 0)
    group, first = groupby.by_appearance(key, 2 * width * (len(categories.values) + 1))
    if ((pid >= 0) & (pid != pid.max(initial=-1))).any():  # several processes
        group, first = groupby.distinct([group, pid], len(draft))
    counts = np.bincount(group, minlength=len(first))
    times = groupby.sums(group, len(first), draft.ints("dur_ns"))
    entries = []
    for row, count, dur_ns in zip(first.tolist(), counts.tolist(), times.tolist(), strict=True):
        category, device = (int(column.codes[row]) for column in (categories, devices))
        process = str(pid[row]) if pid[row] >= 0 else devices.values[device] if device >= 0 else None
        text = categories.values[category] if category >= 0 else None
        entries.append(ReadEvents(account.ROW, count, None, text, names.get(process or "", process), dur_ns))
    return tuple(entries)


def unknown_events(draft: Trace) -> tuple[Finding, ...]:
    """Warn of events that the reader could not interpret."""
    rows = np.flatnonzero(draft.rows("kind", schema.UNKNOWN))
    if not len(rows):
        return ()
    codes, time_ns = draft.codes("category"), int(draft.ints("dur_ns")[rows].sum())
    counts = Counter(codes.values[code] if code >= 0 else "" for code in codes.codes[rows].tolist())
    types = ", ".join(f"{name or say('no category')} ({count})" for name, count in counts.most_common(_SHOWN))
    text = plural(
        "1 event of an unknown type ({time:ns}) was not interpreted: {types}",
        "{n} events of unknown types ({time:ns}) were not interpreted: {types}",
        len(rows),
        time=time_ns,
        types=types,
    )
    first, last = int(draft.ints("start_ns").min()), int(draft.end_ns.max())
    return (Finding(UNKNOWN_EVENTS, text, note=time_ns < _NEGLIGIBLE * (last - first)),)
