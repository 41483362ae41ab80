"""A Report as text in one format: one format a file, each a function ``render(report) -> str``.

A renderer never computes a number; units and headings come from the column names (see ``columns``).
"""

from __future__ import annotations

from perfkit_core.plugins.contracts import Renderer
from perfkit_core.renderers import csv, html, json, markdown, text

RENDERERS = (
    Renderer("text", text.render),
    Renderer("markdown", markdown.render),
    Renderer("json", json.render),
    Renderer("csv", csv.render),
    Renderer("html", html.render),
)
