"""Reader of the databases ``ascend_pytorch_profiler_*.db``. Their rows become events as those of the text do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.readers.ascend import arguments, host_calls
from perfkit_core.readers.ascend.allocations import ALLOCATIONS
from perfkit_core.readers.ascend.database_columns import (
    codes,
    constant,
    device_names,
    digits,
    json_objects,
    mapped,
    named,
    nullable,
    positions,
    quoted,
    taken,
)
from perfkit_core.readers.ascend.device_tasks import BACKEND, DETAILS, PART_BYTES, PART_TYPE, TASK_TYPE
from perfkit_core.readers.ascend.host_calls import DEQUEUE, ENQUEUE, QUEUE_NUMBER
from perfkit_core.readers.chrome.dialect import Label
from perfkit_core.readers.sqlite_file import Database, SqliteFormat
from perfkit_core.trace.assembly.draft import EXTERNAL, RECORDED_TYPES
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.account import SUM, ReadEvents
from perfkit_core.trace.model.meta import Device, Finding

FORMAT: Final = SqliteFormat(
    lambda tables: "STRING_IDS" in tables and bool(tables.keys() & {"TASK", "PYTORCH_API", "CANN_API"}),
    "not a recording of Ascend's profiler: it has no tables of tasks and calls",
    "the events are in ascend_pytorch_profiler_*.db; analysis.db has only sums of them",
    hint="let the profiler analyse the recording again: torch_npu.profiler.profiler.analyse(FOLDER)",
)
_NONE: Final = 4294967295
"""The vendor's number for none."""
_CATEGORIES: Final = {"op": "cpu_op", "trace": "python_function", "mstx": "user_annotation"}
"""Types of host events, and the categories that the vendor's text gives them. A queue has the type in its names."""
_TIMES: Final = {"startNs", "timestampNs", "timestamp", "timeStamp"}
_SUMS: Final = frozenset({"OVERLAP_ANALYSIS", "STEP_TIME", "SESSION_TIME_INFO"})
_SCHEMA: Final = pa.schema(
    [
        pa.field(name, RECORDED_TYPES[name])
        for name in (
            "name", "kind", "category", "start_ns", "dur_ns", "pid", "tid", "device", "stream", "correlation", EXTERNAL,
            "step", "phase", "layer", "sequence", "shapes", "dtypes", "stack", "args",
        )
    ]
)  # fmt: skip
_PARTS: Final = {"id": "globalTaskId", "part_type": "taskType", "source": "srcRank", "target": "dstRank",
                 "transport": "transportType", "bytes": "size", "data": "dataType", "link": "linkType"}  # fmt: skip
Labels = Callable[[str, str], Label]


