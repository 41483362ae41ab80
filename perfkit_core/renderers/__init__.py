"""Renderers. Each module has a function ``render(report) -> str`` for one format. Renderers compute no numbers."""

from __future__ import annotations

from perfkit_core.plugins.contracts import Renderer
from perfkit_core.system.packages import later

RENDERERS = tuple(
    Renderer(name, later(f"perfkit_core.renderers.{module}", "render"))
    for name, module in (
        ("text", "text"),
        ("markdown", "markdown"),
        ("json", "json"),
        ("csv", "csv"),
        ("html", "html.page"),
    )
)
