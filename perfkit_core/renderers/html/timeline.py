"""A timeline as a page carries it: columns of numbers, deflated, and the few texts that they point at."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from perfkit_core.language.messages import say
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.html.packing import packed
from perfkit_core.report.model import Timeline

_COLUMNS: Final = (("start_ns", "<f8"), ("dur_ns", "<f8"), ("cause", "<i4"), ("name", "<i4"), ("row", "<i4"),
                   ("depth", "<i4"), ("kind", "<u2"))  # fmt: skip
"""Widest first, so that each begins where its numbers can be read in place. Times up to 104 days are exact as float64
of ns."""


def payload(timeline: Timeline) -> dict[str, Any]:
    """``{"count", "columns": [[name, type], …], "data": base64 of the deflated columns, "names", "kinds" (as they are
    called, and as they are said), "rows",
    "parts", "first"}``, times in ns."""
    columns = [np.asarray(getattr(timeline, name)).astype(kind).tobytes() for name, kind in _COLUMNS]
    return {
        "count": len(timeline),
        "columns": [[name, kind[1:]] for name, kind in _COLUMNS],
        "data": packed(b"".join(columns)),
        "names": [visible(name) for name in timeline.names],
        "kinds": list(timeline.kinds),
        "kinds_said": [say(kind) for kind in timeline.kinds],
        "rows": [[visible(row.group), visible(row.name)] for row in timeline.rows],
        "first": timeline.first,
        "parts": [[visible(part.name), part.start_ns, part.end_ns] for part in timeline.parts],
    }
