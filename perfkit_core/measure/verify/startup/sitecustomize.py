"""Start the timer of steps in a new Python process. Python imports this module if this folder is on its path.

First, the module removes this folder from the path, so that the script is not affected. Then it imports the
``sitecustomize`` module that Python would have imported without this folder."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent

sys.path[:] = [folder for folder in sys.path if not folder or Path(folder).resolve() != _HERE]
_this_module = sys.modules.pop("sitecustomize", None)
with contextlib.suppress(ImportError):
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
sys.modules.setdefault("sitecustomize", _this_module or sys.modules[__name__])

with contextlib.suppress(ImportError):  # If perfkit is not installed in this Python, nothing is timed.
    from perfkit_core.measure.verify import step_times

    step_times.install()
