"""Paddle's words for events, and what they mean in perfkit's vocabulary.

Event types are keyed by name (``TracerEventType`` of Paddle), because their numbers changed meaning between versions.

Kind, phase, step and category columns of many events at once: one look-up a distinct (type, name).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms import arrays
from perfkit_core.assembly.labels import parse_collective_label, parse_module_label
from perfkit_core.model import schema
from perfkit_core.model.schema import MEMORY, OTHER
from perfkit_core.readers.chrome.dialect import Label
from perfkit_core.readers.chrome.rows import encoded

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
    if parse_module_label(name):
        return Label(schema.ANNOTATION)
    if parse_collective_label(name):
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


IntArray = npt.NDArray[np.int64]
Columns = dict[str, pa.Array]


def category_name(number: int, types: Sequence[str] = EVENT_TYPES) -> str:
    """Name of an event type; ``EventType17`` for numbers that no known Paddle writes."""
    return types[number] if 0 <= number < len(types) else f"EventType{number}"


def labelled(name: pa.DictionaryArray, types: IntArray) -> Columns:
    """The columns name, kind, category, phase, layer and step of events with these names and type numbers."""
    numbers, type_code = distinct(types)
    pairs, row = distinct(name.indices.to_numpy() * len(numbers) + type_code)
    spelled = name.dictionary.to_pylist()
    found = [_label(int(numbers[pair % len(numbers)]), spelled[pair // len(numbers)]) for pair in pairs]
    steps = pa.array([label.step for _, label in found], pa.int64())
    return {
        "name": name,
        "kind": spread([label.kind for _, label in found], row),
        "category": spread([category for category, _ in found], row),
        "phase": spread([label.phase for _, label in found], row),
        "layer": spread([label.layer for _, label in found], row),
        "step": steps.take(pa.array(row)),
    }


def memory_labelled(types: IntArray) -> Columns:
    """The columns name, kind and category of memory events with these type numbers."""
    numbers, row = distinct(types)
    categories = [category_name(int(number), MEMORY_TYPES) for number in numbers]
    return {
        "name": constant(MEMORY_NAME, len(types)),
        "kind": constant(MEMORY, len(types)),
        "category": spread(categories, row),
    }


def _label(number: int, name: str) -> tuple[str, Label]:
    category = category_name(number)
    return category, label(category, name) if is_known(category) else Label(OTHER)


def distinct(values: IntArray) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """The distinct integers as they come, and the number of each row's; by hashing, which is faster than sorting."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def spread(values: Sequence[str | None], row: npt.NDArray[Any]) -> pa.DictionaryArray:
    """A text column from its values, some of them alike, and the number of the value of each row."""
    number = {value: n for n, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    codes = np.array([-1 if value is None else number[value] for value in values], np.int32)
    return encoded(arrays.spread(codes, row), pa.array(number, pa.string()))


def constant(value: str, count: int) -> pa.DictionaryArray:
    """The same text in every row."""
    return encoded(np.zeros(count, np.int32), pa.array([value], pa.string()))
