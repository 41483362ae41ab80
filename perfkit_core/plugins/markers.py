"""The two decorators of pluggy, bound to the project name ``perfkit``."""

from __future__ import annotations

from typing import Final

import pluggy

PROJECT: Final = "perfkit"
"""pluggy project name, and the entry-point group of plugins."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
