"""Imports what numba puts off until the first compiled function is loaded: most of itself."""

from __future__ import annotations

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
