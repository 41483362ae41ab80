"""Reader of the memory snapshots that ``torch.cuda.memory._dump_snapshot`` writes.

A snapshot has the history of each device's allocator, and the memory segments at the time of the snapshot. The history
may begin after the first allocations, because it was switched on late or ``max_entries`` dropped the oldest entries.
The levels are therefore computed backward from the segments. A block of the segments that the history did not allocate
becomes an allocation at the beginning of the history.

A device without a history has a state only: the blocks that are allocated at the end. How they got there is unknown,
and so is the peak. Their events have the category STATE.

Sizes are those that the program requested. The allocator rounds them up. A block is allocated until its free is
requested, even if another stream still uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, texts
from perfkit_core.base.language.messages import message, plural
from perfkit_core.errors import SourceError
from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.assembly.steps import NO_STEPS
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.schema import BACKWARD, CPU, MEMORY, PHASES, STATE
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import DAMAGED, open_bytes
from perfkit_torch import operator_names, plain_pickle
from perfkit_torch.dialect import MEMORY_EVENT, TorchDialect

Entry = Mapping[str, Any]

_KEYS: Final = (b"device_traces", b"segments")
MOST_BYTES: Final = 4 << 30
"""Largest pickle that is read. As Python objects, the content of torch's snapshots takes about six times this memory;
that of any pickle at most about twenty times."""
_MOST_FRAMES: Final = 1000
"""Number of innermost frames of a stack that are kept. Python allows that many calls by default."""
MOST_STACK_TEXT: Final = 1 << 30
"""Largest number of characters of all different stacks."""
_NATIVE: Final = re.compile(r"(?:.*\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|inc|s)|.*\.so(?:\.[\d.]+)?|\?\?|)", re.IGNORECASE)
"""File names of frames that are not Python code."""
_BLOCKS: Final = {"alloc": 1, "free_requested": -1}
_SEGMENTS: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_SIGNS: Final = _BLOCKS | _SEGMENTS
_PHASE: Final = re.compile(
    r"torch[/\\](?:(?P<optimizer>optim[/\\])|(?P<backward>(?:_tensor|autograd[/\\]__init__)\.py\(\d+\): backward)"
    r"|(?P<forward>nn[/\\]modules[/\\]module\.py\(\d+\): _\w*call_impl)|(?P<dataloader>utils[/\\]data[/\\]))"
)
_PLAIN: Final = (bool, int, float, str)
_ALIVE: Final = "active_allocated"
_MOST_DEVICES: Final = 128
_RECORD: Final = "torch.cuda.memory._record_memory_history()"
_WITHOUT_STEPS: Final = message(
    "the snapshot has no training steps: it has the profiler's steps if _record_memory_history is called with "
    "global_record_annotations=True"
)


def sniff(path: Path, head: bytes) -> int:
    """Return how well the reader suits the file: 2 for a pickle with a key of a snapshot, else 0."""
    return 2 if head.startswith(b"\x80") and any(key in head for key in _KEYS) else 0


def read(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a snapshot. A truncated pickle cannot be read in part. Raises SourceError."""
    try:
        with open_bytes(path) as file:
            data = file.read(MOST_BYTES + 1)
    except DAMAGED as error:
        raise SourceError(f"{path}: damaged or truncated data ({error})", "write the file again") from None
    if len(data) > MOST_BYTES:
        raise SourceError(f"{path}: a snapshot of more than {MOST_BYTES >> 30} GiB", "record with a lower max_entries")
    content = plain_pickle.load(data, path)
    try:
        return _trace(content, len(data), str(path))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        text = f"{path}: not a memory snapshot of torch ({type(error).__name__}: {error})"
        raise SourceError(text, "perfkit reads the files of torch.cuda.memory._dump_snapshot") from None


