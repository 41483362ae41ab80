"""The tables of an export that hold events, and the meaning of their rows.

Names and kinds are those that framework profilers use for the same events, so that recordings of both can be compared.

Nsight Systems demangles in its own way: ``void scale<(int)4, float>(T2 *, T2)`` instead of
``void scale<4, float>(float*, float)``. :func:`gnu_name` returns the spelling of GNU's demangler, which framework
profilers use. The mangled names are not demangled here: a native demangler must not run on names in a file, which may
be hostile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final, NamedTuple

from perfkit_core.plugins.frameworks import RangeMeaning
from perfkit_core.readers.sqlite_file import Database, SqliteFormat
from perfkit_core.trace.model import schema

FORMAT: Final = SqliteFormat(
    lambda tables: (
        "StringTable" not in tables  # nvprof's files have other tables with names of CUPTI
        and any(name.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")) for name in tables)
    ),
    "not an export of Nsight Systems: it has no table of CUDA or NVTX events",
    "perfkit reads files that nsys export --type sqlite wrote",
    hint="export the report again: nsys export --type sqlite REPORT.nsys-rep",
)
LOW_BITS: Final = (1 << 24) - 1
"""A ``globalTid`` holds the thread in its lower 24 bits, the process id in the next 24, and the machine above them."""
NO_STREAM: Final = 2**32 - 1
"""The stream of a synchronisation with a complete context."""


def texts_of(database: Database, table: str, column: str) -> dict[int, str]:
    """Return the texts to which a column of ids refers."""
    if column not in database.columns.get(table, ()):
        return {}
    used = f'WHERE {{id}} IN (SELECT "{column}" FROM "{table}")'
    return {key: value for key, value in database.rows("StringIds", "{id}, CAST({value} AS TEXT)", used) if value}


_HOST: Final = {"process": "{globalTid} >> 24", "tid": "{globalTid} & 16777215"}
_DEVICE: Final = {
    "process": "{globalPid} >> 24",
    "device": "{deviceId}",
    "context": "{contextId}",
    "stream": f"NULLIF({{streamId}}, {NO_STREAM})",
}
_CALL: Final = {"correlation": "NULLIF({correlationId}, 0)"}  # older exports write 0 instead of null
_TIMES: Final = {"start": "{start}", "end": "{end}"}


def _json(**values: str) -> str:
    """Return SQL for a JSON object without the values that are null; for null if all are null."""
    parts = (f"COALESCE(',\"{key.replace('_', ' ')}\":' || {value}, '')" for key, value in values.items())
    return "NULLIF('{{' || SUBSTR(" + " || ".join(parts) + ", 2) || '}}', '{{}}')"


def _integer(column: str) -> str:
    return f"CAST({{{column}}} AS INTEGER)"  # a hostile file may hold text in any column


def _size(name: str) -> str:
    x, y, z = (_integer(name + axis) for axis in "XYZ")
    return f"'[' || {x} || ',' || {y} || ',' || {z} || ']'"


_NODE: Final = {"graph_node_id": f"NULLIF({_integer('graphNodeId')}, 0)"}
_LAUNCH: Final = {
    "context": _integer("contextId"),
    "registers_per_thread": _integer("registersPerThread"),
    "shared_memory": f"({_integer('staticSharedMemory')} + {_integer('dynamicSharedMemory')})",
    "grid": _size("grid"),
    "block": _size("block"),
    "graph_id": f"NULLIF({_integer('graphId')}, 0)",
}


class EventTable(NamedTuple):
    """A table of events. ``cells`` maps columns to SQL. ``key`` holds the columns that decide what an event means."""

    name: str
    category: str
    cells: Mapping[str, str]
    key: tuple[str, ...]
    where: str = "{start} IS NOT NULL AND {end} IS NOT NULL"


class Meaning(NamedTuple):
    """The columns of an event that follow from its name or its codes."""

    name: str
    kind: str
    phase: str | None = None
    step: int | None = None
    sequence: int | None = None
    shapes: str | None = None
    copy_kind: str | None = None
    category: str | None = None  # instead of the table's


_PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
KERNELS: Final = EventTable(
    f"{_PREFIX}KERNEL", "kernel",
    {**_DEVICE, **_CALL, **_TIMES, "name": "COALESCE({demangledName}, {shortName})", "args": _json(**_LAUNCH, **_NODE)},
    ("name",),
)  # fmt: skip
GRAPHS: Final = EventTable(
    f"{_PREFIX}GRAPH_TRACE", "graph_trace",
    {**_DEVICE, **_CALL, **_TIMES, "graph": "{graphId}",
     "args": _json(graph_id=_integer("graphId"), graph_exec_id=_integer("graphExecId"))},
    ("graph",),
)  # fmt: skip
COPIES: Final = EventTable(
    f"{_PREFIX}MEMCPY", "memcpy",
    {**_DEVICE, **_CALL, **_TIMES, "bytes": "{bytes}", "copy": "{copyKind}", "source": "{srcKind}",
     "target": "{dstKind}", "args": _json(**_NODE)},
    ("copy", "source", "target"),
)  # fmt: skip
FILLS: Final = EventTable(
    f"{_PREFIX}MEMSET", "memset",
    {**_DEVICE, **_CALL, **_TIMES, "bytes": "{bytes}", "memory": "{memKind}", "args": _json(**_NODE)},
    ("memory",),
)  # fmt: skip
SYNCS: Final = EventTable(
    f"{_PREFIX}SYNCHRONIZATION", "synchronization", {**_DEVICE, **_CALL, **_TIMES, "sync": "{syncType}"}, ("sync",)
)
_NAMED: Final = {**_HOST, **_TIMES, "name": "{nameId}"}
CALLS: Final = EventTable(f"{_PREFIX}RUNTIME", "cuda_runtime", {**_NAMED, **_CALL}, ("name",))
_OVERHEADS: Final = (f"{_PREFIX}OVERHEAD", "PROFILER_OVERHEAD")
OVERHEADS: Final = tuple(EventTable(name, "overhead", _NAMED, ("name",)) for name in _OVERHEADS)
LIBRARIES: Final = tuple(EventTable(f"{name.upper()}_EVENTS", name, _NAMED, ("name",)) for name in ("cudnn", "cublas"))
MARK: Final = (34, 65)
PUSH_POP: Final = (59, 70)
START_END: Final = (60, 71)
DOMAIN: Final = 75
"""Values of ``eventType`` in NVTX_EVENTS. The second number of a pair is for events from a text file."""
_RANGE: Final = f"COALESCE({{eventType}}, {PUSH_POP[0]}) IN {(*PUSH_POP, *START_END)}"
_OPEN: Final = "({end} IS NULL OR ({end} = 0 AND {start} > 0))"  # older exports write 0 instead of null
RANGES: Final = EventTable(
    "NVTX_EVENTS", "nvtx",
    # a range that another thread ended belongs to no thread
    {**_HOST, "tid": "CASE WHEN {endGlobalTid} <> {globalTid} THEN NULL ELSE {globalTid} & 16777215 END",
     "start": "{start}", "end": f"CASE WHEN {{eventType}} IN {MARK} THEN {{start}} ELSE {{end}} END",
     "type": "{eventType}", "text": "NULLIF(CAST({text} AS TEXT), '')", "name": "{textId}", "domain": "{domainId}"},
    ("type", "text", "name", "process", "domain"),
    f"{{start}} IS NOT NULL AND ({{eventType}} IN {MARK} OR ({_RANGE} AND NOT {_OPEN}))",
)  # fmt: skip
UNENDED: Final = f"{_RANGE} AND {_OPEN}"
DEVICE_TABLES: Final = (KERNELS, GRAPHS, COPIES, FILLS)
TABLES: Final = (*DEVICE_TABLES, SYNCS, CALLS, *OVERHEADS, *LIBRARIES, RANGES)

_COPIES: Final = {
    0: "Unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host",
    5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host",
    10: "Peer-to-Peer", 11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
_MEMORY: Final = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
                  6: "Managed Static", 7: "Unknown"}  # fmt: skip
"""Labels of older exports, which lack the tables of labels."""
_SYNCS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Names that CUPTI's activity records have in framework profilers."""
_WAITS: Final = re.compile(r"cu(?:da)?[A-Z]\w*Synchronize")
_VERSION: Final = re.compile(r"_v\d{4,5}$")
"""Matches the version of a runtime call. Short numbers, as in ``cuMemcpyHtoDAsync_v2``, are part of a driver call."""
_DIRECTION: Final = re.compile(r"([A-Z])\w*-to-([A-Z])")


