"""Can the recorded device multiply matrices with tensor cores, and of which numbers?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.trace import Device

_TENSOR_CORES, _TF32 = 7, 8
"""Major compute capability of CUDA that brought tensor cores, and those for TF32 (CUDA C++ Programming Guide, table of
features by compute capability)."""
_WARP: Final = 32
"""Threads of a warp on all devices with CUDA compute capabilities; other makers number theirs alike, with 64."""
_WITHOUT: Final = re.compile(r"GTX 16")
"""Of compute capability 7.5, but without tensor cores."""
_MATRIX_CORES: Final = re.compile(r"Instinct MI([1-9]\d\d)")
"""With matrix cores for half precision from MI100 on."""
_NOT_TOLD: Final = "the compute capability of the device was not recorded"


@dataclass(frozen=True, slots=True)
class Units:
    """Whether there are tensor cores for half precision and for single precision rounded to TF32."""

    name: str
    half: bool
    tf32: bool


def units(facts: Facts) -> Units:
    """Those of the devices of the trace; of several, what all of them have. Raises NotEvaluableError."""
    devices = facts.trace.meta.devices
    if not devices:
        raise NotEvaluableError(_NOT_TOLD)
    found = [of_device(device) for device in devices]
    return Units(found[0].name, all(one.half for one in found), all(one.tf32 for one in found))


def of_device(device: Device) -> Units:
    """Those of one device. Raises NotEvaluableError where its properties do not tell."""
    name, major = device.name or device.id, _number(device.properties, "computeMajor")
    if _MATRIX_CORES.search(name):
        return Units(name, True, False)
    if major is None or _number(device.properties, "warpSize") not in (None, _WARP) or re.search("AMD|Radeon", name):
        raise NotEvaluableError(f"{_NOT_TOLD} ({name})")
    cores = major >= _TENSOR_CORES and not _WITHOUT.search(name)
    return Units(name, cores, cores and major >= _TF32)


def _number(properties: dict[str, Any], key: str) -> int | None:
    value = properties.get(key)
    return value if isinstance(value, int) else None
