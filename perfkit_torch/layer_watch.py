"""Hooks on layers come and go with torch's profiler, so that a model has none while nothing records."""

from __future__ import annotations

from typing import Final

import torch

from perfkit_core.layers.annotation import Active, install_all, uninstall_all

_ORIGINALS: Final = "_perfkit_originals"
"""Attribute of ``torch.autograd.profiler`` for the functions that :func:`watch` replaces there: what torch itself calls
when a profiler begins and stops to record, whoever started it."""


def watch(active: Active) -> None:
    """Install hooks whenever a profiler begins to record, and now if one does."""
    profiler = torch.autograd.profiler
    if not hasattr(profiler, "_run_on_profiler_start"):  # then hooks stay, and ask whether a profiler records
        install_all(active)
        return
    if not hasattr(profiler, _ORIGINALS):
        on_start, on_stop = profiler._run_on_profiler_start, profiler._run_on_profiler_stop

        def started() -> None:
            on_start()
            install_all(active)

        def stopped() -> None:
            uninstall_all(active)
            on_stop()

        setattr(profiler, _ORIGINALS, (on_start, on_stop))
        profiler._run_on_profiler_start, profiler._run_on_profiler_stop = started, stopped
    if torch.autograd._profiler_enabled():
        install_all(active)


def unwatch(active: Active) -> None:
    """Give torch its functions back once nothing is annotated."""
    profiler = torch.autograd.profiler
    if not active and hasattr(profiler, _ORIGINALS):
        profiler._run_on_profiler_start, profiler._run_on_profiler_stop = getattr(profiler, _ORIGINALS)
        delattr(profiler, _ORIGINALS)
