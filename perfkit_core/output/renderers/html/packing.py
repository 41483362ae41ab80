"""Compressed data of a page: libraries, long tables and timelines as deflated base64. page.js decompresses the data."""

from __future__ import annotations

import base64
import functools
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.base.language.messages import say
from perfkit_core.errors import PerfkitError
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.renderers.html import colours
from perfkit_core.trace.model.report_data import Timeline


def packed(data: bytes | str) -> str:
    """Return bytes or UTF-8 text as deflated base64, which needs no HTML escapes."""
    raw = data.encode() if isinstance(data, str) else data
    return _base64(zlib.compress(raw, 1))  # six times as fast as the default level, for pages that are 1% larger


@functools.cache
def library(name: str) -> str:
    """Return the packed source of a library: "plotting" (plotly), "tables" (DataTables) or "table-style" (the style
    sheet of DataTables). Raises PerfkitError in a checkout that was not installed."""
    path = Path(__file__).with_name("libraries") / f"{name}.zlib"
    try:
        return _base64(path.read_bytes())
    except FileNotFoundError:  # hatch_build.py makes the file
        hint = "run pip install -e . in the checkout"
        raise PerfkitError(
            f"{path}: a library of the pages is missing, because perfkit is not installed", hint
        ) from None


def _base64(deflated: bytes) -> str:
    return base64.b64encode(deflated).decode("ascii")


_COLUMNS: Final = (("start_ns", "<f8"), ("dur_ns", "<f8"), ("cause", "<i4"), ("name", "<i4"), ("row", "<i4"),
                   ("depth", "<i4"), ("kind", "<u2"))  # fmt: skip
"""Columns of a timeline and their types. The widest types come first, so that all columns are aligned in memory. Times
are in ns; a float64 holds times up to 104 days exactly."""


def timeline(data: Timeline) -> dict[str, Any]:
    """Return the data of a timeline for the scripts of the page. Times are in ns."""
    marks = dict(sorted(data.marks.items()))  # as JSON has them: ``marked`` has the boxes in this order
    boxes = [of_thing for things in marks.values() for of_thing in things.values()]
    columns = [np.asarray(getattr(data, name)).astype(kind).tobytes() for name, kind in _COLUMNS]
    return {
        "count": len(data),
        "columns": [[name, kind[1:]] for name, kind in _COLUMNS],
        "data": packed(b"".join(columns)),
        "names": [visible(name) for name in data.names],
        "kinds": list(data.kinds),
        "colours": colours.of_names(data.kinds),
        "kinds_said": [say(kind) for kind in data.kinds],  # in the language of the page
        "rows": [[visible(row.group), visible(row.name)] for row in data.rows],
        "first": data.first,  # index in ``parts`` of the step that the page shows first
        "parts": [[visible(part.name), part.start_ns, part.end_ns, part.step] for part in data.parts],
        "marks": {
            kind: {"names": list(map(visible, things)), "counts": list(map(len, things.values()))}
            for kind, things in marks.items()
        },
        "marked": packed(np.concatenate([np.zeros(0), *boxes]).astype("<i4").tobytes()),  # boxes of all marks
    }
