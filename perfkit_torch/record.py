"""Recording of unmodified torch scripts, and the demo training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.recording.signals import GivingWay
from perfkit_core.recording.step_recording import asked
from perfkit_core.recording.writer import CycleWriter
from perfkit_core.system import failures
from perfkit_torch.capture import place, take

_OPTIONS: Final = {
    "shapes": "record_shapes", "memory": "profile_memory", "stacks": "with_stack", "flops": "with_flops"
}  # fmt: skip


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
        self._handler: CycleWriter[Any] = CycleWriter(run_dir, take, place=place)
        self._profiler = torch.profiler.profile(on_trace_ready=self._handler, **asked(options, _OPTIONS, "torch"))
        self._label = torch.profiler.record_function
        self._open: Any = None
        self._wanted = steps
        self._ended = -1  # the first end only opens step 0
        self._optimizer: int | None = None
        self._running = True
        self._hooks = _optimizer_hooks(self._before_update, self._after_update)
        self._profiler.start()
        autograd = torch.autograd.profiler.profile  # what every profiler of torch starts
        self._other = GivingWay(autograd, "_prepare_trace", lambda: _guarded(self._stop))

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        """Stop only before the update after the last wanted step: within one, stopping would be its time."""
        if self._wanted is not None and self._ended >= self._wanted and self._optimizer == id(optimizer):
            _guarded(self._stop)

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        self._optimizer = self._optimizer or id(optimizer)
        if self._running and self._optimizer == id(optimizer):
            _guarded(self._next_step)

    def _next_step(self) -> None:
        self._ended += 1
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
        if self._wanted is None or self._ended < self._wanted:
            self._open = self._label(f"ProfilerStep#{self._ended}")
            self._open.__enter__()

    def _stop(self) -> None:
        if self._running:
            self._running = False
            self._other.over()
            self._profiler.stop()
            for hook in self._hooks:
                hook.remove()

    def finish(self) -> int:
        """End the recording if it still runs; the number of files written.

        Raises CaptureError where it had to end for a profiler of the script.
        """
        self._stop()
        written = len(self._handler.written)
        self._other.check()
        return written


def _optimizer_hooks(before: Callable[..., None], after: Callable[..., None]) -> list[Any]:
    """Have every optimizer of the process call ``before`` and ``after`` around each update; handles that undo it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    return [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]


def _guarded(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        failures.log("recording failed, the script goes on", error)


def start(run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> Recording:
    """Begin recording in this process. Raises CaptureError without torch, UsageError for unknown options."""
    return Recording(run_dir, steps, options)


def demo(run_dir: Path, report: Callable[[str], None]) -> None:
    """Train a small conv net for a few steps under torch.profiler with perfkit's handler."""
    from perfkit_torch import demo as training

    torch = _torch()
    report(f"torch {torch.__version__}: training the demo model")
    training.train(run_dir)