class Meanings:
    """Interprets the rows of an export. ``matched`` counts the ranges that each framework wrote."""

    def __init__(self, database: Database, dialects: Mapping[str, Callable[[str], RangeMeaning | None]]) -> None:
        self.matched: Counter[str] = Counter()
        self._database, self._dialects = database, dialects
        self._copies = _COPIES | dict(database.rows("ENUM_CUDA_MEMCPY_OPER", "{id}, CAST({label} AS TEXT)"))
        self._memory = _MEMORY | dict(database.rows("ENUM_CUDA_MEM_KIND", "{id}, CAST({label} AS TEXT)"))
        domains = database.rows("NVTX_EVENTS", "{globalTid} >> 24, {domainId}, CAST({text} AS TEXT), {textId}",
                                f"WHERE {{eventType}} = {DOMAIN}")  # fmt: skip
        self._texts = texts_of(database, "NVTX_EVENTS", "textId")
        self._domains = {(process, domain): text or self._texts.get(name) for process, domain, text, name in domains}

    def of(self, table: EventTable) -> Callable[..., Meaning]:
        """Return the function that maps the cells of ``table.key`` to the meaning of a row."""
        if table is RANGES:  # without a cache, because each text may be different
            return self._range
        texts = texts_of(self._database, table.name, "nameId")
        kernels = {
            **texts_of(self._database, table.name, "shortName"),
            **texts_of(self._database, table.name, "demangledName"),
        }
        makers: dict[str, Callable[..., Meaning]] = {
            "kernel": lambda name: Meaning(gnu_name(kernels.get(name) or "unnamed kernel"), schema.KERNEL),
            "graph_trace": lambda graph: Meaning(f"CUDA graph {graph or ''}".rstrip(), schema.KERNEL),
            "memcpy": self._copy,
            "memset": lambda kind: Meaning(f"Memset ({self._memory.get(kind) or 'Unknown'})", schema.MEMSET),
            "synchronization": lambda kind: Meaning(_SYNCS.get(kind, "Sync"), schema.SYNC),
            "cuda_runtime": lambda name: _call(texts.get(name) or "unnamed call"),
            "overhead": lambda name: Meaning(texts.get(name) or "overhead", schema.OVERHEAD),
        }
        library = partial(_label, texts)
        return cache(makers.get(table.category, library))

    def domain(self, process: int | None, domain: int | None) -> str | None:
        """Return the name of an NVTX domain, or None for the default domain."""
        return self._domains.get((process, domain)) if domain else None

    def _copy(self, copy: int | None, source: int | None, target: int | None) -> Meaning:
        match = _DIRECTION.search(self._copies.get(copy or 0) or "")
        direction = f"{match[1]}to{match[2]}" if match else None
        kinds = ["Unknown" if kind is None else self._memory.get(kind) or "Unknown" for kind in (source, target)]
        name = f"Memcpy {direction or 'Unknown'}"
        if source is not None or target is not None:
            name += f" ({kinds[0]} -> {kinds[1]})"
        host = next((kind.lower() for kind in kinds if kind in ("Pageable", "Pinned")), None)
        return Meaning(name, schema.MEMCPY, copy_kind=f"{direction} {host}" if direction and host else direction)

    def _range(self, event: int | None, text: str | None, name: int | None, process: int | None, domain: int | None
               ) -> Meaning:  # fmt: skip
        text = text or self._texts.get(name or -1) or "unnamed range"
        if not domain and event not in (*MARK, *START_END):  # frameworks push and pop ranges in the default domain
            for framework, meaning in self._dialects.items():
                fields = meaning(text)
                if fields is not None:
                    self.matched[framework] += 1
                    return Meaning(*fields)
        return Meaning(text, schema.ANNOTATION)


