"""Events of a finished torch profiler, in batches of Chrome events.

torch can export a trace only once, and the user may need this export. Therefore perfkit reads
``kineto_results.trace_activities()``, which has exact times in ns and the original names. If torch lacks this method,
perfkit reads ``events()``, and Python functions from the tree of events. Batches are read column by column, for speed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, repeat
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.chrome.repair import values_mended
from perfkit_torch import framework
from perfkit_torch.dialect import MEMORY_EVENT

_BATCH: Final = 1 << 13
"""Events per batch. The text of a batch fits the processor's cache. Reading it blocks other threads for a few ms."""
_INSTANT: Final = "cpu_instant_event"
_EXTERNAL: Final = frozenset(("cpu_op", "user_annotation"))
_WITHOUT_IDS: Final = frozenset(("python_function", _INSTANT))
_CPU: Final = 0  # c10::DeviceType
_DEVICE_RANGE: Final = "gpu_user_annotation"
_DEVICE_WORK: Final = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"))
_LIST: Final = "TensorList"
_NO_FRAME: Final = -1  # torch's number of the caller of a thread's first Python frame
_UNKNOWN_THREAD: Final = (1 << 64) - 1
"""torch's number of a thread that has run none of its operators. Its id in the list of activities is 0."""
_DRIVER: Final = re.compile(r"cu[A-Z]")
_RUNTIME: Final = re.compile(r"(?:cuda|hip)[A-Z]")
_OVERHEAD: Final = frozenset((
    "Driver Compiler", "Buffer Flush", "Instrumentation", "Resource", "Runtime Triggered Module Loading",
    "Lazy Function Loading", "Command Buffer Full", "Activity Buffer Request", "UVM Activity Init",
))  # fmt: skip
"""Names of the events that CUPTI's own work has in torch's trace: the kinds of CUpti_ActivityOverheadKind."""
_SYNCS: Final = frozenset(("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync", "Unknown Sync"))
"""Names of CUPTI's records of calls that synchronise."""


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """A batch of events as columns. Each column has one item per event.

    - ``metadata``: the arguments of each event, as the inside of a JSON object: ``"a": 1, "b": 2``.
    - ``times``: two columns, starts and durations, in ns.
    - ``ids``: a function, not a column. From the column ``metadata``, it makes a column of further arguments, such as
      correlation ids, in the same form."""

    categories: list[str]
    names: list[str]
    pids: list[int]
    tids: list[int]
    metadata: list[str]
    times: tuple[IntArray, IntArray]
    ids: Callable[[list[str]], list[str]] | None = None

    def text(self) -> bytes:
        """Return Chrome events in JSON, separated by commas. Invalid JSON in ``metadata`` is copied unchanged."""
        keys = [*zip(self.categories, self.names, self.pids, self.tids, strict=True)]
        openings = {}  # text of an event before its arguments; many events have the same
        for key in set(keys):
            category, name, pid, tid = key
            ph = "i" if category == _INSTANT else "X"
            openings[key] = (
                f'{{"ph":"{ph}","cat":{_json(category)},"name":{_json(name)},"pid":{pid},"tid":{tid},"args":{{'
            )
        arguments = self.metadata
        if self.ids is not None:
            both = zip(self.metadata, self.ids(self.metadata), strict=True)
            arguments = [f"{members},{ids}" if members and ids else members or ids for members, ids in both]
        pieces = ["}},"] * (3 * len(keys))
        pieces[0::3] = map(openings.__getitem__, keys)
        pieces[1::3] = arguments
        return "".join(pieces)[:-1].encode()

    def without_thread(self, tid: int | None) -> LiveBatch:
        """Return the batch without the events of a host thread."""
        here = os.getpid()
        mask = np.array([other != tid or pid != here for pid, other in zip(self.pids, self.tids, strict=True)])
        if mask.all():
            return self
        start, duration = self.times
        ids = None if self.ids is None else list(compress(self.ids(self.metadata), mask))
        return LiveBatch(
            list(compress(self.categories, mask)), list(compress(self.names, mask)), list(compress(self.pids, mask)),
            list(compress(self.tids, mask)), list(compress(self.metadata, mask)), (start[mask], duration[mask]),
            None if ids is None else lambda _: ids,
        )  # fmt: skip

    def mended(self) -> LiveBatch:
        """Return the batch with valid metadata. Numbers such as ``inf`` are repaired in the same way as in files.
        Metadata that cannot be repaired becomes the text of the argument ``metadata_json``."""
        metadata = []
        for members in self.metadata:
            if _valid(members):
                metadata.append(members.strip())
                continue
            mended = values_mended(members.encode()).decode()
            metadata.append(mended if _valid(mended) else f'"metadata_json":{_json(members)}')
        return replace(self, metadata=metadata)


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _valid(metadata: str) -> bool:
    try:
        msgspec.json.decode(f"{{{metadata}}}", type=dict[str, object])
    except msgspec.DecodeError:
        return False
    return True