class AscendDatabase:
    """The events of a database, and what else it says. ``account`` and ``findings`` are complete after :meth:`events`.
    ``labels(category, name)`` returns what a host event is."""

    def __init__(self, database: Database, labels: Labels) -> None:
        self._database, self._labels = database, labels
        texts = dict(database.rows("STRING_IDS", "CAST({id} AS INTEGER), CAST({value} AS TEXT)"))
        self._ids, self._texts = np.array(list(texts), np.int64), pa.array(list(texts.values()), pa.string())
        self._enums = {
            name: dict(database.rows(name, "{id}, CAST({name} AS TEXT)"))
            for name in database.columns if name.startswith("ENUM_")
        }  # fmt: skip
        self._links = self._columns("CONNECTION_IDS", {"id": "id", "connection": "connectionId"})
        self._operators = {"link": np.empty(0, np.int64), "start_ns": np.empty(0, np.int64)}
        self._untimed: dict[str, int] = {}
        self._containers = 0
        self._read: set[str] = set()

    def events(self) -> pa.Table:
        """Return the recorded columns of all events. Raises SourceError."""
        tables = (self._host(), self._calls(), self._marks(), self._tasks(), self._collectives())
        return pa.concat_tables(tables).unify_dictionaries()

    def rank(self) -> int | None:
        """The rank of the process, None if it is not recorded."""
        rank = self._database.value("RANK_DEVICE_MAP", "CAST({rankId} AS INTEGER)")
        return rank if isinstance(rank, int) and rank >= 0 else None

    def devices(self) -> tuple[Device, ...]:
        """The devices that are described."""
        rows = self._database.rows("NPU_INFO", "CAST({id} AS INTEGER), CAST({name} AS TEXT)")
        return tuple(Device(f"{BACKEND}:{number}", name) for number, name in rows if number is not None)

    def settings(self) -> dict[str, str]:
        """Versions of the software and of the database."""
        rows = self._database.rows("META_DATA", "CAST({name} AS TEXT), CAST({value} AS TEXT)")
        return {name.lower(): value for name, value in rows if name and value and name.lower().endswith("version")}

    def details(self) -> pa.Table | None:
        """The vendor's description of kernels, with the times of their tasks."""
        keys = {"id": "globalTaskId", "name": "name", "type": "opType", "core": "taskType", "shapes": "inputShapes",
                "dtypes": "inputDataTypes", "blocks": "blockDim", "wait_ns": "waitNs"}  # fmt: skip
        cells = self._columns("COMPUTE_TASK_INFO", keys)
        tasks = self._columns("TASK", {"id": "globalTaskId", "start_ns": "startNs"})
        at, found = positions(tasks["id"], cells["id"])
        if not found.any():
            return None
        texts = {
            name: self._text(cells[name][found], missing="N/A") for name in ("name", "type", "core", "shapes", "dtypes")
        }
        columns = {name: texts[name].cast(pa.string()) for name in ("name", "type", "core")}
        columns |= {
            "start_ns": pa.array(tasks["start_ns"][at[found]]), "dur_ns": pa.nulls(int(found.sum()), pa.int64()),
            "wait_ns": nullable(cells["wait_ns"][found]), "blocks": nullable(cells["blocks"][found]),
            "shapes": mapped(texts["shapes"], arguments.shapes), "dtypes": mapped(texts["dtypes"], arguments.types),
        }  # fmt: skip
        return pa.table([columns[field.name] for field in DETAILS], DETAILS)

    def allocations(self) -> pa.Table:
        """The vendor's table of allocations."""
        keys = {"name": "name", "bytes": "size", "allocation_ns": "allocationTime", "release_ns": "releaseTime",
                "allocation_allocated": "allocationTotalAllocated", "allocation_reserved": "allocationTotalReserved",
                "release_allocated": "releaseTotalAllocated", "release_reserved": "releaseTotalReserved",
                "stream": "streamPtr", "device": "deviceId"}  # fmt: skip
        cells = self._columns("OP_MEMORY", keys)
        columns: dict[str, Any] = {name: nullable(cells[name]) for name in keys}
        columns["name"] = self._text(cells["name"]).cast(pa.string())
        columns["stream"] = columns["stream"].cast(pa.string())
        columns["device"] = device_names(cells["device"]).cast(pa.string())
        return pa.table([columns[field.name] for field in ALLOCATIONS], ALLOCATIONS)

    def account(self) -> tuple[ReadEvents, ...]:
        """Return what became of the rows with times that are no events."""
        entries = [ReadEvents("without_times", count, name) for name, count in self._untimed.items()]
        entries += [ReadEvents("table_not_read", count, name) for name, count in self._unread().items()]
        return tuple(entry for entry in [*entries, ReadEvents(SUM, self._containers, "TASK")] if entry.count > 0)

    def findings(self) -> tuple[Finding, ...]:
        findings = []
        if self._database.damaged:
            text = message(
                "these tables are damaged and were read only in part: {names:list}", names=[*self._database.damaged]
            )
            findings.append(Finding("truncated", text))
        if unread := list(self._unread()):
            text = message("perfkit does not read these tables: {names:list}", names=unread)
            findings.append(Finding("tables-not-read", text, note=True))
        return tuple(findings)

    def _unread(self) -> dict[str, int]:
        counts = {
            name: self._database.value(name, "COUNT(*)")
            for name, columns in self._database.columns.items()
            if name not in self._read | _SUMS and columns.keys() & _TIMES
        }
        return {name: count for name, count in counts.items() if isinstance(count, int) and count}

    def _host(self) -> pa.Table:
        keys = {"name": "name", "type": "type", "thread": "globalTid", "link": "connectionId",
                "forward": "fwdThreadId", "sequence": "sequenceNumber", "shapes": "inputShapes",
                "dtypes": "inputDtypes", "stack": "callchainId"}  # fmt: skip
        cells = self._timed("PYTORCH_API", keys)
        names, of_name = self._text(cells["name"]), self._enums.get("ENUM_API_TYPE", {})
        types = [of_name.get(number, "op") for number in np.unique(cells["type"]).tolist()]
        kind_of_type = np.unique(cells["type"], return_inverse=True)[1]
        pairs, pair_of = np.unique(kind_of_type * (len(names.dictionary) + 1) + codes(names) + 1, return_inverse=True)
        labels, categories = [], []
        for pair in pairs.tolist():
            kind, code = divmod(pair, len(names.dictionary) + 1)
            name = names.dictionary[code - 1].as_py() if code else ""
            category = _CATEGORIES.get(types[kind], ENQUEUE if name.startswith("Enqueue") else DEQUEUE)
            labels.append(self._labels(category, name))
            categories.append(category)
        operator, queue = (np.array([category in chosen for category in categories], np.bool_)[pair_of]
                           for chosen in (("cpu_op",), (ENQUEUE, DEQUEUE)))  # fmt: skip
        self._operators = {"link": cells["link"][operator], "start_ns": cells["start_ns"][operator]}
        at, found = positions(self._links["id"], cells["link"])
        number = np.where(queue & found, self._links["connection"][at] if found.any() else NO_ROW, NO_ROW)
        args = json_objects({"Fwd thread id": digits(cells["forward"]), QUEUE_NUMBER: digits(number)}, len(names))
        shapes, dtypes = self._text(cells["shapes"]), self._text(cells["dtypes"])
        if arguments.are_shapes(dtypes.dictionary.to_pylist()):  # some versions swap both columns
            shapes, dtypes = dtypes, shapes
        columns = {
            "name": names, "category": taken(categories, pair_of), "sequence": nullable(cells["sequence"]),
            **{name: taken([getattr(label, name) for label in labels], pair_of, RECORDED_TYPES[name])
               for name in ("kind", "phase", "step", "layer")},
            EXTERNAL: nullable(np.where(operator, cells["link"], NO_ROW)),
            "shapes": shapes, "dtypes": dtypes, "stack": self._stacks(cells["stack"]), "args": args,
        }  # fmt: skip
        return self._table(cells, columns)

    def _calls(self) -> pa.Table:
        cells = self._timed(
            "CANN_API", {"name": "name", "type": "type", "thread": "globalTid", "correlation": "connectionId"}
        )
        names, levels = self._text(cells["name"]), self._enums.get("ENUM_API_TYPE", {})
        numbers, of_number = np.unique(cells["type"], return_inverse=True)
        columns = {
            "name": names, "kind": mapped(names, host_calls.kind).dictionary_encode(),
            "category": taken([levels.get(number) for number in numbers.tolist()], of_number),
            "correlation": nullable(cells["correlation"]),
        }  # fmt: skip
        return self._table(cells, columns)

    def _marks(self) -> pa.Table:
        cells = self._timed("MSTX_EVENTS", {"name": "message", "thread": "globalTid"})
        names = self._text(cells["name"])
        labels = [self._labels("user_annotation", name) for name in names.dictionary.to_pylist()]
        columns = {"name": names, "category": constant("user_annotation", len(names)),
                   **{name: taken([getattr(label, name) for label in labels], codes(names), RECORDED_TYPES[name])
                      for name in ("kind", "phase", "step", "layer")}}  # fmt: skip
        return self._table(cells, columns)

    def _tasks(self) -> pa.Table:
        keys = {"id": "globalTaskId", "type": "taskType", "device": "deviceId", "stream": "streamId", "task": "taskId",
                "part": "contextId", "model": "modelId", "correlation": "connectionId"}  # fmt: skip
        cells = self._timed("TASK", keys)
        kernels = self._columns("COMPUTE_TASK_INFO", {"id": "globalTaskId", "name": "name"})
        at, is_kernel = positions(kernels["id"], cells["id"])
        parts = self._columns("COMMUNICATION_TASK_INFO", _PARTS)
        at_part, is_part = positions(parts["id"], cells["id"])
        # A task whose parts are tasks of their own is their sum.
        keys_of = np.stack([cells["device"], cells["stream"], cells["task"]], axis=1)
        _, group = np.unique(keys_of, axis=0, return_inverse=True)
        has_parts = np.bincount(group.reshape(-1), cells["part"] != _NONE)[group.reshape(-1)] > 0
        sums = has_parts & (cells["part"] == _NONE) & ~is_kernel & ~is_part
        self._containers = int(sums.sum())
        name = np.where(is_kernel, kernels["name"][at], cells["type"]) if len(kernels["name"]) else cells["type"]
        columns = {
            "name": self._text(name), "kind": constant(schema.UNKNOWN, len(name)),
            "device": device_names(cells["device"]), "stream": nullable(cells["stream"]),
            "correlation": nullable(cells["correlation"]), EXTERNAL: nullable(self._operators_of(cells["correlation"])),
            "args": self._task_args(cells, parts, at_part, is_part),
        }  # fmt: skip
        return self._table(cells, columns).filter(pa.array(~sums))

    def _collectives(self) -> pa.Table:
        keys = {"name": "opName", "correlation": "connectionId", "algorithm": "algType", "type": "dataType",
                "count": "count"}  # fmt: skip
        cells = self._timed("COMMUNICATION_OP", keys)
        count = len(cells["start_ns"])
        # the device is that of the tasks with the same connection
        tasks = self._columns("TASK", {"correlation": "connectionId", "device": "deviceId"})
        at, found = positions(tasks["correlation"], cells["correlation"])
        device = np.where(found, tasks["device"][at] if len(tasks["device"]) else 0, 0)
        args = json_objects(
            {
                "data_type": quoted(named(cells["type"], self._enums.get("ENUM_HCCL_DATA_TYPE", {}))),
                "alg_type": quoted(self._text(cells["algorithm"]).cast(pa.string())),
                "count": digits(cells["count"]),
            },
            count,
        )
        columns = {
            "name": self._text(cells["name"]), "kind": constant(schema.UNKNOWN, count), "device": device_names(device),
            "correlation": nullable(cells["correlation"]),
            EXTERNAL: nullable(self._operators_of(cells["correlation"])), "args": args,
        }  # fmt: skip
        return self._table(cells, columns)

    def _task_args(self, cells: Mapping[str, Any], parts: Mapping[str, Any], at: IntArray, is_part: Any) -> pa.Array:
        """Return the arguments of tasks, as the vendor's text has them."""
        rows = np.where(is_part, at, 0)

        def of_part(name: str) -> IntArray:
            values = parts[name]
            return np.where(is_part, values[rows], NO_ROW) if len(values) else np.full(len(rows), NO_ROW)

        enums = {name: self._enums.get(f"ENUM_HCCL_{name.upper()}_TYPE", {}) for name in ("transport", "link", "data")}
        ranks = {name: np.where(of_part(name) == _NONE, NO_ROW, of_part(name)) for name in ("source", "target")}
        return json_objects(
            {
                TASK_TYPE: quoted(self._text(cells["type"]).cast(pa.string())),
                "Task Id": digits(cells["task"]), "Subtask Id": digits(cells["part"]),
                PART_TYPE: quoted(self._text(of_part("part_type")).cast(pa.string())),
                "src rank": digits(ranks["source"]), "dst rank": digits(ranks["target"]),
                **{f"{name} type": quoted(named(of_part(name), enum)) for name, enum in enums.items()},
                PART_BYTES: digits(of_part("bytes")),
            },
            len(rows),
        )  # fmt: skip

    def _operators_of(self, connection: IntArray) -> IntArray:
        """Return the ids of the operators that made the calls with these connection ids, or -1. Of several operators,
        it is the one that began last."""
        links, operators = self._links, self._operators
        order = np.argsort(operators["start_ns"], kind="stable")
        ids = operators["link"][order]
        at, found = positions(ids, links["id"])  # the last operator with an id
        began = np.where(found, at, NO_ROW)
        latest = np.lexsort((began, links["connection"]))
        latest = latest[found[latest]]
        at, known = positions(links["connection"][latest], connection)
        chosen = links["id"][latest]
        return np.where(known & (connection >= 0), chosen[at] if len(chosen) else NO_ROW, NO_ROW)

    def _timed(self, table: str, keys: Mapping[str, str]) -> dict[str, IntArray]:
        """Return integer columns of a table, and the times of its rows. Rows without times are counted and left out."""
        self._read.add(table)
        cells = self._columns(table, {**keys, "start_ns": "startNs", "end_ns": "endNs"})
        timed = (cells["start_ns"] > 0) & (cells["end_ns"] >= cells["start_ns"])
        if not timed.all():
            self._untimed[table] = int((~timed).sum())
        return {name: values[timed] for name, values in cells.items()}

    def _columns(self, table: str, keys: Mapping[str, str]) -> dict[str, IntArray]:
        """Return integer columns of a table by their keys, shape (rows,), with -1 for null."""
        return self._database.integers(table, {key: f"{{{column}}}" for key, column in keys.items()})

    def _text(self, ids: IntArray, missing: str | None = None) -> pa.DictionaryArray:
        """Return the texts of ids, null for unknown ids and for the text ``missing``."""
        numbers, code = np.unique(ids, return_inverse=True)
        at, found = positions(self._ids, numbers)
        values = self._texts.take(pa.array(at, mask=~found)).to_pylist()
        used = {value: None for value in values if value is not None and value != missing}
        position = {value: number for number, value in enumerate(used)}
        new = np.array([position.get(value, NO_ROW) for value in values], np.int32)
        return pa.DictionaryArray.from_arrays(nullable(new[code]).cast(pa.int32()), pa.array(list(used), pa.string()))

    def _stacks(self, chains: IntArray) -> pa.DictionaryArray:
        """Return the stacks with these ids, innermost frame first."""
        cells = self._columns("PYTORCH_CALLCHAINS", {"id": "id", "frame": "stack", "depth": "stackDepth"})
        order = np.lexsort((cells["depth"], cells["id"]))
        frames = self._text(cells["frame"][order]).to_pylist()
        numbers, first = np.unique(cells["id"][order], return_index=True)
        ends = np.append(first[1:], len(frames))
        stacks = [
            ";".join(filter(None, frames[begin:end])) for begin, end in zip(first.tolist(), ends.tolist(), strict=True)
        ]
        at, found = positions(numbers, chains)
        return pa.array(stacks, pa.string()).take(pa.array(at, mask=~found | (chains < 0))).dictionary_encode()

    def _table(self, cells: Mapping[str, Any], columns: dict[str, Any]) -> pa.Table:
        count = len(cells["start_ns"])
        columns = {"start_ns": cells["start_ns"], "dur_ns": cells["end_ns"] - cells["start_ns"], **columns}
        if "thread" in cells:
            thread = cells["thread"]
            tid = np.where(thread >= 0, thread & (2**32 - 1), NO_ROW)
            columns |= {"pid": nullable(thread >> 32), "tid": nullable(tid), "device": constant(schema.CPU, count)}
        columns["name"] = pc.fill_null(columns["name"].cast(pa.string()), "unnamed").dictionary_encode()
        arrays = []
        for field in _SCHEMA:
            column = columns.get(field.name)
            array = pa.nulls(count, field.type) if column is None else column
            arrays.append(array if isinstance(array, pa.Array) else pa.array(array))
        return pa.table([array.cast(field.type) for array, field in zip(arrays, _SCHEMA, strict=True)], _SCHEMA)
