"""The JavaScript that packages bring, as a page carries it: deflated, so that a page that works offline stays small."""

from __future__ import annotations

import functools
from importlib.resources import files

from perfkit_core.renderers.packing import packed


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
    return (files("itables") / "html" / name).read_text(encoding="utf-8")
