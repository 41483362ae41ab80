"""What Python imports when it starts with this folder on its path: the timer of steps, then what was hidden by it.

The folder leaves the path again, so that the script finds the path that it would find without us; the interpreter's own
``sitecustomize``, where there is one, is imported as usual.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _is_here(place: str) -> bool:
    return bool(place) and Path(place).resolve() == _HERE


sys.path[:] = [place for place in sys.path if not _is_here(place)]
_own = sys.modules.pop("sitecustomize", None)
with contextlib.suppress(ImportError):
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # the one that we hide
sys.modules.setdefault("sitecustomize", _own or sys.modules[__name__])

with contextlib.suppress(ImportError):  # a Python in which perfkit is not installed: nothing is timed
    from perfkit_core.verify import step_times

    step_times.install()
