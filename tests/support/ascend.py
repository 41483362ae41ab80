"""A small recording of a training on an Ascend NPU, written as the vendor's text and as its database.

The times are in ns. The forward pass enqueues one product and waits for its result; the backward pass reduces a
gradient over two ranks. One task of a kernel is divided into parts, which the database records as well as their sum."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PID: Final = 4100
MAIN, QUEUE = 4100, 4177
START: Final = 1_736_400_000_000_000_000
NONE: Final = 4294967295
PROGRAM: Final = "python3.9"
"""Name of the process that has the ranges of mstx in the text."""
_LAYERS: Final = {"Python GC": 1, PROGRAM: 6, "CANN": 7, "Ascend Hardware": 13, "HCCL": 15, "Overlap Analysis": 23}
_GROUP: Final = "192.0.2.7%eth0_60000_0_1736400000000000"
_GROUPS: Final = {_GROUP: {"group_name": "default_group", "global_ranks": [0, 1]}}
_WAYS: Final = ("host to host", "host to device", "device to host")
_API: Final = {"runtime": 5000, "hccl": 5500, "node": 10000, "acl": 20000, "op": 50001, "queue": 50002, "trace": 50003}
_TITLES: Final = {"acl": "AscendCL", "node": "Node", "hccl": "Hccl"}


@dataclass
class Host:
    """An event of the framework, a range of mstx (kind ``mstx``), or the garbage collector (kind ``gc``).
    ``connections`` has the ids of the calls that an operator made. ``queue`` is the number of a call in the task
    queue."""

    name: str
    begin: int
    end: int
    kind: str = "op"
    thread: int = MAIN
    connections: tuple[int, ...] = ()
    queue: int | None = None
    shapes: str | None = None
    dtypes: str | None = None
    stack: tuple[str, ...] = ()
    sequence: int = -1


@dataclass
class Call:
    """A call of CANN."""

    name: str
    begin: int
    end: int
    connection: int
    level: str = "acl"
    thread: int = QUEUE


@dataclass
class Task:
    """A task on a stream. ``kernel`` is the vendor's description: type, unit, shapes, types, wait and blocks. ``part``
    is that of a part of a collective: type, other rank, bytes and link. ``copy`` has the bytes and direction."""

    name: str
    kind: str
    begin: int
    end: int
    connection: int
    stream: int = 2
    task: int = 1
    subtask: int = NONE
    kernel: tuple[str, str, str, str, int, int] | None = None
    part: tuple[str, int, int, str] | None = None
    copy: tuple[int, str] | None = None
    in_text: bool = True


@dataclass
class Collective:
    """``ranks`` is the number of ranks, which older texts do not have."""

    name: str
    begin: int
    end: int
    connection: int
    count: int
    dtype: str = "FP32"
    ranks: int | None = None


@dataclass
class Allocation:
    """An allocation of the framework (with a stream) or of the graph engine, and the totals after both ends, in KiB."""

    name: str
    kib: int
    begin: int
    end: int | None
    totals: tuple[int, int]
    stream: int | None = 9


@dataclass
class AscendRecording:
    """All events of one rank. ``device`` is the number of its NPU."""

    host: list[Host] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    rank: int = 0
    device: int = 0
    number: int = 0
    """Number of the rank in the groups of its collectives."""
    groups: dict[str, Any] = field(default_factory=lambda: _GROUPS)
    arrows: str = ""
    """If ``calls`` or ``no calls``, the text has arrows to tasks instead of the connection ids of calls, and does or
    does not have the calls."""

    def text(self, folder: Path, tables: bool = True) -> Path:
        """Write the folder of the rank with ``trace_view.json``, and with the vendor's ``tables``."""
        path = self._folder(folder)
        (path.parent / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": self.groups}))
        (path / "trace_view.json").write_text(json.dumps(self._events()))
        if tables:
            self._write_kernels(path / "kernel_details.csv")
            self._write_memory(path / "operator_memory.csv")
        return path.parent

    def database(self, folder: Path) -> Path:
        """Write the folder of the rank with the database."""
        path = self._folder(folder)
        with closing(sqlite3.connect(path / f"ascend_pytorch_profiler_{self.rank}.db")) as connection:
            self._fill(connection)
            connection.commit()
        return path.parent

    def _folder(self, folder: Path) -> Path:
        path = folder / f"rank{self.rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        path.mkdir(parents=True)
        info = {
            "config": {
                "common_config": {"record_shapes": True, "profile_memory": True, "with_stack": True},
                "experimental_config": {"_profiler_level": "Level1"},
            },
            "rank_id": self.rank,
        }
        (path.parent / f"profiler_info_{self.rank}.json").write_text(json.dumps(info))
        return path

    def _shown(self, name: str) -> int:
        return PID << 10 | _LAYERS[name] << 5 | self.device

    def _events(self) -> list[dict[str, Any]]:
        names = {PID: "Python"} | {self._shown(name): name for name in _LAYERS}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
            for pid, name in names.items()
        ]
        for number, event in enumerate(self.host):
            args: dict[str, Any] = {"Fwd thread id": 0}
            category = {"op": "cpu_op", "trace": "python_function", "gc": "GC", "mstx": None}.get(
                event.kind, event.name.partition("@")[0].lower()
            )
            process = {"gc": "Python GC", "mstx": PROGRAM}.get(event.kind)
            args = {"event_type": "push/pop"} if event.kind == "mstx" else args
            if event.kind == "op":
                args |= {"Sequence number": event.sequence}
                args |= {"Input Dims": event.shapes} if event.shapes is not None else {}
                args |= {"Input type": event.dtypes} if event.dtypes is not None else {}
                args |= {"Call stack": ";\r\n".join(event.stack)} if event.stack else {}
            if event.queue is not None:
                args = {"correlation_id": event.queue}
            events.append(_span(event, self._shown(process) if process else PID, event.thread, args, category))
            for task in (*self.tasks, *self.collectives):
                if (
                    task.connection in event.connections
                    and getattr(task, "in_text", True)
                    and not getattr(task, "part", None)
                ):
                    events += self._link(event, task, f"{number}.{task.begin}")
        for number, call in enumerate(self.calls):
            if self.arrows:
                events += self._arrows(call)
            if self.arrows == "no calls":
                continue
            connection = call.connection if not self.arrows else 900 + number
            args = {"Thread Id": call.thread, "level": call.level, "connection_id": connection}
            name = f"{_TITLES[call.level]}@{call.name}"
            events.append(_span(call, self._shown("CANN"), call.thread, args) | {"name": name})
        for task in self.tasks:
            if task.in_text:
                args = {"Task Type": task.kind, "Task Id": task.task, "Subtask Id": task.subtask,
                        "connection_id": task.connection}  # fmt: skip
                args |= {"dataSize(B)": task.copy[0], "direction": task.copy[1]} if task.copy else {}
                events.append(_span(task, self._shown("Ascend Hardware"), task.stream, args))
            if task.part:
                kind, rank, size, link = task.part
                args = {"stream id": task.stream, "task id": task.task, "context id": task.subtask, "task type": kind,
                        "src rank": self.number, "dst rank": rank, "size(Byte)": size, "link type": link}  # fmt: skip
                events.append(_span(task, self._shown("HCCL"), 1, args) | {"name": kind})
        for op in self.collectives:
            args = {"connection_id": op.connection, "data_type": op.dtype, "alg_type": "MESH-RING", "count": op.count}
            args |= {"rank_size": op.ranks} if op.ranks else {}
            events.append(_span(op, self._shown("HCCL"), 0, args))
        events.append({"ph": "X", "name": "Computing", "pid": self._shown("Overlap Analysis"), "tid": 0,
                       "ts": _us(START), "dur": 5.0})  # fmt: skip
        return events

    def _arrows(self, call: Call) -> list[dict[str, Any]]:
        arrow = {"name": "HostToDevice", "cat": "HostToDevice", "id": str((call.connection + 1 << 60) - 1)}
        begin = {"ph": "s", "pid": self._shown("CANN"), "tid": call.thread, "ts": _us(call.end - 1000)}
        ends = [
            (task, self._shown("Ascend Hardware"), task.stream) for task in self.tasks if task.in_text and not task.part
        ] + [(op, self._shown("HCCL"), 0) for op in self.collectives]
        return [arrow | begin] + [
            arrow | {"ph": "f", "bp": "e", "pid": pid, "tid": thread, "ts": _us(task.begin)}
            for task, pid, thread in ends if task.connection == call.connection
        ]  # fmt: skip

    def _link(self, event: Host, task: Any, number: str) -> list[dict[str, Any]]:
        process = self._shown("HCCL" if isinstance(task, Collective) else "Ascend Hardware")
        link = {"name": "torch_to_npu", "cat": "async_npu", "id": number, "bp": "e"}
        return [
            link | {"ph": "s", "pid": PID, "tid": event.thread, "ts": _us(event.begin)},
            link | {"ph": "f", "pid": process, "tid": getattr(task, "stream", 0), "ts": _us(task.begin)},
        ]

    def _write_kernels(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)",
                             "Wait Time(us)", "Block Dim", "Input Shapes", "Input Data Types"])  # fmt: skip
            for task in self.tasks:
                if task.kernel:
                    kind, unit, shapes, dtypes, wait, blocks = task.kernel
                    writer.writerow([3, task.name, kind, unit, f"{_us(task.begin)}\t", (task.end - task.begin) / 1000,
                                     wait / 1000, blocks, shapes, dtypes])  # fmt: skip

    def _write_memory(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)",
                             "Allocation Total Allocated(MB)", "Allocation Total Reserved(MB)",
                             "Release Total Allocated(MB)", "Release Total Reserved(MB)", "Stream Ptr",
                             "Device Type"])  # fmt: skip
            for item in self.allocations:
                released = "" if item.end is None else f"{_us(item.end)}\t"
                before, after = (total / 1024 for total in item.totals)
                writer.writerow([item.name, item.kib, f"{_us(item.begin)}\t", released, before, 64, after, 64,
                                 item.stream or "", f"NPU:{self.device}"])  # fmt: skip

    def _fill(self, connection: sqlite3.Connection) -> None:
        texts: dict[str, int] = {}

        def text(value: str | None) -> int | None:
            return None if value is None else texts.setdefault(value, len(texts))

        def table(name: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
            connection.execute(f"CREATE TABLE {name} ({columns})")
            connection.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * (columns.count(',') + 1))})", rows)

        table("ENUM_API_TYPE", "id INTEGER, name TEXT", [(number, name) for name, number in _API.items()])
        table("ENUM_HCCL_DATA_TYPE", "id INTEGER, name TEXT", [(4, "FP32")])
        table("ENUM_HCCL_LINK_TYPE", "id INTEGER, name TEXT", [(0, "ON_CHIP"), (1, "HCCS")])
        table("RANK_DEVICE_MAP", "rankId INTEGER, deviceId INTEGER", [(self.rank, self.device)])
        table("NPU_INFO", "id INTEGER, name TEXT", [(self.device, "Ascend910B")])
        table("META_DATA", "name TEXT, value TEXT",
              [("SCHEMA_VERSION", "1.0.0"), ("parallel_group_info", json.dumps(self.groups))])  # fmt: skip
        ranges = {"mstx": "MSTX_EVENTS", "gc": "GC_RECORD"}
        for kind, name in ranges.items():
            table(name, "startNs INTEGER, endNs INTEGER, globalTid INTEGER, message INTEGER",
                  [(event.begin, event.end, PID << 32 | event.thread, text(event.name))
                   for event in self.host if event.kind == kind])  # fmt: skip
        links, host, chains = [], [], []
        for number, event in enumerate(event for event in self.host if event.kind not in ranges):
            ids = [(number, connection_id) for connection_id in event.connections]
            links += [(number, 90_000 + event.queue)] if event.queue is not None else ids
            chains += [(number, text(frame), depth) for depth, frame in enumerate(event.stack)]
            operator = event.kind == "op"
            host.append((
                str(event.begin), str(event.end), PID << 32 | event.thread,
                number if event.connections or event.queue is not None else None, text(event.name),
                event.sequence if operator else None, 0 if operator else None, text(event.shapes),
                text(event.dtypes), number if event.stack else None, _API[event.kind],
            ))  # fmt: skip
        table("PYTORCH_API", "startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER, "
              "sequenceNumber INTEGER, fwdThreadId INTEGER, inputShapes INTEGER, inputDtypes INTEGER, "
              "callchainId INTEGER, type INTEGER", host)  # fmt: skip
        table("CONNECTION_IDS", "id INTEGER, connectionId INTEGER", links)
        table("PYTORCH_CALLCHAINS", "id INTEGER, stack INTEGER, stackDepth INTEGER", chains)
        table("CANN_API", "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, "
              "name INTEGER",
              [(call.begin, call.end, _API[call.level], PID << 32 | call.thread, call.connection, text(call.name))
               for call in self.calls])  # fmt: skip
        table("TASK", "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, "
              "taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER",
              [(task.begin, task.end, self.device, task.connection, number,
                text("KERNEL_AICORE" if task.kernel else task.name), task.subtask, task.stream, task.task)
               for number, task in enumerate(self.tasks)])  # fmt: skip
        table("ENUM_MEMCPY_OPERATION", "id INTEGER, name TEXT", list(enumerate(_WAYS)))
        table("MEMCPY_INFO", "globalTaskId INTEGER, size INTEGER, memcpyOperation INTEGER",
              [(number, task.copy[0], _WAYS.index(task.copy[1]))
               for number, task in enumerate(self.tasks) if task.copy])  # fmt: skip
        table("COMPUTE_TASK_INFO", "name INTEGER, globalTaskId INTEGER, opType INTEGER, taskType INTEGER, "
              "inputShapes INTEGER, inputDataTypes INTEGER, waitNs INTEGER, blockDim INTEGER",
              [(text(task.name), number, *map(text, task.kernel[:4]), *task.kernel[4:])
               for number, task in enumerate(self.tasks) if task.kernel])  # fmt: skip
        table("COMMUNICATION_TASK_INFO", "globalTaskId INTEGER, taskType INTEGER, srcRank INTEGER, dstRank INTEGER, "
              "size INTEGER, linkType INTEGER",
              [(number, text(task.part[0]), self.number, *task.part[1:3], {"ON_CHIP": 0, "HCCS": 1}[task.part[3]])
               for number, task in enumerate(self.tasks) if task.part])  # fmt: skip
        table("COMMUNICATION_OP", "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, "
              "dataType INTEGER, algType INTEGER, count INTEGER, groupName INTEGER",
              [(text(op.name), op.begin, op.end, op.connection, 4, text("MESH-RING"), op.count,
                text(_GROUP if op.ranks else "unknown"))
               for op in self.collectives])  # fmt: skip
        table("OP_MEMORY", "name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, "
              "allocationTotalAllocated INTEGER, allocationTotalReserved INTEGER, releaseTotalAllocated INTEGER, "
              "releaseTotalReserved INTEGER, streamPtr INTEGER, deviceId INTEGER",
              [(text(item.name), item.kib << 10, item.begin, item.end, item.totals[0] << 10, 64 << 20,
                item.totals[1] << 10, 64 << 20, item.stream, self.device) for item in self.allocations])  # fmt: skip
        table("OVERLAP_ANALYSIS", "id INTEGER, startNs INTEGER, endNs INTEGER", [(1, START, START + 5_000)])
        table("HBM", "deviceId INTEGER, timestampNs INTEGER, bandwidth INTEGER", [(0, START, 0)])
        table("STRING_IDS", "id INTEGER, value TEXT", [(number, value) for value, number in texts.items()])


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _span(event: Any, pid: int, tid: int, args: dict[str, Any], category: str | None = None) -> dict[str, Any]:
    duration = event.end - event.begin
    span = {"ph": "X", "name": event.name, "pid": pid, "tid": tid, "ts": _us(event.begin), "dur": duration / 1000,
            "args": args}  # fmt: skip
    return span | ({"cat": category} if category else {})


