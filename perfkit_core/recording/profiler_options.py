"""Are these options that the framework's profiler takes? Asked when they are given, not when training has begun."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from perfkit_core.errors import UsageError

_OURS: Final = {
    "schedule": "give steps=(first, last) or wait, warmup, active",
    "scheduler": "give steps=(first, last) or wait, warmup, active",
    "on_trace_ready": "give it as also=[…]: it is called with the profiler after each cycle",
    "timer_only": "it records no events",
}


def asked(options: Mapping[str, Any], known: Mapping[str, str], recorder: str) -> dict[str, bool]:
    """The profiler's arguments for what is asked of a Recorder; ``known``: option → argument, ``recorder``: its name.

    Raises UsageError for what the profiler cannot record.
    """
    wanted = [name for name, value in options.items() if value]
    for name in wanted:
        if name not in known:
            raise UsageError(f"{recorder} records no {name}", f"leave --{name} out; it can record {', '.join(known)}")
    return {known[name]: True for name in wanted}


def check_options(profiler: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises UsageError for options that are set by perfkit, or unknown to the profiler's class."""
    known = inspect.signature(profiler).parameters
    for name in options:
        if name in _OURS:
            raise UsageError(f"{name} cannot be given here", _OURS[name])
        if name not in known:
            allowed = ", ".join(sorted(known.keys() - _OURS.keys()))
            raise UsageError(f"the profiler has no option {name}", f"it takes {allowed}")
