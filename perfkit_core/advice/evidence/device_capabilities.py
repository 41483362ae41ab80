"""Whether the recorded devices multiply matrices on tensor cores (matrix cores), and for which number formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.language.messages import message
from perfkit_core.model.meta import Device

_TENSOR_CORES, _TF32 = 7, 8
"""Major compute capability of CUDA that brought tensor cores, and those for TF32 and bfloat16 (CUDA C++ Programming
Guide, table of features by compute capability)."""
_WARP: Final = 32
"""Threads of a warp on all devices with CUDA compute capabilities; other makers number theirs alike, with 64."""
_WITHOUT: Final = re.compile(r"GTX 16")
"""Compute capability 7.5, but without tensor cores."""
_MATRIX_CORES: Final = re.compile(r"Instinct MI([1-9]\d\d)")
"""With matrix cores for half precision from MI100 on; from MI200 on they are as fast for bfloat16 (AMD, ISA guides)."""
_MI200: Final = 200


@dataclass(frozen=True, slots=True)
class TensorCores:
    """Whether a device has tensor cores for half precision, for single precision rounded to TF32, and for bfloat16."""

    name: str
    half: bool
    tf32: bool
    bfloat16: bool


def tensor_cores(devices: Sequence[Device]) -> TensorCores:
    """Return what all of the devices have. Raises NotEvaluableError where their properties do not say."""
    if not devices:
        raise NotEvaluableError(message("the compute capability of the device was not recorded"))
    known = [of_device(device) for device in devices]
    half, tf32, bfloat16 = (all(getattr(one, kind) for one in known) for kind in ("half", "tf32", "bfloat16"))
    return TensorCores(known[0].name, half, tf32, bfloat16)


def of_device(device: Device) -> TensorCores:
    """Return what one device has. Raises NotEvaluableError where its properties do not say."""
    name, major = device.name or device.id, _number(device.properties, "computeMajor")
    instinct = _MATRIX_CORES.search(name)
    if instinct:
        return TensorCores(name, True, False, int(instinct[1]) >= _MI200)
    if major is None or _number(device.properties, "warpSize") not in (None, _WARP) or re.search("AMD|Radeon", name):
        raise NotEvaluableError(
            message("the compute capability of the device was not recorded ({device})", device=name)
        )
    cores = major >= _TENSOR_CORES and not _WITHOUT.search(name)
    return TensorCores(name, cores, cores and major >= _TF32, cores and major >= _TF32)


def _number(properties: dict[str, Any], key: str) -> int | None:
    value = properties.get(key)
    return value if isinstance(value, int) else None