def small(rank: int = 0) -> AscendRecording:
    """Return a recording of one step of 1 ms with 3 kernels (one of them divided), a copy, and one all_reduce."""
    t = START + rank * 700

    def at(us: float) -> int:
        return t + round(us * 1000)

    return AscendRecording(
        rank=rank,
        device=rank,
        host=[
            Host("ProfilerStep#3", at(0), at(1000), stack=("train.py(9): train", "<string>(1): <module>")),
            Host("aten::to", at(5), at(60), shapes="32,8;\r\n", dtypes="float;\r\nNone"),
            Host("acl_memcpy_host_to_device", at(10), at(50)),
            Host("Enqueue", at(12), at(14), kind="queue", queue=70),
            Host("aten::addmm", at(100), at(200), shapes="8;\r\n32,8;\r\n8,8", dtypes="float;\r\nfloat;\r\nfloat",
                 stack=("model.py(4): forward", "train.py(9): train"), sequence=5),
            Host("aclnnAddmm", at(120), at(190), connections=(11, 12)),
            Host("Enqueue", at(130), at(140), kind="queue", queue=71),
            Host("AddmmBackward0", at(300), at(400), sequence=5),
            Host("c10d::allreduce_", at(310), at(390)),
            Host("HcclAllreduce", at(320), at(380), connections=(20,)),
            Host("Enqueue", at(330), at(335), kind="queue", queue=72),
            Host("Dequeue@acl_memcpy_host_to_device", at(20), at(40), kind="queue", thread=QUEUE, queue=70),
            Host("Dequeue@aclnnAddmm", at(150), at(185), kind="queue", thread=QUEUE, queue=71),
            Host("Dequeue@HcclAllreduce", at(340), at(375), kind="queue", thread=QUEUE, queue=72),
        ],
        calls=[
            Call("aclrtMemcpyAsync", at(22), at(38), 10),
            Call("launch", at(155), at(160), 11, "node"),
            Call("launch", at(165), at(170), 12, "node"),
            Call("hcom_allReduce_", at(345), at(370), 20, "hccl"),
            Call("aclrtSynchronizeStreamWithTimeout", at(500), at(990), 30, thread=MAIN),
        ],
        tasks=[
            Task("MEMCPY_ASYNC", "PCIE_DMA_SQE", at(30), at(70), 10, task=1),
            Task("aclnnAddmm_MatMulCommon_MatMulV2", "AI_CORE", at(180), at(230), 11, task=2,
                 kernel=("MatMulV2", "AI_CORE", '"8;32,8;8,8"', "FLOAT;FLOAT;FLOAT", 1500, 20)),
            Task("KERNEL_AICORE", "AI_CORE", at(239), at(261), 12, task=3, in_text=False),
            Task("aclnnAddmm_Add_Add", "MIX_AIV", at(240), at(260), 12, task=3, subtask=0,
                 kernel=("Add", "MIX_AIV", '"8;32,8"', "FLOAT;FLOAT", 10_000, 4)),
            Task("EVENT_RECORD", "EVENT_RECORD_SQE", at(262), at(263), NONE, task=4),
            Task("SDMA", "SDMA", at(400), at(420), 20, stream=4, task=9, subtask=0,
                 part=("Memcpy", 0, 4096, "ON_CHIP")),
            Task("Notify Wait", "Notify Wait", at(420), at(500), 20, stream=4, task=9, subtask=1,
                 part=("Notify_Wait", 1, 0, "HCCS")),
        ],
        collectives=[Collective("hcom_allReduce__586_0_1", at(400), at(510), 20, 1024)],
        allocations=[
            Allocation("aten::addmm", 8, at(105), at(450), (1008, 1004)),
            Allocation("aten::addmm", 4, at(110), None, (1012, 0)),
            Allocation("cann::trans", 16, at(115), at(600), (216, 200), stream=None),
        ],
    )  # fmt: skip