def texts(read: Callable[[Any], str], events: Sequence[Any]) -> list[str]:
    """Return ``read(event)`` of each event. Bytes that are not UTF-8 become escapes such as ``\\xe8``. Such bytes occur
    in the names of Python frames with line 0, because torch may free the function before its name is read."""
    try:
        return [*map(read, events)]
    except UnicodeDecodeError:
        names = []
        for event in events:
            try:
                names.append(read(event))
            except UnicodeDecodeError as error:
                names.append(error.object.decode("utf-8", "backslashreplace"))
        return names


def batches(kineto_results: Any, with_flops: bool, with_stack: bool) -> Iterator[LiveBatch]:
    if has_activities(kineto_results):
        yield from from_activities(kineto_results, with_flops)
        return
    threads: dict[int, int] = {}
    yield from from_events(kineto_results, threads)
    if with_stack and not hasattr(framework.torch()._C._autograd._KinetoEvent, "is_python_function"):
        yield from python_functions(kineto_results, threads)


def has_activities(kineto_results: Any) -> bool:
    return callable(getattr(kineto_results, "trace_activities", None))


def _parts(objects: list[Any]) -> Iterator[list[Any]]:
    for i in range(0, len(objects), _BATCH):
        part = objects[i : i + _BATCH]
        objects[i : i + _BATCH] = repeat(None, len(part))  # frees the torch objects that were read
        yield part


def from_activities(kineto_results: Any, with_flops: bool) -> Iterator[LiveBatch]:
    """Read ``trace_activities()``. If ``with_flops``, also read FLOPs from ``events()``. This costs 3 µs per event."""
    flops: dict[int, int] = {}  # correlation id of the operator → FLOPs
    events = kineto_results.events() if with_flops else []
    if events:
        counted = np.fromiter(map(type(events[0]).flops, events), np.uint64, len(events))
        flops = {events[i].correlation_id(): events[i].flops() for i in np.flatnonzero(counted)}
    for part in _parts(kineto_results.trace_activities()):
        kind, count, names = type(part[0]), len(part), texts(type(part[0]).name, part)
        start_ns = np.fromiter(map(kind.timestamp, part), np.int64, count)
        dur_ns = np.fromiter(map(kind.duration, part), np.int64, count)
        # torch does not initialise the duration of memory events.
        dur_ns[np.fromiter(map(MEMORY_EVENT.__eq__, names), np.bool_, count)] = 0
        categories = [*map(kind.type, part)]
        correlations, linked = ([*map(read, part)] for read in (kind.correlation_id, kind.linked_correlation_id))
        yield LiveBatch(
            categories,
            names,
            [*map(kind.device_id, part)],
            [*map(kind.resource_id, part)],
            texts(kind.metadata_json, part),
            (start_ns, dur_ns),
            partial(_activity_ids, categories, correlations, linked, flops),
        )


def _activity_ids(
    categories: list[str], correlations: list[int], linked: list[int], flops: dict[int, int], metadata: list[str]
) -> list[str]:
    if _EXTERNAL.issuperset(categories):
        ids = [f'"External id":{correlation}' for correlation in correlations]
    else:
        ids = [*map(_activity_id, categories, metadata, correlations, linked)]
    if not flops:
        return ids
    return [
        f'{members},"flops":{flops[correlation]}' if category in _EXTERNAL and correlation in flops else members
        for members, category, correlation in zip(ids, categories, correlations, strict=True)
    ]


def _activity_id(category: str, metadata: str, correlation: int, linked: int) -> str:
    if category in _EXTERNAL or category == _DEVICE_RANGE:
        return f'"External id":{correlation}'
    if category in _WITHOUT_IDS:
        return ""
    launch = "" if '"correlation":' in metadata else f'"correlation":{correlation}'
    operator = f'"External id":{linked}' if linked and '"External id":' not in metadata else ""
    return f"{launch},{operator}" if launch and operator else launch or operator


def from_events(kineto_results: Any, threads: dict[int, int]) -> Iterator[LiveBatch]:
    """Read ``events()``, which every version of torch has. The categories of events follow from device, flags and name.
    The process and thread columns of device work contain the device and the stream. Other events have the thread id of
    the system, or torch's own thread number if the id is unknown. ``threads`` receives torch's numbers of the threads
    whose ids are known, and these ids."""
    pid = os.getpid()
    for part in _parts(kineto_results.events()):
        kind, count, names = type(part[0]), len(part), texts(type(part[0]).name, part)
        devices = [*map(int, map(kind.device_type, part))]
        functions = _column(part, "is_python_function", False)
        annotations = _column(part, "is_user_annotation", False)
        linked = _column(part, "linked_correlation_id", 0)
        categories = [*map(_category, names, devices, functions, annotations, linked)]
        dur_ns = np.fromiter(map(kind.duration_ns, part), np.int64, count)
        dur_ns[np.fromiter(map(_INSTANT.__eq__, categories), np.bool_, count)] = 0
        overloads = _column(part, "overload_name", "")
        pids, tids = [], []
        places = zip(
            devices,
            categories,
            map(kind.device_index, part),
            _column(part, "device_resource_id", 0),
            map(kind.start_thread_id, part),
            strict=True,
        )
        for device, category, index, resource, thread in places:
            on_host = device == _CPU or category == _INSTANT
            pids.append(pid if on_host else index)
            has_thread_id = on_host and resource > 0
            tids.append(resource if has_thread_id or not on_host else _number(thread))
            if has_thread_id:
                threads[thread] = resource
        yield LiveBatch(
            categories,
            [  # as in the Chrome export, the overload follows the operator's name
                f"{name}.{overload}" if overload and name != MEMORY_EVENT else name
                for name, overload in zip(names, overloads, strict=True)
            ],
            pids,
            tids,
            [*map(_event_arguments, part, categories, devices)],
            (np.fromiter(map(kind.start_ns, part), np.int64, count), dur_ns),
        )


