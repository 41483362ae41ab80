"""perfkit for Python: ``load``, ``summarize``, ``compare``, ``advise``, ``report``, and what they return and raise.

``perfkit.torch`` and ``perfkit.paddle`` record the runs of a framework. Names are imported on first use, so that
``import perfkit`` imports neither numpy nor a framework."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit import paddle, torch
    from perfkit_core.advice.advice import Advice, Advices
    from perfkit_core.advice.engine import advise
    from perfkit_core.advice.what_if import WhatIf, what_if
    from perfkit_core.api import Summary, report, summarize
    from perfkit_core.compare.comparison import Comparison, compare
    from perfkit_core.errors import CaptureError, PerfkitError, SourceError, UsageError
    from perfkit_core.exporters.export import export
    from perfkit_core.exporters.scrub import scrub
    from perfkit_core.integrations.sql.statement import sql
    from perfkit_core.integrations.trackers import to_mlflow, to_tensorboard, to_wandb
    from perfkit_core.output.report.run_list import list_runs
    from perfkit_core.readers.load import load
    from perfkit_core.recording.profiled_loop import profile
    from perfkit_core.trace.model.trace import Trace

    __version__: str

__all__ = [
    "Advice", "Advices", "CaptureError", "Comparison", "PerfkitError", "SourceError", "Summary", "Trace", "UsageError",
    "WhatIf", "__version__", "advise", "compare", "export", "list_runs", "load", "paddle", "profile", "report", "scrub",
    "sql", "summarize", "to_mlflow", "to_tensorboard", "to_wandb", "torch", "what_if",
]  # fmt: skip

_HOMES = {
    "Advice": "advice.advice",
    "Advices": "advice.advice",
    "CaptureError": "errors",
    "Comparison": "compare.comparison",
    "PerfkitError": "errors",
    "SourceError": "errors",
    "Summary": "api",
    "Trace": "trace.model.trace",
    "UsageError": "errors",
    "WhatIf": "advice.what_if",
    "advise": "advice.engine",
    "compare": "compare.comparison",
    "export": "exporters.export",
    "list_runs": "output.report.run_list",
    "load": "readers.load",
    "profile": "recording.profiled_loop",
    "to_mlflow": "integrations.trackers",
    "to_tensorboard": "integrations.trackers",
    "to_wandb": "integrations.trackers",
    "report": "api",
    "scrub": "exporters.scrub",
    "sql": "integrations.sql.statement",
    "summarize": "api",
    "what_if": "advice.what_if",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("perfkit")
    if name in ("paddle", "torch"):
        return import_module(f"perfkit.{name}")
    if name in _HOMES:
        return getattr(import_module(f"perfkit_core.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'perfkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Show results as HTML in notebooks, and add the magic ``%%perfkit``. ``%load_ext perfkit`` calls this function,
    and so does ``import perfkit`` in IPython."""
    import_module("perfkit_core.notebook").register(shell)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
