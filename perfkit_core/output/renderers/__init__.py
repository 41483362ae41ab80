"""Renderers. Each module has a function ``render(report) -> str`` for one format. Renderers compute no numbers."""

from __future__ import annotations

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.contracts import Renderer

RENDERERS = tuple(
    Renderer(name, later(f"perfkit_core.output.renderers.{module}", "render"))
    for name, module in (
        ("text", "text"),
        ("markdown", "markdown"),
        ("json", "json"),
        ("csv", "csv"),
        ("html", "html.page"),
    )
)
