"""Reader of the databases ``ascend_pytorch_profiler_*.db``. Their rows become events as those of the text do."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, Codes, IntArray, first_match, joined, to_codes
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.base.language.messages import message
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.readers.ascend import arguments, device_tasks, host_calls
from perfkit_core.readers.ascend.allocations import ALLOCATIONS
from perfkit_core.readers.ascend.database_columns import device_names, encoded, json_objects, mapped, nullable, quoted
from perfkit_core.readers.ascend.device_tasks import BACKEND, DETAILS
from perfkit_core.readers.ascend.host_calls import DEQUEUE, ENQUEUE, QUEUE_NUMBER
from perfkit_core.readers.ascend.rank_folder import groups
from perfkit_core.readers.chrome.dialect import Label
from perfkit_core.readers.chrome.reader import without_start
from perfkit_core.readers.sqlite_file import Database, SqliteFormat
from perfkit_core.trace.assembly.draft import EXTERNAL, RECORDED_TYPES, by_time, integers
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
_API: Final = {5000: "runtime", 5500: "hccl", 10_000: "node", 15_000: "model", 20_000: "acl", 50_003: "trace",
               50_004: "mstx"}  # fmt: skip
"""The vendor's numbers of types, for files that do not list them."""
_CATEGORIES: Final = {"trace": "python_function", "mstx": "user_annotation"}
"""Types of host events that are no operators, and the categories that the vendor's text gives them. Both ends of the
queue are known by their names."""
_LATER: Final = frozenset({"waitNs", "modelId", "opId", "transportType", "dataType"})
"""Columns that some versions do not write."""
_TIMES: Final = {"startNs", "timestampNs", "timestamp", "timeStamp"}
_STRINGS: Final = "STRING_IDS"
_IS_SMALL: Final = re.compile(r"STRING_IDS|ENUM_\w+|RANK_DEVICE_MAP|NPU_INFO|META_DATA")
_SUMS: Final = frozenset({"OVERLAP_ANALYSIS", "STEP_TIME", "SESSION_TIME_INFO"})
_PARTS_TABLE: Final = "COMMUNICATION_TASK_INFO"
_PARTS: Final = {"id": "globalTaskId", "part_type": "taskType", "source": "srcRank", "target": "dstRank",
                 "transport": "transportType", "bytes": "size", "data": "dataType", "link": "linkType"}  # fmt: skip
Labels = Callable[[str, str], Label]


