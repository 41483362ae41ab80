"""How perfkit is extended: hook specifications, and the manager that loads built-ins and installed plugins alike."""

from perfkit_core.plugins.markers import hookimpl

__all__ = ["hookimpl"]
