"""Mapping of Paddle's event types and names to perfkit's kinds, phases, layers and steps. Event types are identified by
their names in ``TracerEventType``. Their numbers differ between versions of Paddle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms import arrays
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.chrome.dialect import Label
from perfkit_core.readers.chrome.rows import encoded
from perfkit_core.trace.assembly.labels import parse_collective_label, parse_module_label
from perfkit_core.trace.model import schema

EVENT_TYPES: Final = (
    "Operator", "Dataloader", "ProfileStep", "CudaRuntime", "Kernel", "Memcpy", "Memset", "UserDefined",
    "OperatorInner", "Forward", "Backward", "Optimization", "Communication", "PythonOp", "PythonUserDefined",
    "DygraphKernelLaunch", "StaticKernelLaunch",
)  # fmt: skip
"""Event types in the order of their numbers in the protobuf. Number 15 in a protobuf always means DygraphKernelLaunch.
Paddle 2.x also gave number 15 to the runtime call MluRuntime, but the protobuf stores no type for runtime calls."""

MEMORY_TYPES: Final = ("Allocate", "Free", "ReservedAllocate", "ReservedFree")
MEMORY_NAME: Final = "[memory]"
ROOT_NAME: Final = "root node"
DEVICE_BACKEND: Final = "cuda"
"""All device work gets this type: Paddle traces device work with CUPTI, and records only the number of the device."""

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
_FRAME: Final = re.compile(r'File "([^"]*)", line (\d+), in (.+)')
_PLACE: Final = re.compile(r"Place\((\w+?)(?::(\d+))?\)")
_PLACE_BACKENDS: Final = {"gpu": "cuda"}
_HOST_PLACES: Final = frozenset({"cpu", "gpu_pinned", "xpu_pinned", "undefined"})


def is_known(category: str) -> bool:
    return category in _PHASE_KINDS or category in _HOST_KINDS or category in _DEVICE_KINDS


def label(category: str, name: str) -> Label:
    """Return the kind, phase, layer and step of an event with this type and name. An event of type Forward is a call of
    a layer, and its name is the class of the layer."""
    if category in _PHASE_KINDS:
        layer = name if category == "Forward" else None
        return Label(_PHASE_KINDS[category], phase=_PHASE_KINDS[category], layer=layer)
    module = parse_module_label(name)
    if module:
        return Label(schema.ANNOTATION, phase=None if module.backward else schema.FORWARD)
    if parse_collective_label(name):
        return Label(schema.COMMUNICATION)
    if category in _DEVICE_KINDS:
        copy = copy_kind(name) if category == "Memcpy" else None
        return Label(_DEVICE_KINDS[category], backend=DEVICE_BACKEND, copy_kind=copy)
    kind = _HOST_KINDS.get(category, schema.OTHER)
    if kind == schema.RUNTIME and "Synchronize" in name:
        kind = schema.SYNC
    number = _STEP_NUMBER.fullmatch(name) if kind == schema.STEP else None
    return Label(kind, step=int(number[1]) if number else None)


def copy_kind(name: str, *kinds: str | None) -> str | None:
    """Return the copy kind, such as "HtoD" or "DtoH pageable". Return None if neither the name nor ``kinds`` contain a
    direction. ``kinds`` are the recorded kinds of the copy and of its source and target."""
    texts = [name, *(kind for kind in kinds if kind)]
    direction = next((match[0] for text in texts if (match := _DIRECTION.search(text))), None)
    host = next((text.lower() for text in texts if text.lower() in ("pageable", "pinned")), None)
    return f"{direction} {host}" if direction and host else direction


def place_device(place: str) -> str:
    """Return the device of a memory event from its place: "cuda:0" for ``Place(gpu:0)``."""
    match = _PLACE.search(place)
    if match is None or match[1] in _HOST_PLACES:
        return schema.CPU
    return f"{_PLACE_BACKENDS.get(match[1], match[1])}:{match[2] or 0}"


def stack_text(text: str) -> str | None:
    """Return the frames of a traceback as "file:line function", joined by ";", or None without frames. The innermost
    frame comes first; in Paddle's text, it comes last."""
    frames = [f"{match[1]}:{match[2]} {match[3].strip()}" for match in _FRAME.finditer(text)]
    return ";".join(reversed(frames)) or None


Columns = dict[str, pa.Array]


def labelled(name: pa.DictionaryArray, types: IntArray) -> Columns:
    """Return the columns that are derived from the names and the type numbers of events."""
    numbers, type_code = _distinct(types)
    pairs, row = _distinct(name.indices.to_numpy() * len(numbers) + type_code)
    texts = name.dictionary.to_pylist()
    categories, labels = [], []
    for pair in pairs:
        category = _category(int(numbers[pair % len(numbers)]), EVENT_TYPES)
        categories.append(category)
        labels.append(label(category, texts[pair // len(numbers)]) if is_known(category) else Label(schema.UNKNOWN))
    steps = pa.array([label.step for label in labels], pa.int64())
    return {
        "name": name,
        "kind": spread([label.kind for label in labels], row),
        "category": spread(categories, row),
        "phase": spread([label.phase for label in labels], row),
        "layer": spread([label.layer for label in labels], row),
        "step": steps.take(pa.array(row)),
    }


def memory_labelled(types: IntArray) -> Columns:
    numbers, row = _distinct(types)
    return {
        "name": constant(MEMORY_NAME, len(types)),
        "kind": constant(schema.MEMORY, len(types)),
        "category": spread([_category(int(number), MEMORY_TYPES) for number in numbers], row),
    }


def _category(number: int, types: Sequence[str]) -> str:
    return types[number] if 0 <= number < len(types) else f"EventType{number}"


def _distinct(values: IntArray) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """Return the distinct integers, and the index of each row's integer among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def spread(values: Sequence[str | None], row: npt.NDArray[Any]) -> pa.DictionaryArray:
    """Return a text column whose row ``i`` is ``values[row[i]]``."""
    number = {value: n for n, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    codes = np.array([-1 if value is None else number[value] for value in values], np.int32)
    return encoded(arrays.spread(codes, row), pa.array(number, pa.string()))


def constant(value: str, count: int) -> pa.DictionaryArray:
    return encoded(np.zeros(count, np.int32), pa.array([value], pa.string()))
