"""What PyTorch's event names and categories mean in perfkit's vocabulary.

Categories come in two generations: Operator/Runtime/Kernel/… (kineto before 2022) and cpu_op/cuda_runtime/kernel/….
"""

from __future__ import annotations

import re
from typing import Final

from perfkit_core.assembly.labels import parse_module_label
from perfkit_core.model import schema
from perfkit_core.readers.chrome.dialect import Label

_HOST_KINDS: Final = {
    "cpu_op": schema.OPERATOR,
    "Operator": schema.OPERATOR,
    "user_annotation": schema.ANNOTATION,
    "python_function": schema.PYTHON,
    "cuda_runtime": schema.RUNTIME,
    "cuda_driver": schema.RUNTIME,
    "Runtime": schema.RUNTIME,
    "xpu_runtime": schema.RUNTIME,
    "xpu_driver": schema.RUNTIME,
    "mtia_runtime": schema.RUNTIME,
    "privateuse1_runtime": schema.RUNTIME,
    "privateuse1_driver": schema.RUNTIME,
    "glow_runtime": schema.RUNTIME,
    "overhead": schema.OVERHEAD,
    "cpu_instant_event": schema.OTHER,
    "hardware_counters": schema.COUNTER,
}

_DEVICE_KINDS: Final = {
    "kernel": ("cuda", schema.KERNEL),
    "Kernel": ("cuda", schema.KERNEL),
    "gpu_memcpy": ("cuda", schema.MEMCPY),
    "Memcpy": ("cuda", schema.MEMCPY),
    "gpu_memset": ("cuda", schema.MEMSET),
    "Memset": ("cuda", schema.MEMSET),
    "cuda_sync": ("cuda", schema.SYNC),
    "cuda_event": ("cuda", schema.SYNC),
    "gpu_user_annotation": ("cuda", schema.ANNOTATION),
    "cuda_profiler_range": ("cuda", schema.COUNTER),
    "collective_comm": ("cuda", schema.COMMUNICATION),
    "gpu_pm_counter": ("cuda", schema.COUNTER),
    "mtia_ccp_events": ("mtia", schema.KERNEL),
    "mtia_workloadd": ("mtia", schema.OTHER),
    "mtia_insight": ("mtia", schema.OTHER),
}

# Bookkeeping of the profiler and of autograd that torch's own tables leave out (torch.autograd.profiler_util).
_HIDDEN: Final = frozenset(
    {
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)

RECORDING: Final = "Trace"
"""Category of the event that spans the whole recording."""
RECORDING_MARKS: Final = ("Iteration Start: PyTorch Profiler", "Record Window End")
"""Beginnings of the names of events that describe the recording."""
MEMORY_EVENT: Final = "[memory]"
_STEP: Final = re.compile(r"ProfilerStep#(\d+)")
_LOADER: Final = re.compile(r"enumerate\(Data(?:Loader|Pipe)\)#")
_OPTIMIZER: Final = re.compile(r"Optimizer\.(?:step|zero_grad)#")
_BACKWARD: Final = re.compile(r"autograd::engine::evaluate_function: |torch::autograd::|\w+Backward\d*$")
_MODULE: Final = "nn.Module: "
_COMMUNICATION: Final = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl|hccl):|c10d::|_c10d_functional::")
_WAITS: Final = re.compile(r"(?:cuda|hip|cu)\w*Synchronize")
_COPY: Final = re.compile(r"(?:Memcpy |Copy)?(HtoD|DtoH|DtoD|HtoH|PtoP|HostToDevice|DeviceToHost|DeviceToDevice)", re.I)
_DIRECTIONS: Final = {
    "htod": "HtoD", "dtoh": "DtoH", "dtod": "DtoD", "htoh": "HtoH", "ptop": "PtoP",
    "hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD",
}  # fmt: skip


def label(category: str, name: str) -> Label:
    """Kind, phase, step and device type of an event, from its category and name."""
    if name == MEMORY_EVENT:
        return Label(schema.MEMORY)
    device = _DEVICE_KINDS.get(category) or _other_device(category)
    if device:
        return _device_label(*device, name)
    if category in ("user_annotation", "cpu_op", "Operator"):
        return _host_label(category, name)
    if category == "python_function":
        return _python_label(name)
    kind = _HOST_KINDS.get(category, schema.OTHER)
    return Label(schema.SYNC if kind == schema.RUNTIME and _WAITS.match(name) else kind)


def needs_reference(category: str, name: str) -> bool:
    """Whether events of this category and name mean what their arguments say, or are no part of the run."""
    return category == RECORDING or name.startswith(RECORDING_MARKS) or _STEP.fullmatch(name) is not None


def _other_device(category: str) -> tuple[str, str] | None:
    """Device categories of further backends: ``xpu_kernel``, ``privateuse1_memcpy``, …"""
    backend, _, word = category.partition("_")
    kinds = {"kernel": schema.KERNEL, "memcpy": schema.MEMCPY, "memset": schema.MEMSET}
    return (backend, kinds[word]) if backend in ("xpu", "mtia", "privateuse1", "hpu") and word in kinds else None


def _device_label(backend: str, kind: str, name: str) -> Label:
    return Label(kind, backend=backend, copy_kind=copy_kind(name) if kind == schema.MEMCPY else None)


def _host_label(category: str, name: str) -> Label:
    module = parse_module_label(name)
    if module:
        return Label(schema.ANNOTATION, None if module.backward else schema.FORWARD)
    step = _STEP.fullmatch(name)
    if step:
        return Label(schema.STEP, step=int(step[1]))
    if _LOADER.match(name):
        return Label(schema.DATALOADER, schema.DATALOADER)
    if _OPTIMIZER.match(name):
        return Label(schema.OPTIMIZER, schema.OPTIMIZER)
    if name in _HIDDEN:
        return Label(schema.OTHER)
    if _COMMUNICATION.match(name):
        return Label(schema.COMMUNICATION)
    if category == "user_annotation":
        return Label(schema.ANNOTATION)
    return Label(schema.OPERATOR, schema.BACKWARD if _BACKWARD.match(name) else None)


def _python_label(name: str) -> Label:
    if name.startswith(_MODULE):
        return Label(schema.FORWARD, schema.FORWARD, layer=name.removeprefix(_MODULE))
    return Label(schema.PYTHON)


def copy_kind(name: str) -> str | None:
    """ "Memcpy HtoD (Pinned -> Device)" → "HtoD pinned"; None when the name gives no direction."""
    match = _COPY.search(name)
    if not match:
        return None
    direction = _DIRECTIONS[match[1].lower()]
    memory = re.search(r"\b(Pageable|Pinned)\b", name)
    return f"{direction} {memory[1].lower()}" if memory else direction
