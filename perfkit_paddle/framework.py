"""Paddle itself, imported only when something is to be recorded."""

from __future__ import annotations

import importlib
from typing import Any

from perfkit_core.errors import CaptureError


def paddle() -> Any:
    """The module. Raises CaptureError with what to install when it cannot be imported."""
    try:
        return importlib.import_module("paddle")
    except ImportError as error:
        hint = 'install it with: pip install "perfkit[paddle]" (or the GPU wheel of your CUDA version)'
        raise CaptureError(f"PaddlePaddle cannot be imported ({error})", hint) from None


def profiler() -> Any:
    """The module ``paddle.profiler``."""
    paddle()
    return importlib.import_module("paddle.profiler")