def _call(name: str) -> Meaning:
    name = _VERSION.sub("", name)
    driver = "cuda_driver" if name.startswith("cu") and name[2:3].isupper() else None
    return Meaning(name, schema.SYNC if _WAITS.match(name) else schema.RUNTIME, category=driver)


def _label(texts: Mapping[int, str], name: int | None) -> Meaning:
    return Meaning(texts.get(name or -1) or "unnamed call", schema.ANNOTATION)


_MOST_CHARACTERS: Final = 1 << 14
"""Longest name that is respelled. It also limits the result, because a template's arguments are repeated."""
_DEEPEST: Final = 64
_ANONYMOUS, _CALL_OPERATOR = "\x01", "\x02"  # stand for texts whose brackets do not nest
_SUFFIXES: Final = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "long long": "ll",
                    "unsigned long long": "ull"}  # fmt: skip
_LITERAL: Final = re.compile(r"\((bool|" + "|".join(sorted(_SUFFIXES, key=len, reverse=True)) + r")\)(-?\d+)")
_LAMBDA_END: Final = re.compile(r" \(instance (\d{1,9})\)\]")
_PARAMETER: Final = re.compile(r"\bT(\d{1,4})\b")
_LOCAL: Final = re.compile(r"\)(?: const)?::")
_BRACKETS: Final = re.compile(r"[<>(),]")