def _trace(content: Mapping[str, Any], size: int, source: str) -> Trace:
    histories, segments = content["device_traces"], content["segments"]
    # Each entry takes bytes of the file, unless a list occurs several times.
    if sum(map(len, histories)) + sum(len(segment["blocks"]) for segment in segments) > size:
        raise ValueError("the same lists occur many times")
    entries = [entry for history in histories for entry in history]
    timed = bool(entries) and all("time_us" in entry for entry in entries)
    end_us = max((entry["time_us"] for entry in entries), default=0) if timed else 0
    stacks, tables, findings = _Stacks(), [], list(_findings(histories, timed))
    devices = max(len(histories), 1 + max((_device(segment) for segment in segments), default=-1))
    for number in range(devices):
        device, history = f"cuda:{number}", histories[number] if number < len(histories) else []
        table = _device_table(
            device, history, [segment for segment in segments if segment["device"] == number], timed, stacks, end_us
        )
        tables.append(table)
        findings += _history_findings(device, history, table)
    memory = pa.concat_tables(tables or [_device_table("", [], [], timed, stacks, end_us)])
    if not len(memory):
        text = f"{source}: the snapshot is empty: it has neither allocated memory nor a history of allocations"
        hint = "torch.cuda.memory._record_memory_history() before the training records the history"
        raise SourceError(text, hint)
    memory = memory.set_column(0, "stack", texts(memory["stack"].to_numpy().astype(np.int32), stacks.values))
    ranges = list(_ranges(content.get("external_annotations") or []))
    if ranges:  # A snapshot does not say which thread did what: everything gets into one thread.
        thread = pa.array(np.zeros(len(memory), np.int64))
        memory = memory.append_column("pid", thread).append_column("tid", thread)
        table = pa.Table.from_pylist(ranges)
        phase = table["phase"].cast(pa.string()).dictionary_encode()
        table = table.set_column(table.column_names.index("phase"), "phase", phase)
        memory = pa.concat_tables([memory, table], promote_options="permissive")
    settings = content.get("allocator_settings") or {}
    settings = {key: value for key, value in settings.items() if isinstance(key, str) and isinstance(value, _PLAIN)}
    meta = TraceMeta(
        source=source,
        format="torch-memory-snapshot",
        framework="torch",
        clock="epoch" if timed else "relative",
        devices=tuple(Device(name) for name in pa.compute.unique(memory["device"]).to_pylist() if name != CPU),
        options={"profile_memory": True, "with_stack": bool(stacks.values)},
        extra={"allocator_settings": settings} if settings else {},
    )
    trace = assemble(RecordedEvents(memory), meta, tuple(findings), None, operator_names.operator_name)
    without_steps = Finding(NO_STEPS, _WITHOUT_STEPS, note=True)
    quality = tuple(without_steps if finding.code == NO_STEPS else finding for finding in trace.quality)
    return trace.with_quality(quality)


def _device_table(
    device: str, history: Sequence[Entry], segments: Sequence[Entry], timed: bool, stacks: _Stacks, end_us: int
) -> pa.Table:
    """Return the memory events of a device, in the order of the history. ``stack`` has codes of ``stacks``. Without a
    history, the blocks are events at ``end_us``, the time of the snapshot."""
    entries = [entry for entry in history if entry["action"] in _SIGNS]
    alive = {address: block for segment in segments for address, block in _alive(segment)}
    allocated = {entry["addr"] for entry in entries if entry["action"] == "alloc"}
    begin = {"time_us": history[0]["time_us"] if history else end_us} if timed else {}
    older = [{**block, **begin, "addr": at, "action": "alloc"} for at, block in alive.items() if at not in allocated]
    entries = [*older, *entries]
    change = _integers(_SIGNS[entry["action"]] * entry["size"] for entry in entries)
    of_block = np.array([entry["action"] in _BLOCKS for entry in entries], np.bool_)
    ends = [sum(block["size"] for block in alive.values()), sum(segment["total_size"] for segment in segments)]
    total, reserved = (
        end - int(part.sum()) + np.cumsum(part)
        for end, part in zip(ends, (np.where(of_block, change, 0), np.where(of_block, 0, change)), strict=True)
    )
    time = _integers(entry["time_us"] if timed else at if history else 0 for at, entry in enumerate(entries))
    time = np.maximum.accumulate(time) if len(time) else time  # threads may read the clock in another order
    names = {action: action if action in _BLOCKS else f"Reserved ({action})" for action in _SIGNS}
    names = names if history else dict.fromkeys(names, STATE)
    stack = np.array([stacks.code(entry.get("frames")) for entry in entries], np.int64)
    # Some snapshots give a free the stack of the allocation, so that its phase is unknown.
    phase = np.where(of_block & (change > 0), stacks.phase(stack), NO_ROW)
    return pa.table({
        "stack": stack,
        "phase": texts(phase.astype(np.int32), PHASES),
        "name": pa.repeat(MEMORY_EVENT, len(entries)),
        "kind": pa.repeat(MEMORY, len(entries)),
        "category": pa.array([names[entry["action"]] for entry in entries], pa.string()),
        "start_ns": time * 1000 if timed else time,
        "dur_ns": np.zeros(len(entries), np.int64),
        "device": pa.repeat(device, len(entries)),
        "bytes": change,
        "address": _integers(entry["addr"] for entry in entries),
        "total_bytes": total,
        "args": pa.array([f'{{"Total Reserved": {level}}}' for level in reserved.tolist()], pa.string()),
    })  # fmt: skip


def _device(segment: Entry) -> int:
    """Return the device of a segment. Raises ValueError if it is not plausible."""
    device = segment["device"]
    if not isinstance(device, int) or not -1 <= device < _MOST_DEVICES:
        raise ValueError(f"a segment of device {device}")
    return device


