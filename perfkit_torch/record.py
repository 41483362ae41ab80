"""Recording of unmodified torch scripts, and the demo training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfkit_core.capture import logger
from perfkit_core.errors import CaptureError
from perfkit_torch.capture import trace_handler


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise CaptureError(f"torch cannot be imported ({error})", 'pip install "perfkit[torch]"') from None
    return torch


class Recording:
    """A profiler over a script that knows nothing of it.

    A step ends where the first optimizer's ``step()`` returns. What comes before the first such end (imports, set-up,
    the first iteration) belongs to no step, nor does what follows the last.
    """

    def __init__(self, run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> None:
        torch = _torch()
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handler = trace_handler(run_dir)
        self._profiler = torch.profiler.profile(on_trace_ready=self._handler, **options)
        self._label = torch.profiler.record_function
        self._open: Any = None
        self._wanted = steps
        self._ended = -1  # the first end only opens step 0
        self._optimizer: int | None = None
        self._running = True
        self._hook = register_optimizer_step_post_hook(self._guarded)
        self._profiler.start()

    def _guarded(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            self._after_optimizer_step(id(optimizer))
        except Exception:
            logger.exception("perfkit: recording failed; the script goes on")

    def _after_optimizer_step(self, optimizer: int) -> None:
        self._optimizer = self._optimizer or optimizer
        if not self._running or self._optimizer != optimizer:
            return
        self._ended += 1
        if self._open is not None:
            self._open.__exit__(None, None, None)
        if self._wanted is not None and self._ended >= self._wanted:
            self._stop()
        else:
            self._open = self._label(f"ProfilerStep#{self._ended}")
            self._open.__enter__()

    def _stop(self) -> None:
        if self._running:
            self._running = False
            self._profiler.stop()
            self._hook.remove()

    def finish(self) -> int:
        """End the recording if it still runs; the number of files written."""
        self._stop()
        return len(self._handler.written)


def start(run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> Recording:
    """Begin recording in this process. Raises CaptureError without torch."""
    return Recording(run_dir, steps, options)


def demo(run_dir: Path, report: Callable[[str], None]) -> None:
    """Train a small conv net for a few steps under torch.profiler with perfkit's handler."""
    from perfkit_torch import demo as training

    torch = _torch()
    report(f"torch {torch.__version__}: training the demo model")
    training.train(run_dir)
