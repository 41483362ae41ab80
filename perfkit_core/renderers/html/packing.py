"""Data of a page besides its text, deflated and in base64, so that a page that works offline stays small.

That is the JavaScript of packages, long tables, and timelines. ``page.unpacked`` of the page's script reads it.
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
    """Return the deflated bytes, or UTF-8 text, in base64, which has no special characters of HTML."""
    raw = data.encode() if isinstance(data, str) else data
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


@functools.cache
def plotting() -> str:
    """Return plotly.js."""
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs())


@functools.cache
def tables() -> str:
    """Return DataTables with its extensions, a module that exports the class; from itables."""
    return packed(_of_itables("dt_bundle.js"))


@functools.cache
def table_style() -> str:
    """Return the style sheet of :func:`tables`."""
    return packed(_of_itables("dt_bundle.css"))


def _of_itables(name: str) -> str:
    # itables is not imported: it would import every kind of table that is installed
    found = find_spec("itables")
    assert found is not None  # perfkit requires it
    assert found.origin is not None
    return (Path(found.origin).parent / "html" / name).read_text(encoding="utf-8")


_COLUMNS: Final = (("start_ns", "<f8"), ("dur_ns", "<f8"), ("cause", "<i4"), ("name", "<i4"), ("row", "<i4"),
                   ("depth", "<i4"), ("kind", "<u2"))  # fmt: skip
"""The widest types first, so that each column is aligned. Times up to 104 days are exact as float64 of ns."""


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