class AscendDatabase:
    """The events of a database, and what else it says. ``account`` and ``findings`` are complete after :meth:`events`.
    ``labels(category, name)`` returns what a host event is."""

    def __init__(self, database: Database, labels: Labels) -> None:
        self._database, self._labels = database, labels
        self._lost = Counter[str]()
        self._cells: dict[str, dict[str, IntArray]] = {}
        self._absent: list[str] = []
        for name in filter(_IS_SMALL.match, database.columns):
            database.check(name)
        cells = "CAST({id} AS INTEGER), CAST({value} AS TEXT), INSTR(CAST({value} AS BLOB), x'EFBFBD')"
        strings = [row for row in database.rows(_STRINGS, cells) if None not in row[:2]]
        texts = {number: value for number, value, _ in strings}
        self._damaged_texts = sum(("\ufffd" in value and not at) or "\0" in value for _, value, at in strings)
        self._ids, self._texts = np.array(list(texts), np.int64), pa.array(list(texts.values()), pa.string())
        self._enums = defaultdict[str, dict[int, str]](dict, ENUM_API_TYPE=_API)
        for name in database.columns:
            if name.startswith("ENUM_"):
                named = database.rows(name, "{id}, CAST({name} AS TEXT)")
                self._enums[name] = {number: value for number, value in named if value is not None}
        self._links = self._columns("CONNECTION_IDS", {"id": "id", "connection": "connectionId"})
        self._operators = {"link": np.empty(0, np.int64), "start_ns": np.empty(0, np.int64)}
        self._untimed: dict[str, int] = {}
        self._timed_rows = 0
        self._containers = 0
        self._read: set[str] = set()

    def events(self) -> pa.Table:
        """Return the recorded columns of all events. Raises SourceError."""
        ranges = (
            self._ranges("MSTX_EVENTS", schema.ANNOTATION, host_calls.MARK),
            self._ranges("GC_RECORD", schema.PYTHON, host_calls.COLLECTOR, host_calls.COLLECTOR),
        )
        tables = (self._host(), self._calls(), *ranges, self._tasks(), self._collectives())
        table = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
        for at, name in enumerate(table.column_names):
            if name != "args":  # whole columns are read faster
                is_integer = pa.types.is_int64(RECORDED_TYPES[name])
                whole = nullable(integers(table, name)) if is_integer else joined(table[name])
                table = table.set_column(at, name, whole)
        return table

    def rank(self) -> int | None:
        """The rank of the process, None if it is not recorded."""
        rank = self._database.value("RANK_DEVICE_MAP", "CAST({rankId} AS INTEGER)")
        return rank if isinstance(rank, int) and rank >= 0 else None

    def devices(self) -> tuple[Device, ...]:
        """The devices that are described."""
        rows = [*self._database.rows("NPU_INFO", "CAST({id} AS INTEGER), CAST({name} AS TEXT)")]
        described = [number for number, _ in rows if number is not None]
        self._lost["NPU_INFO"] += len(rows) - len(described)
        numbers = np.unique(self._columns("TASK", {"device": "deviceId"})["device"])
        self._refer("NPU_INFO", numbers, np.array(described, np.int64))
        return tuple(Device(f"{BACKEND}:{number}", name) for number, name in rows if number is not None)

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """What the program states about the recording, and the version of the database."""
        stated: dict[str, Any] = {}
        for name, value in self._database.rows("META_DATA", "CAST({name} AS TEXT), CAST({value} AS TEXT)"):
            try:
                stated[name.lower()] = (
                    decode_json(value) if value.startswith(("{", "\0")) else value
                )  # damaged ones, too
            except (AttributeError, ValueError, RecursionError):
                self._lost["META_DATA"] += 1
        return stated

    def details(self) -> pa.Table:
        """The vendor's description of kernels, with the times of their tasks."""
        keys = {"id": "globalTaskId", "name": "name", "type": "opType", "core": "taskType", "shapes": "inputShapes",
                "dtypes": "inputDataTypes", "blocks": "blockDim", "wait_ns": "waitNs"}  # fmt: skip
        cells = self._columns("COMPUTE_TASK_INFO", keys)
        tasks = self._columns("TASK", {"id": "globalTaskId", "start_ns": "startNs"})
        start = first_match(cells["id"], tasks["id"], tasks["start_ns"])
        found = start >= 0
        texts = {
            name: self._text(cells[name][found], missing="N/A") for name in ("name", "type", "core", "shapes", "dtypes")
        }
        columns = {name: texts[name] for name in ("name", "type", "core")} | {
            "start_ns": pa.array(start[found]), "dur_ns": pa.nulls(int(found.sum()), pa.int64()),
            "wait_ns": nullable(cells["wait_ns"][found]), "blocks": nullable(cells["blocks"][found]),
            "shapes": mapped(texts["shapes"], arguments.shapes), "dtypes": mapped(texts["dtypes"], arguments.types),
        }  # fmt: skip
        return pa.table([columns[field.name].cast(field.type) for field in DETAILS], DETAILS)

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
        untimed = sum(self._untimed.values())
        lost = [without_start(untimed, untimed + self._timed_rows)] if untimed else []
        if names := [f"{name} ({count})" for name, count in self._lost.items() if count]:
            text = message(
                "values refer to rows that are missing or damaged, in these tables: {names:list}", names=names
            )
            lost.append(Finding("missing-rows", text))
        if self._absent:
            text = message("the database lacks these tables or columns, so their values are unknown: {names:list}",
                           names=self._absent)  # fmt: skip
            lost.append(Finding("columns-missing", text, note=True))
        if self._damaged_texts:
            text = message("{count} texts are damaged: parts of them are not UTF-8", count=self._damaged_texts)
            lost.append(Finding("not-utf-8", text))
        return (*lost, *self._database.findings(self._unread()))

    def _unread(self) -> dict[str, int]:
        return self._database.unread((self._read | _SUMS).__contains__, _TIMES)

    def _host(self) -> pa.Table:
        keys = {"name": "name", "type": "type", "thread": "globalTid", "link": "connectionId",
                "forward": "fwdThreadId", "sequence": "sequenceNumber", "shapes": "inputShapes",
                "dtypes": "inputDtypes", "stack": "callchainId"}  # fmt: skip
        cells = self._timed("PYTORCH_API", keys)
        names, types = self._text(cells["name"]), self._named(cells["type"], "ENUM_API_TYPE")
        pairs, pair_of = arguments.combined(*(Codes(*to_codes([column], len(names))) for column in (types, names)))
        categories = [host_calls.queue_end(name) or _CATEGORIES.get(kind, "cpu_op") for kind, name in pairs]
        labels = [self._labels(category, name) for category, (_, name) in zip(categories, pairs, strict=True)]
        operator, queue = (np.array([category in chosen for category in categories], np.bool_)[pair_of]
                           for chosen in (("cpu_op",), (ENQUEUE, DEQUEUE)))  # fmt: skip
        self._operators = {"link": cells["link"][operator], "start_ns": cells["start_ns"][operator]}
        self._refer("PYTORCH_API", self._links["id"], cells["link"])
        self._refer("CONNECTION_IDS", cells["link"], self._links["id"])
        links = np.where(queue, cells["link"], NO_ROW)
        number = first_match(links, self._links["id"], self._links["connection"])
        steps = np.array([NO_ROW if label.step is None else label.step for label in labels], np.int64)
        args = json_objects({"Fwd thread id": cells["forward"], QUEUE_NUMBER: number})
        shapes, dtypes = self._text(cells["shapes"]), self._text(cells["dtypes"])
        if arguments.are_shapes(dtypes.dictionary.to_pylist()):  # some versions swap both columns
            shapes, dtypes = dtypes, shapes
        columns = {
            "name": names, "category": encoded(categories, pair_of), "sequence": nullable(cells["sequence"]),
            **{name: encoded([getattr(label, name) for label in labels], pair_of)
               for name in ("kind", "phase", "layer")},
            "step": nullable(steps[pair_of]),
            EXTERNAL: nullable(np.where(operator, cells["link"], NO_ROW)),
            "shapes": shapes, "dtypes": dtypes, "stack": self._stacks(cells["stack"]), "args": args,
        }  # fmt: skip
        return self._table(cells, columns)

    def _calls(self) -> pa.Table:
        cells = self._timed(
            "CANN_API", {"name": "name", "type": "type", "thread": "globalTid", "correlation": "connectionId"}
        )
        names = self._text(cells["name"])
        kinds = mapped(names, host_calls.kind).cast(pa.string()).fill_null(schema.RUNTIME).dictionary_encode()
        category = self._named(cells["type"], "ENUM_API_TYPE")
        return self._table(cells, {"name": names, "kind": kinds, "category": category})

    def _ranges(self, table: str, kind: str, category: str, name: str | None = None) -> pa.Table:
        cells = self._timed(table, {"name": "message", "thread": "globalTid"})
        same = np.zeros(len(cells["start_ns"]), np.int64)
        columns = {key: encoded([value], same) for key, value in (("kind", kind), ("category", category))}
        names = self._text(cells["name"]) if name is None else encoded([name], same)
        return self._table(cells, {"name": names, **columns})

    def _tasks(self) -> pa.Table:
        keys = {"id": "globalTaskId", "type": "taskType", "device": "deviceId", "stream": "streamId", "task": "taskId",
                "part": "contextId", "model": "modelId", "correlation": "connectionId"}  # fmt: skip
        cells = self._timed("TASK", keys)
        kernels = self._columns("COMPUTE_TASK_INFO", {"id": "globalTaskId", "name": "name"})
        title = first_match(cells["id"], kernels["id"], kernels["name"])
        parts = self._columns(_PARTS_TABLE, _PARTS)
        for details in (kernels, parts):
            self._refer("TASK", details["id"], cells["id"])
        part = first_match(cells["id"], parts["id"], np.arange(len(parts["id"])))
        # A task whose parts are tasks of their own is their sum. Numbers of tasks are used again.
        keys_of = [cells[name] for name in ("device", "stream", "task", "correlation")]
        group, _ = distinct(keys_of, len(title))
        has_parts = np.bincount(group, cells["part"] != _NONE)[group] > 0
        sums = has_parts & (cells["part"] == _NONE) & (title < 0) & (part < 0)
        self._containers = int(sums.sum())
        name = np.where(title >= 0, title, cells["type"])
        described = {key: np.append(values, NO_ROW)[part] for key, values in parts.items()}
        args = self._task_args(cells, described)
        names = self._text(name)
        columns = {"name": names, "stream": nullable(cells["stream"]), "args": args}
        calls = self._columns("CANN_API", {"connection": "connectionId"})["connection"]
        marks = pc.starts_with(names.cast(pa.string()), "PROFIL").fill_null(False)  # no call starts these tasks
        in_graph = (cells["model"] >= 0) & (cells["model"] != _NONE)  # called when the graph was captured
        called = ~in_graph & ~np.asarray(marks, np.bool_)
        self._refer("CANN_API", cells["correlation"][called], calls)
        return self._table(cells, columns).filter(pa.array(~sums))

    def _collectives(self) -> pa.Table:
        keys = {"name": "opName", "correlation": "connectionId", "algorithm": "algType", "type": "dataType",
                "count": "count", "group": "groupName"}  # fmt: skip
        sizes = {name: str(len(ranks)) for name, (_, ranks) in groups(self.metadata).items()}
        cells = self._timed("COMMUNICATION_OP", keys | {"id": "opId"})
        if len(cells["id"]) and _PARTS_TABLE not in self._database.columns:
            self._absent.append(_PARTS_TABLE)
        parts = self._columns(_PARTS_TABLE, {"whole": "opId"})
        self._refer("COMMUNICATION_OP", parts["whole"], cells["id"])
        # the device is that of the tasks with the same connection
        tasks = self._columns("TASK", {"correlation": "connectionId", "device": "deviceId"})
        cells["device"] = first_match(cells["correlation"], tasks["correlation"], tasks["device"])
        args = json_objects(
            {
                "data_type": quoted(self._named(cells["type"], "ENUM_HCCL_DATA_TYPE")),
                "alg_type": quoted(self._text(cells["algorithm"])),
                "count": cells["count"],
                device_tasks.RANK_SIZE: mapped(self._text(cells["group"]), sizes.get),
            }
        )
        return self._table(cells, {"name": self._text(cells["name"]), "args": args})

    def _task_args(self, cells: Mapping[str, IntArray], part: Mapping[str, IntArray]) -> pa.Array:
        """Return the arguments of tasks, as the vendor's text has them."""
        copies = self._columns("MEMCPY_INFO", {"id": "globalTaskId", "bytes": "size", "way": "memcpyOperation"})
        self._refer("TASK", copies["id"], cells["id"])
        size, way = (first_match(cells["id"], copies["id"], copies[name]) for name in ("bytes", "way"))
        named = {
            name: self._named(part[name], f"ENUM_HCCL_{name.upper()}_TYPE") for name in ("transport", "link", "data")
        }
        ranks = {name: np.where(part[name] == _NONE, NO_ROW, part[name]) for name in ("source", "target")}
        return json_objects(
            {
                device_tasks.TASK_TYPE: quoted(self._text(cells["type"])),
                "Task Id": cells["task"], "Subtask Id": cells["part"],
                device_tasks.PART_TYPE: quoted(self._text(part["part_type"])),
                device_tasks.OWN_RANK: ranks["source"], device_tasks.OTHER_RANK: ranks["target"],
                **{f"{name} type": quoted(texts) for name, texts in named.items()},
                device_tasks.PART_BYTES: part["bytes"], device_tasks.COPY_BYTES: size,
                "direction": quoted(self._named(way, "ENUM_MEMCPY_OPERATION")),
            }
        )  # fmt: skip

    def _operators_of(self, connection: IntArray) -> IntArray:
        """Return the ids of the operators that made the calls with these connection ids, or -1. Of several operators,
        it is the one that began last."""
        links, operators = self._links, self._operators
        order = np.argsort(-operators["start_ns"], kind="stable")
        began = first_match(links["id"], operators["link"][order], operators["start_ns"][order])
        latest = np.argsort(-began, kind="stable")
        latest = latest[began[latest] >= 0]
        return first_match(connection, links["connection"][latest], links["id"][latest])

    def _timed(self, table: str, keys: Mapping[str, str]) -> dict[str, IntArray]:
        """Return integer columns of a table, and the times of its rows. Rows without times are counted and left out."""
        self._read.add(table)
        cells = self._columns(table, {**keys, "start_ns": "startNs", "end_ns": "endNs"})
        timed = (cells["start_ns"] > 0) & (cells["end_ns"] >= cells["start_ns"])
        self._timed_rows += int(timed.sum())
        if timed.all():
            return cells
        self._untimed[table] = int((~timed).sum())
        return {name: values[timed] for name, values in cells.items()}

    def _columns(self, table: str, keys: Mapping[str, str]) -> dict[str, IntArray]:
        """Return integer columns of a table by their keys, shape (rows,), with -1 for null."""
        known = self._cells.setdefault(table, {})
        if new := set(keys.values()) - known.keys():
            if table in self._database.columns:
                absent = new - self._database.columns[table].keys() - _LATER
                self._absent += [f"{table}.{name}" for name in sorted(absent)]
            known |= self._database.integers(table, {name: name for name in new})
        return {key: known[name] for key, name in keys.items()}

    def _text(self, ids: IntArray, missing: str | None = None) -> pa.DictionaryArray:
        """Return the texts of ids, null for unknown ids and for the text ``missing``."""
        code, first = distinct([ids], len(ids))
        at = first_match(ids[first], self._ids, np.arange(len(self._ids)))
        unknown = (at == NO_ROW) & (ids[first] >= 0) & (ids[first] != _NONE)
        self._lost[_STRINGS] += int(unknown[code].sum()) if unknown.any() else 0
        values = self._texts.take(nullable(at)).to_pylist()
        return encoded([None if value == missing else value for value in values], code)

    def _named(self, numbers: IntArray, enum: str) -> pa.DictionaryArray:
        """Return the names of numbers, null for unknown numbers."""
        names = self._enums[enum]
        code, first = distinct([numbers], len(numbers))
        used = numbers[first].tolist()
        unknown = np.array([0 <= number != _NONE and number not in names for number in used], np.bool_)
        self._lost[enum] += int(unknown[code].sum()) if unknown.any() else 0
        return encoded([names.get(number) for number in used], code)

    def _refer(self, table: str, keys: IntArray, targets: IntArray, counts: IntArray | int = 1) -> None:
        """Add up the ``counts`` of the keys that the rows of a table with the keys ``targets`` lack."""
        missing = (first_match(keys, targets, targets) == NO_ROW) & (keys >= 0) & (keys != _NONE)
        self._lost[table] += int((counts * missing).sum())

    def _stacks(self, chains: IntArray) -> pa.DictionaryArray:
        """Return the stacks with these ids, innermost frame first."""
        cells = self._columns("PYTORCH_CALLCHAINS", {"id": "id", "frame": "stack", "depth": "stackDepth"})
        order = by_time(cells["id"], -cells["depth"])  # by id, then by depth
        ids, frames = (cells[name] if order is None else cells[name][order] for name in ("id", "frame"))
        codes, texts = to_codes([self._text(frames)], len(frames))
        texts = [*texts, ""]
        first = np.flatnonzero(np.diff(ids, prepend=-2))
        length = np.diff(first, append=len(ids))
        self._refer("PYTORCH_CALLCHAINS", chains, ids[first])
        self._refer("PYTORCH_API", ids[first], chains, length)
        # Many chains are alike. Each has a number: that of the chain without its last frame, with this frame.
        of_chain, longest = np.zeros(len(first), np.int64), int(length.max(initial=0))
        for depth in range(longest):
            frame = np.where(depth < length, codes[np.minimum(first + depth, len(codes) - 1)], -2)
            of_chain, _ = distinct([of_chain, frame], len(first))
        _, alike = distinct([of_chain], len(first))
        stacks = [
            ";".join(filter(None, (texts[code] for code in codes[begin:end].tolist())))
            for begin, end in zip(first[alike].tolist(), (first + length)[alike].tolist(), strict=True)
        ]
        return encoded(stacks, first_match(chains, ids[first], of_chain))

    def _table(self, cells: Mapping[str, Any], columns: dict[str, Any]) -> pa.Table:
        same = np.zeros(len(cells["start_ns"]), np.int64)
        duration = cells["end_ns"] - cells["start_ns"]
        columns = {"start_ns": nullable(cells["start_ns"]), "dur_ns": nullable(duration), **columns}
        if "correlation" in cells:
            columns["correlation"] = nullable(cells["correlation"])
        if "device" in cells:
            columns |= {"kind": encoded([schema.UNKNOWN], same), "device": device_names(cells["device"]),
                        EXTERNAL: nullable(self._operators_of(cells["correlation"]))}  # fmt: skip
        if "thread" in cells:
            thread = cells["thread"]
            tid = np.where(thread >= 0, thread & (2**32 - 1), NO_ROW)
            columns |= {"pid": nullable(thread >> 32), "tid": nullable(tid), "device": encoded([schema.CPU], same)}
        if columns["name"].null_count:
            columns["name"] = pc.fill_null(columns["name"].cast(pa.string()), "unnamed").dictionary_encode()
        return pa.table({name: column.cast(RECORDED_TYPES[name]) for name, column in columns.items()})
