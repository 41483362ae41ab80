"""perfkit for PyTorch: the names of ``perfkit_torch``, which import torch on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfkit_torch import __all__, __getattr__  # noqa: F401 (Python calls __getattr__)

if TYPE_CHECKING:
    from perfkit_torch import *  # noqa: F403


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
