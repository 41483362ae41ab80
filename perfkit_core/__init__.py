"""The core of perfkit: event model, views, comparison, advice and reports.

The core imports no framework. Public names are imported on first use, so that ``import perfkit_core`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit_core.advice.engine import advise
    from perfkit_core.api import summarize
    from perfkit_core.compare.comparison import Comparison, compare
    from perfkit_core.errors import CaptureError, PerfkitError, SourceError, UsageError
    from perfkit_core.exporters.export import export
    from perfkit_core.output.report.run_list import list_runs
    from perfkit_core.readers.load import load
    from perfkit_core.trace.model.trace import Trace

__all__ = [
    "CaptureError", "Comparison", "PerfkitError", "SourceError", "Trace", "UsageError", "advise", "compare", "export",
    "list_runs", "load", "summarize",
]  # fmt: skip

_HOME = {
    "CaptureError": "perfkit_core.errors",
    "Comparison": "perfkit_core.compare.comparison",
    "PerfkitError": "perfkit_core.errors",
    "SourceError": "perfkit_core.errors",
    "Trace": "perfkit_core.trace.model.trace",
    "UsageError": "perfkit_core.errors",
    "advise": "perfkit_core.advice.engine",
    "compare": "perfkit_core.compare.comparison",
    "export": "perfkit_core.exporters.export",
    "list_runs": "perfkit_core.output.report.run_list",
    "load": "perfkit_core.readers.load",
    "summarize": "perfkit_core.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'perfkit_core' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
