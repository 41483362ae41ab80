"""Deflated base64 data of a page (libraries, long tables, timelines), which keeps offline pages small.

``page.unpacked`` of the page's script reads it.
"""

from __future__ import annotations

import base64
import functools
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.language.messages import say
from perfkit_core.renderers.cells import visible
from perfkit_core.report.model import Timeline


def packed(data: bytes | str) -> str:
    """Return deflated bytes or UTF-8 text as base64, which needs no HTML escapes."""
    raw = data.encode() if isinstance(data, str) else data
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


@functools.cache
def library(name: str) -> str:
    """Return plotly ("plotting"), or a file of DataTables with its extensions, as bundled with itables."""
    if name == "plotting":
        from plotly.offline import get_plotlyjs

        return packed(get_plotlyjs())
    # itables is not imported, as it imports every installed DataFrame library
    found = find_spec("itables")
    assert found is not None  # perfkit requires it
    assert found.origin is not None
    file = {"tables": "dt_bundle.js", "table-style": "dt_bundle.css"}[name]
    return packed((Path(found.origin).parent / "html" / file).read_text(encoding="utf-8"))


_COLUMNS: Final = (("start_ns", "<f8"), ("dur_ns", "<f8"), ("cause", "<i4"), ("name", "<i4"), ("row", "<i4"),
                   ("depth", "<i4"), ("kind", "<u2"))  # fmt: skip
"""Widest types first, so that each column is aligned. float64 holds ns up to 104 days exactly."""


def timeline(data: Timeline) -> dict[str, Any]:
    """Return ``{"count", "columns": [[name, type], …], "data": base64 of the deflated columns, "names", "kinds" (ids),
    "kinds_said" (translated), "rows", "parts", "first"}``, times in ns."""
    columns = [np.asarray(getattr(data, name)).astype(kind).tobytes() for name, kind in _COLUMNS]
    return {
        "count": len(data),
        "columns": [[name, kind[1:]] for name, kind in _COLUMNS],
        "data": packed(b"".join(columns)),
        "names": [visible(name) for name in data.names],
        "kinds": list(data.kinds),
        "kinds_said": [say(kind) for kind in data.kinds],
        "rows": [[visible(row.group), visible(row.name)] for row in data.rows],
        "first": data.first,
        "parts": [[visible(part.name), part.start_ns, part.end_ns] for part in data.parts],
    }
