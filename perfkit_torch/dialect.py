"""The torch dialect of Chrome traces: the meaning of event names, categories and arguments. Old and new category names
are read. For example, Kineto renamed the category Operator to cpu_op in 2022."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from perfkit_core.readers.ascend.host_calls import LAUNCHES, device_number
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, ScanRules, integer
from perfkit_core.readers.chrome.unlabelled import Interpreter, ProcessRole
from perfkit_core.trace.assembly.labels import parse_input_label, parse_module_label
from perfkit_core.trace.model import schema
from perfkit_torch import collectives
from perfkit_torch.operator_names import operator_name
from perfkit_torch.server_ranges import serving_step

_HOST_KINDS: Final = {
    "Runtime": schema.RUNTIME,
    "enqueue": schema.RUNTIME,  # torch_npu: a thread passes calls to another thread, which launches
    "dequeue": schema.RUNTIME,
    "GC": schema.PYTHON,
    "cpu_instant_event": schema.OTHER,
    "python_function": schema.PYTHON,
    "overhead": schema.OVERHEAD,
    "hardware_counters": schema.COUNTER,
}
_NAMED: Final = ("user_annotation", "cpu_op", "Operator")
"""Categories whose kind depends on the event's name."""
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
_WORK: Final = re.compile(r"(?:concurrent_)?([a-z][a-z0-9]*)_(kernel|memcpy|memset)", re.IGNORECASE)
"""Categories of the device work of any back end, such as ``xpu_kernel``."""
_WORK_KINDS: Final = {"kernel": schema.KERNEL, "memcpy": schema.MEMCPY, "memset": schema.MEMSET}
_CALL: Final = re.compile(r"\w+_(?:runtime|driver)", re.IGNORECASE)
"""Categories of the calls of any back end, such as ``xpu_runtime``."""
# torch's own tables skip these events of the profiler and of autograd (torch.autograd.profiler_util).
_HIDDEN: Final = frozenset(
    ("profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit",
     "aten::is_leaf", "aten::output_nr", "aten::_version")
)  # fmt: skip
# Memory events record the device type as its number in the enum c10::DeviceType.
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 2: "cpu", 5: "cpu", 6: "cuda", 7: "fpga", 8: "maia", 9: "xla", 12: "xpu",
                        13: "mps", 15: "hpu", 16: "ve", 18: "ipu", 19: "mtia", 20: "privateuse1"}  # fmt: skip

OPTIONS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
"""Options of torch.profiler that are stored in a recording."""
_RECORDING: Final = "Trace"
"""Category of the event that spans the recording."""
_RECORDING_MARKS: Final = ("Iteration Start: PyTorch Profiler", "Record Window End")
"""Events with these name prefixes describe the recording."""
_MARK: Final = "Iteration Start: "
"""Prefix of the marks of other profilers."""
MEMORY_EVENT: Final = "[memory]"
_MODULE: Final = "nn.Module: "
_STEP: Final = re.compile(r"ProfilerStep#(\d{1,18})")
_LOADER: Final = re.compile(r"enumerate\(Data(?:Loader|Pipe)\)#")
_OPTIMIZER: Final = re.compile(r"Optimizer\.(?:step|zero_grad)#")
_QUALIFIED: Final = re.compile(r"\w+::\w+(?:\.\w+)?")
"""A name of an operator with its namespace. Names of kernels have more than that."""
_BACKWARD: Final = re.compile(r"autograd::engine::evaluate_function: |torch::autograd::|\w+Backward\d*$")
_COMMUNICATION: Final = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl|hccl):|c10d::|_c10d_functional::")
_WAITS: Final = re.compile(r"(?:cuda|hip|cu)\w*Synchronize")
_COPY: Final = re.compile(
    r"(?:Memcpy |Copy)?(HtoD|DtoH|DtoD|HtoH|PtoP|(?:Host|Device)[_ ]?To[_ ]?(?:Host|Device))", re.I
)
_DMA: Final = re.compile(r"dma(?![a-z])", re.I)
"""Names of copies by a copy engine, which some backends record as kernels."""
_STREAM_EVENTS: Final = ("event_wait", "event_record")
"""Names of work that only orders streams."""
_STREAM_ORDER: Final = re.compile(r"(?:event|notify|write|stream)[_ ](?:record|wait|reset|value)", re.IGNORECASE)
"""Names of tasks of NPUs that only order streams."""
_BACKENDS: Final = {"gpu": "cuda", "dcu": "cuda"}
_MEMORY: Final = re.compile(r"\b(Pageable|Pinned)\b")
_DIRECTIONS: Final = {
    "htod": "HtoD", "dtoh": "DtoH", "dtod": "DtoD", "htoh": "HtoH", "ptop": "PtoP",
    "hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD", "hosttohost": "HtoH",
}  # fmt: skip


