"""Extension points: hook specifications, and the manager that loads built-in and installed plugins."""

from __future__ import annotations

from perfkit_core.plugins.hookspecs import hookimpl

__all__ = ["hookimpl"]
