"""Import of PyTorch on demand, and hooks on the updates of its optimizers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from perfkit_core.errors import CaptureError


def torch() -> Any:
    """Import torch and return the module. Raises CaptureError if the import fails."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CaptureError(f"torch cannot be imported ({error})", 'pip install "perfkit[torch]"') from None


class Updates:
    """Calls ``before`` and ``after`` around each step of one optimizer: the first that steps in this process."""

    def __init__(self, after: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
        from torch.optim import optimizer

        self._first: int | None = None
        self._before, self._after = before, after
        self._hooks = (
            optimizer.register_optimizer_step_pre_hook(self._updating),
            optimizer.register_optimizer_step_post_hook(self._updated),
        )

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _updating(self, optimizer: Any, *_: Any) -> None:
        if self._first == id(optimizer):
            self._before()

    def _updated(self, optimizer: Any, *_: Any) -> None:
        self._first = self._first or id(optimizer)
        if self._first == id(optimizer):
            self._after()
