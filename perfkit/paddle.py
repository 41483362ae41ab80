"""perfkit for PaddlePaddle: the names of ``perfkit_paddle``, which import paddle on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfkit_paddle import __all__, __getattr__  # noqa: F401 (Python calls __getattr__)

if TYPE_CHECKING:
    from perfkit_paddle import *  # noqa: F403


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
