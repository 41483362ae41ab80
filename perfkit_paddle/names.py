"""Paddle's words for events, and what they mean in perfkit's vocabulary.

Event types are keyed by name (``TracerEventType`` of Paddle), because their numbers changed meaning between versions.
"""

from __future__ import annotations

import re
from typing import Final

from perfkit_core import collective_labels, schema
from perfkit_core.layers import module_labels
from perfkit_core.sources.dialect import Label

EVENT_TYPES: Final = (
    "Operator", "Dataloader", "ProfileStep", "CudaRuntime", "Kernel", "Memcpy", "Memset", "UserDefined",
    "OperatorInner", "Forward", "Backward", "Optimization", "Communication", "PythonOp", "PythonUserDefined",
    "DygraphKernelLaunch", "StaticKernelLaunch",
)  # fmt: skip
"""By number in the protobuf. Up to Paddle 2.x 15 was MluRuntime, which is a runtime call: those are stored without a
type. So a host event of type 15 is always a DygraphKernelLaunch, whatever wrote the file."""

MEMORY_TYPES: Final = ("Allocate", "Free", "ReservedAllocate", "ReservedFree")
"""By number in the protobuf."""

MEMORY_NAME: Final = "[memory]"
"""Name of every memory event, as in Paddle's JSON."""

ROOT_NAME: Final = "root node"
"""Name of the artificial node above each thread."""

DEVICE_BACKEND: Final = "cuda"
"""Device work is recorded with a device number only; CUPTI is the tracer that records it."""

_PHASE_KINDS: Final = {
    "Dataloader": schema.DATALOADER,
    "Forward": schema.FORWARD,
    "Backward": schema.BACKWARD,
    "Optimization": schema.OPTIMIZER,
}
_HOST_KINDS: Final = {
    "Operator": schema.OPERATOR,
    "ProfileStep": schema.STEP,
    "CudaRuntime": schema.RUNTIME,
    "MluRuntime": schema.RUNTIME,
    "UserDefined": schema.OPERATOR_DETAIL,
    "OperatorInner": schema.OPERATOR_DETAIL,
    "Communication": schema.COMMUNICATION,
    "PythonOp": schema.OPERATOR,
    "PythonUserDefined": schema.ANNOTATION,
    "DygraphKernelLaunch": schema.OPERATOR_DETAIL,
    "StaticKernelLaunch": schema.OPERATOR_DETAIL,
} | dict.fromkeys(MEMORY_TYPES, schema.MEMORY)
_DEVICE_KINDS: Final = {"Kernel": schema.KERNEL, "Memcpy": schema.MEMCPY, "Memset": schema.MEMSET}

_STEP_NUMBER: Final = re.compile(r"ProfileStep#(\d{1,18})")
_DIRECTION: Final = re.compile(r"(?:HtoD|DtoH|DtoD|HtoH|PtoP|HtoA|AtoH|AtoA|AtoD|DtoA)")
_PLACE: Final = re.compile(r"Place\((\w+?)(?::(\d+))?\)")
_PLACE_BACKENDS: Final = {"gpu": "cuda"}
_HOST_PLACES: Final = frozenset({"cpu", "gpu_pinned", "xpu_pinned", "undefined"})


def is_known(category: str) -> bool:
    """Whether the event type is one that perfkit gives a meaning to."""
    return category in _PHASE_KINDS or category in _HOST_KINDS or category in _DEVICE_KINDS


def label(category: str, name: str) -> Label:
    """What an event of this type and name is. Paddle records the call of every layer as a Forward event of its class;
    ``annotate`` adds a label around it."""
    if category in _PHASE_KINDS:
        layer = name if category == "Forward" else None
        return Label(_PHASE_KINDS[category], phase=_PHASE_KINDS[category], layer=layer)
    if module_labels.decode(name):
        return Label(schema.ANNOTATION)
    if collective_labels.decode(name):
        return Label(schema.COMMUNICATION)
    if category in _DEVICE_KINDS:
        copy = copy_kind(name) if category == "Memcpy" else None
        return Label(_DEVICE_KINDS[category], backend=DEVICE_BACKEND, copy_kind=copy)
    kind = _HOST_KINDS.get(category, schema.OTHER)
    if kind == schema.RUNTIME and "Synchronize" in name:
        kind = schema.SYNC
    return Label(kind, step=_step_number(name) if kind == schema.STEP else None)


def _step_number(name: str) -> int | None:
    match = _STEP_NUMBER.fullmatch(name)
    return int(match[1]) if match else None


def copy_kind(name: str, *kinds: str | None) -> str | None:
    """``HtoD``, ``DtoH pageable`` … from the name of a copy and the kinds recorded with it; None where none tells."""
    texts = [name, *(kind for kind in kinds if kind)]
    direction = next((match[0] for text in texts if (match := _DIRECTION.search(text))), None)
    host = next((text.lower() for text in texts if text.lower() in ("pageable", "pinned")), None)
    return f"{direction} {host}" if direction and host else direction


def place_device(place: str) -> str:
    """Value of the device column for the place of a memory event (``Place(gpu:0)`` → ``cuda:0``)."""
    match = _PLACE.search(place)
    if match is None or match[1] in _HOST_PLACES:
        return schema.CPU
    return f"{_PLACE_BACKENDS.get(match[1], match[1])}:{match[2] or 0}"