def _history_findings(device: str, history: Sequence[Entry], memory: pa.Table) -> Iterator[Finding]:
    """Yield what is unknown because a device has no history, or only a part."""
    if not len(memory):
        return
    if not history:
        text = message(
            "the snapshot has no history of {device}, only the memory that was allocated at its end: the peak is "
            "unknown; {call} before the training records the history",
            device=device,
            call=_RECORD,
        )
        yield Finding("no-memory-history", text)
        return
    first = int(memory["total_bytes"][0].as_py() - memory["bytes"][0].as_py())
    older = len(memory) - sum(entry["action"] in _SIGNS for entry in history)
    earlier = first + int(np.sum(memory["bytes"].to_numpy()[:older]))
    if earlier > 0:
        text = message(
            "the history of {device} begins with {size:bytes} allocated: it was switched on later, or max_entries "
            "dropped its first entries, so a higher peak before it is unknown",
            device=device,
            size=earlier,
        )
        yield Finding("late-memory-history", text, note=True)


def _integers(values: Iterable[Any]) -> IntArray:
    """Return the values as an array. Raises ValueError or OverflowError for other values than 64-bit integers."""
    return np.asarray(pa.array(list(values), pa.int64()).to_numpy())


def _alive(segment: Entry) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the address, the requested size and the frames of each allocated block of a segment. Before torch 2.1, the
    block's history has the size and the frames."""
    address = segment["address"]
    for block in segment["blocks"]:
        history = block.get("history") or [{}]
        size = block.get("requested_size", history[0].get("real_size", block["size"]))
        if block["state"] == _ALIVE:
            yield address, {"size": size, "frames": block.get("frames") or history[0].get("frames")}
        address += block["size"]


class _Stacks:
    """The different stacks of a snapshot as texts (``values``), innermost frame first. Only Python frames count."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._phases: list[int] = []
        self._codes: dict[str, int] = {}
        self._of_list: dict[int, int] = {}
        self._frames: dict[int, str] = {}
        self._length = 0

    def phase(self, codes: IntArray) -> IntArray:
        """Return the phases in which the stacks were recorded, as indexes of PHASES, or -1. A thread without Python
        frames is one of autograd's threads."""
        without_frames = PHASES.index(BACKWARD) if self.values else NO_ROW
        return np.array([*self._phases, NO_ROW, without_frames])[codes]

    def code(self, frames: Sequence[Entry] | None) -> int:
        """Return the index of a stack in ``values``, -1 if it has no Python frames, or -2 if it was not recorded."""
        if frames is None:
            return -2
        code = self._of_list.get(id(frames))
        if code is None:
            text = ";".join(filter(None, map(self._frame, frames[:_MOST_FRAMES])))
            code = self._codes.setdefault(text, len(self.values)) if text else -1
            if code == len(self.values):
                self._length += len(text)
                if self._length > MOST_STACK_TEXT:
                    raise ValueError(f"more than {MOST_STACK_TEXT} characters of stacks")
                self.values.append(text)
                self._phases.append(_phase(text))
            self._of_list[id(frames)] = code
        return code

    def _frame(self, frame: Entry) -> str:
        text = self._frames.get(id(frame))
        if text is None:
            file, line, name = str(frame["filename"]), frame["line"], str(frame["name"])
            text = "" if _NATIVE.fullmatch(file) else f"{file}({line}): {name}".replace(";", ",")
            self._frames[id(frame)] = text
        return text


def _phase(stack: str) -> int:
    """Return the index of the phase in PHASES that the innermost of torch's files in a stack stands for, or -1."""
    match = _PHASE.search(stack)
    return NO_ROW if match is None else PHASES.index(str(match.lastgroup))


def _ranges(annotations: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the events of the ranges that began and ended in the history, such as steps of the profiler."""
    dialect, open_us = TorchDialect(), dict[str, list[int]]()
    for entry in annotations:
        name = entry["name"]
        if entry["stage"] == "START":
            open_us.setdefault(name, []).append(entry["time_us"])
        elif open_us.get(name):
            label, begin = dialect.label("user_annotation", name), open_us[name].pop()
            yield {"name": name, "kind": label.kind, "category": "user_annotation", "start_ns": begin * 1000,
                   "dur_ns": max(entry["time_us"] - begin, 0) * 1000, "device": CPU, "pid": 0, "tid": 0,
                   "step": label.step, "phase": label.phase}  # fmt: skip


def _findings(histories: Sequence[Sequence[Entry]], timed: bool) -> tuple[Finding, ...]:
    findings = []
    failed = [(gpu, entry) for gpu, history in enumerate(histories) for entry in history if entry["action"] == "oom"]
    if failed:
        device, last = failed[-1]
        text = plural(
            "out of memory: cuda:{device} had {free:bytes} free, and {size:bytes} were requested",
            "out of memory {n} times; the last time, cuda:{device} had {free:bytes} free, and {size:bytes} "
            "were requested",
            len(failed),
            device=device,
            free=int(last.get("device_free", 0)),
            size=int(last["size"]),
        )
        findings.append(Finding("out-of-memory", text))
    if not timed and any(histories):
        text = message("the snapshot has no timestamps: the order of its entries is used instead")
        findings.append(Finding("no-times", text, note=True))
    return tuple(findings)