def named_label(category: str, name: str) -> Label:
    """Return the label of an event whose category says little: an operator, or a range of ``record_function``."""
    module = parse_module_label(name)
    if module:
        return Label(schema.ANNOTATION, None if module.backward else schema.FORWARD)
    step = _STEP.fullmatch(name)
    if step:
        return Label(schema.STEP, step=int(step[1]))
    if _LOADER.match(name) or parse_input_label(name) is not None:
        return Label(schema.DATALOADER, schema.DATALOADER)
    if _OPTIMIZER.match(name):
        return Label(schema.OPTIMIZER, schema.OPTIMIZER)
    if name in _HIDDEN:
        return Label(schema.OTHER)
    if _COMMUNICATION.match(name):
        return Label(schema.COMMUNICATION)
    if category == "user_annotation":
        return Label(schema.ANNOTATION if serving_step(name) is None else schema.STEP)
    return Label(schema.OPERATOR, schema.BACKWARD if _BACKWARD.match(name) else None)


@functools.lru_cache(maxsize=256)
def _device_kind(category: str) -> tuple[str, str] | None:
    """Return the type of the device and the kind of the events of a category, or None for host events."""
    match = _WORK.fullmatch(category)
    backend = match[1].lower() if match else ""
    general = (_BACKENDS.get(backend, backend), _WORK_KINDS[match[2].lower()]) if match else None
    return _DEVICE_KINDS.get(category, general)


def _device_label(backend: str, kind: str, name: str) -> Label:
    if kind == schema.KERNEL and backend != "cuda":
        kind = schema.MEMCPY if _DMA.match(name) else schema.SYNC if name in _STREAM_EVENTS else kind
    return Label(kind, backend=backend, copy_kind=copy_kind(name) if kind == schema.MEMCPY else None)


def _names_operator(name: str) -> bool:
    """Return whether the name of an event without a category is that of an operator, a step or another range that torch
    names. Old versions of torch wrote operators without ``aten::``."""
    patterns = (_STEP.fullmatch, _LOADER.match, _OPTIMIZER.match, _BACKWARD.match, _QUALIFIED.fullmatch)
    if parse_input_label(name) is not None:
        return True
    return any(pattern(name) for pattern in patterns) or operator_name(f"aten::{name}") is not None


def work_label(backend: str, name: str) -> Label:
    """Return the label of device work that has no category."""
    if _STREAM_ORDER.match(name):
        return Label(schema.SYNC, backend=backend)
    kind = next((kind for word, kind in _WORK_KINDS.items() if name.lower().startswith(word)), schema.KERNEL)
    return _device_label(backend, kind, name)


_NPU: Final = ProcessRole("npu", device_number=device_number)
INTERPRETER: Final = Interpreter(
    roles={
        "CPU functions": ProcessRole(kind=schema.ANNOTATION),  # EventList.export_chrome_trace; operators have names
        "CUDA functions": ProcessRole("cuda", threads_are_devices=True),
        "CANN": ProcessRole(kind=schema.RUNTIME),
        **dict.fromkeys(("Ascend Hardware", "HCCL", "Communication"), _NPU),
        "Overlap Analysis": ProcessRole(derived=True),
    },
    work_label=work_label,
    backends=_BACKENDS,
)


def _undirected_copy(label: Label) -> bool:
    return label.kind == schema.MEMCPY and label.copy_kind is None