def python_functions(kineto_results: Any, threads: Mapping[int, int]) -> Iterator[LiveBatch]:
    """Read the Python functions from torch's tree of events, for versions of torch whose ``events()`` do not have them.
    ``threads`` maps torch's thread numbers to the thread ids of the system."""
    pid = os.getpid()
    functions: list[Any] = []
    callers: list[str] = []
    nodes = [(node, _NO_FRAME) for node in kineto_results.experimental_event_tree()]
    while nodes:
        node, caller = nodes.pop()
        if node.tag.name in ("PyCall", "PyCCall"):
            callers.append(_frame_ids(len(functions), caller))
            caller = len(functions)
            functions.append(node)
        nodes += [(child, caller) for child in node.children]
    for part, ids in zip(_parts(functions), _parts(callers), strict=True):
        count = len(part)
        yield LiveBatch(
            ["python_function"] * count,
            texts(attrgetter("name"), part),
            [pid] * count,
            [threads.get(node.start_tid) or _number(node.start_tid) for node in part],
            ids,
            (
                np.fromiter((node.start_time_ns for node in part), np.int64, count),
                np.fromiter((node.duration_time_ns for node in part), np.int64, count),
            ),
        )


def _frame_ids(frame: int, caller: int) -> str:
    return f'"Python id":{frame},"Python parent id":{"null" if caller < 0 else caller}'


def _number(thread: int) -> int:
    return 0 if thread == _UNKNOWN_THREAD else thread


def _column(events: list[Any], name: str, default: Any) -> Iterable[Any]:
    read = getattr(type(events[0]), name, None)
    return repeat(default, len(events)) if read is None else map(read, events)


def _category(name: str, device: int, function: bool, annotation: bool, linked: int) -> str:
    if name == MEMORY_EVENT:
        return _INSTANT
    if name in _OVERHEAD:
        return "overhead"
    if device != _CPU:
        if annotation:
            return _DEVICE_RANGE
        if name in _SYNCS:
            return "cuda_sync"
        if name.startswith("Memcpy"):
            return "gpu_memcpy"
        return "gpu_memset" if name.startswith("Memset") else "kernel"
    if function:
        return "python_function"
    if annotation or name.startswith("ProfilerStep#"):
        return "user_annotation"
    if _DRIVER.match(name):
        return "cuda_driver"
    return "cuda_runtime" if linked or _RUNTIME.match(name) else "cpu_op"


def _event_arguments(event: Any, category: str, device: int) -> str:
    args: dict[str, Any] = {}
    if category == _INSTANT:
        args = {"Bytes": event.nbytes(), "Device Type": device, "Device Id": event.device_index()}
    elif category in _EXTERNAL:
        args["External id"] = event.correlation_id()
        if event.sequence_nr() >= 0:
            args |= {"Sequence number": event.sequence_nr(), "Fwd thread id": event.fwd_thread_id()}
        shapes, dtypes = event.shapes(), event.dtypes()
        if shapes or dtypes:
            args["Input type"] = dtypes
            if _LIST not in dtypes:  # the shapes of a list of tensors are missing: [], as of a scalar
                args["Input Dims"] = shapes
        if event.stack():
            args["Call stack"] = ";".join(event.stack())
        if event.flops():
            args["flops"] = event.flops()
    elif category == _DEVICE_RANGE:
        args["External id"] = event.correlation_id()
    elif category == "python_function" and hasattr(type(event), "python_id"):
        return _frame_ids(event.python_id(), event.python_parent_id())
    elif category not in (*_WITHOUT_IDS, "overhead"):
        args["correlation"] = event.correlation_id()
        if event.linked_correlation_id():
            args["External id"] = event.linked_correlation_id()
        if category in _DEVICE_WORK:
            args["stream"] = event.device_resource_id()
        if event.nbytes():  # most versions of torch know the bytes of memory events only, and return 0
            args["bytes"] = event.nbytes()
    return msgspec.json.encode(args)[1:-1].decode()