def gnu_name(name: str) -> str:
    """Return the name in GNU's spelling. A name that is no C++ signature, or too long, is returned unchanged."""
    if "<" not in name or len(name) > _MOST_CHARACTERS:
        return name
    text = name.replace("<unnamed>", _ANONYMOUS).replace("operator ()", _CALL_OPERATOR)
    text = _LAMBDA_END.sub(r"#\1}", _LITERAL.sub(_literal, text.replace("[lambda(", "{lambda(")))
    try:
        (signature,), _ = _arguments(text, 0, (), 0)
    except ValueError:
        return name
    return signature.replace(_ANONYMOUS, "(anonymous namespace)").replace(_CALL_OPERATOR, "operator()")


def _literal(match: re.Match[str]) -> str:
    kind, value = match.groups()
    return ("false", "true")[value != "0"] if kind == "bool" else value + _SUFFIXES[kind]


def _arguments(text: str, at: int, outer: tuple[str, ...], depth: int) -> tuple[tuple[str, ...], int]:
    """Read a list of types from ``at`` to its closing bracket. Return the respelled types, and the place after the
    bracket. ``T1`` stands for ``outer[0]``. Raises ValueError for unbalanced brackets and for a result that is too long
    or nested too deep."""
    done: list[str] = []
    piece, size = "", 0
    template: tuple[str, ...] = ()
    while True:
        match = _BRACKETS.search(text, at)
        end = match.start() if match else len(text)
        piece += _PARAMETER.sub(lambda parameter: _template_argument(parameter, outer), text[at:end])
        sign, at = text[end : end + 1], end + 1
        if size + len(piece) > _MOST_CHARACTERS or depth > _DEEPEST:
            raise ValueError
        if sign == "<":
            template, at = _arguments(text, at, outer, depth + 1)
            inside = ", ".join(template)
            piece += f"<{inside}{' ' * inside.endswith('>')}>"
        elif sign == "(":
            # the parameters of a function refer to the arguments of the template before them
            inner, at = _arguments(text, at, template if text[end - 1 : end] == ">" else outer, depth + 1)
            piece += f"({', '.join(inner)})"
        elif sign != "," and bool(sign) != bool(depth):  # unbalanced
            raise ValueError
        else:
            done.append(_type(piece.strip() if done else piece, depth))
            size += len(piece)
            if sign != ",":
                return tuple(done) if done != [""] else (), at
            piece, template = "", ()


def _template_argument(parameter: re.Match[str], arguments: tuple[str, ...]) -> str:
    number = int(parameter[1])
    return arguments[number - 1] if 0 < number <= len(arguments) else parameter[0]


def _type(text: str, depth: int) -> str:
    """Return ``T const&`` for ``const T &``. A local function loses its return type, unless it is the kernel itself."""
    text = text.replace(" *", "*").replace(" &", "&")
    if depth and text.startswith("void ") and _LOCAL.search(text):
        text = text.removeprefix("void ")
    if not text.startswith("const "):
        return text
    base = text.removeprefix("const ")
    nested = 0
    for position, sign in enumerate(base):
        nested += (sign in "<({") - (sign in ">)}")
        if sign in "*&" and not nested:
            return f"{base[:position]} const{base[position:]}"
    return base + " const"
