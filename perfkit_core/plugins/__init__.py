"""How perfkit is extended: hook specifications, and the manager that loads built-ins and installed plugins alike."""

from __future__ import annotations

from perfkit_core.plugins.hookspecs import hookimpl

__all__ = ["hookimpl"]
