"""The JavaScript that packages bring, as a page carries it: deflated, so that a page that works offline stays small.

What a page carries beside its text: deflated, and in letters. ``page.unpacked`` of its script reads it.
"""

from __future__ import annotations

import base64
import functools
import zlib
from importlib.util import find_spec
from pathlib import Path


def packed(data: bytes | str) -> str:
    """Base64 of the deflated bytes, or of the text in UTF-8: letters that mean nothing in HTML."""
    raw = data.encode() if isinstance(data, str) else data
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


@functools.cache
def plotting() -> str:
    """plotly.js."""
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs())


@functools.cache
def tables() -> str:
    """DataTables with its extensions, a module that exports the class; from itables."""
    return packed(_of_itables("dt_bundle.js"))


@functools.cache
def table_style() -> str:
    """The style sheet of :func:`tables`."""
    return packed(_of_itables("dt_bundle.css"))


def _of_itables(name: str) -> str:
    """A file of the package, which is not imported for it: it brings along every kind of table that is installed."""
    found = find_spec("itables")
    assert found is not None  # perfkit requires it
    assert found.origin is not None
    return (Path(found.origin).parent / "html" / name).read_text(encoding="utf-8")