def awaiting(*transfers: int, number: int = 0, groups: dict[str, Any] | None = None) -> AscendRecording:
    """Return the recording of :func:`small` with waits of its collective, which begins at 400 µs, for ranks 1 to 3 of
    its group. They end at 430, 480 and 450 µs. It has transfers of 10 µs that begin at ``transfers`` (in µs), and then
    a wait until 505 µs."""
    recording = small()
    recording.number, recording.groups = number, groups or {}
    parts = [("Notify_Wait", 1, 405, 430), ("Notify_Wait", 2, 406, 480), ("Notify_Wait", 3, 407, 450),
             *(("Memcpy", 3, at, at + 10) for at in transfers), ("Notify_Wait", 1, 495, 505)]  # fmt: skip
    recording.tasks[-2:] = [
        Task("SDMA" if kind == "Memcpy" else "Notify Wait", kind, START + begin * 1000, START + end * 1000, 20,
             stream=4, task=9, subtask=at, part=(kind, other, 4096 * (kind == "Memcpy"), "HCCS"))
        for at, (kind, other, begin, end) in enumerate(parts)
    ]  # fmt: skip
    return recording


def rich() -> AscendRecording:
    """Return the recording of :func:`small` of rank 13 on device 5, without stacks. It also has ranges of mstx, the
    garbage collector, a copy with its size, and a copy with the number of the divided task, which is used again."""
    recording = small()
    recording.rank, recording.device = 13, 5
    recording.collectives[0].ranks = 2
    for event in recording.host:
        event.stack = ()
    recording.host += [
        Host("forward 3", START + 90_000, START + 210_000, kind="mstx"),
        Host("GC", START + 600_000, START + 650_000, kind="gc"),
    ]
    recording.tasks += [
        Task("MEMCPY_ASYNC", "PCIE_DMA_SQE", START + 700_000, START + 720_000, NONE, copy=(4096, "host to device")),
        Task("MEMCPY_ASYNC", "PCIE_DMA_SQE", START + 730_000, START + 740_000, NONE, task=3,
             copy=(256, "device to host")),
        Task("VALUE_WAIT", "COND_SQE", START + 750_000, START + 760_000, NONE, task=5),
    ]  # fmt: skip
    return recording