def copy_kind(name: str) -> str | None:
    """Return "HtoD pinned" for ``Memcpy HtoD (Pinned -> Device)``, or None if the name contains no direction."""
    match = _COPY.search(name)
    if not match:
        return None
    direction, memory = _DIRECTIONS[re.sub("[_ ]", "", match[1].lower())], _MEMORY.search(name)
    return f"{direction} {memory[1].lower()}" if memory else direction


def needs_reference(category: str, name: str) -> bool:
    """Return whether an event must be read in Python, because the compiled scanner cannot interpret it. Such events
    describe the recording, or their meaning depends on their arguments."""
    of_device = _device_kind(category)
    if of_device:
        return _undirected_copy(_device_label(*of_device, name))
    return (
        category == _RECORDING
        or name.startswith(_RECORDING_MARKS)
        or _STEP.fullmatch(name) is not None
        or (category == "user_annotation" and serving_step(name) is not None)
    )


class TorchDialect(Dialect):
    framework = "torch"
    arguments: ClassVar[Mapping[str, str]] = {
        "correlation": "correlation",
        "connection_id": "correlation",  # torch_npu
        "External id": "external",
        "external id": "external",
        "stream": "stream",
        "bytes": "bytes",
        "Bytes": "bytes",
        "size": "bytes",
        "Addr": "address",
        "Total Allocated": "total_bytes",
        "Input Dims": "shapes",
        "Input dims": "shapes",
        "Input type": "dtypes",
        "Call stack": "stack",
        "Sequence number": "sequence",
        "flops": "flops",
        "Python id": "frame",
        "Python parent id": "caller",
    }
    # each ``ProfilerStep#N`` is a name of its own: the scanner would ask for the label of each step
    scan_rules = ScanRules(needs_reference, b"Profiler", device_arguments=("device", "Device Type", "Device Id"))
    link_categories = (LAUNCHES, "async_npu", *map("cpu_to_{}".format, ("cuda", "xpu", "mtia", "hpu", "privateuse1")))
    communicates = staticmethod(collectives.communicates)
    described = staticmethod(collectives.described)
    serving_step = staticmethod(serving_step)

    def __init__(self) -> None:
        self.window: tuple[msgspec.Raw, msgspec.Raw] | None = None
        """Start and duration, as text, of the event that spans the recording. None until this event is read."""

    def label(self, category: str, name: str) -> Label:
        if name == MEMORY_EVENT:
            return Label(schema.MEMORY)
        if of_device := _device_kind(category):
            return _device_label(*of_device, name)
        if category in _NAMED or (not category and _names_operator(name)):
            return named_label(category, name)
        if category == "python_function" and name.startswith(_MODULE):
            return Label(schema.FORWARD, schema.FORWARD, layer=name.removeprefix(_MODULE))
        if name.startswith(_MARK):
            return Label(schema.OTHER)
        unknown = schema.RUNTIME if _CALL.fullmatch(category) else schema.UNKNOWN
        kind = _HOST_KINDS.get(category, unknown)
        return Label(schema.SYNC if kind == schema.RUNTIME and _WAITS.match(name) else kind)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        if _undirected_copy(label) and isinstance(direction := args.get("direction"), str):
            return label._replace(copy_kind=copy_kind(direction))
        cut_off = label.kind == schema.STEP and args.get("finished") is False
        return Label(schema.OTHER, step=label.step) if cut_off else label

    def keeps(self, event: ChromeEvent) -> bool:
        if event.cat == _RECORDING:
            self.window = self.window or (event.ts, event.dur)
            return False
        return not (isinstance(event.name, str) and event.name.startswith(_RECORDING_MARKS))

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        if label.kind == schema.MEMORY:
            return _memory_device(integer(args.get("Device Type")), integer(args.get("Device Id")))
        return super().device(label, pid, args)


@functools.lru_cache(maxsize=256)
def _memory_device(kind: int | None, index: int | None) -> str:
    name = "cpu" if kind is None else _DEVICE_TYPES.get(kind, f"type{kind}")
    return name if name == "cpu" else f"{name}:{max(index or 0, 0)}"
