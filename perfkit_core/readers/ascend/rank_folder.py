"""The folder ``NAME_ascend_pt`` that Ascend's profiler writes for each rank, and the tables in it."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from perfkit_core.base.algorithms.decimals import to_ns
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.base.system.paths import is_folder
from perfkit_core.errors import SourceError
from perfkit_core.readers.ascend import arguments
from perfkit_core.readers.ascend.allocations import ALLOCATIONS
from perfkit_core.readers.ascend.database_columns import mapped
from perfkit_core.readers.ascend.device_tasks import DETAILS
from perfkit_core.readers.chrome.dialect import integer
from perfkit_core.readers.sqlite_file import damaged_tables
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage.bytestream import DAMAGED, open_bytes

OUTPUT: Final = "ASCEND_PROFILER_OUTPUT"
"""Folder with the tables that the vendor computed from a recording."""
SUFFIX: Final = "_ascend_pt"
DATABASES: Final = "ascend_pytorch_profiler*.db"
TRACES: Final = ("trace_view.json", "trace_view.json.gz")
_INFO: Final = re.compile(r"profiler_info(?:_(\d{1,7}))?\.json")
_RAW: Final = re.compile(r"(?:^|_)PROF_\d+_\d+_[A-Z]+$")
"""Names of folders with what the profiler records on the device, before it is analysed."""
_RANK: Final = re.compile(r"^rank_?(\d{1,7})_ascend_pt$")
_METADATA: Final = "profiler_metadata.json"
_MOST_BYTES: Final = 1 << 30
_REMOVE: Final = "remove the file to read the others without it"
_OPTIONS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_SETTINGS: Final = ("_profiler_level", "_aic_metrics", "_l2_cache", "_msprof_tx")
_KIB, _MIB = 1 << 10, 1 << 20
_ANALYSE: Final = "run torch_npu.profiler.profiler.analyse(FOLDER)"
_NOT_ANALYSED: Final = f"the recording was not analysed yet: {_ANALYSE}, which writes {OUTPUT}/{TRACES[0]}"
_ONLY_SUMS: Final = f"{OUTPUT} has only tables of the vendor, but not the events: copy the whole folder, or {_ANALYSE}"


def versions(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if key.endswith("version") and isinstance(value, str)}


def groups(metadata: Mapping[str, Any]) -> dict[str, tuple[str | None, list[int]]]:
    """Return the purpose and the ranks of each process group, by the vendor's name."""
    stated = metadata.get("parallel_group_info")
    return {
        name: (group.get("group_name"), group["global_ranks"])
        for name, group in (stated.items() if isinstance(stated, dict) else ())
        if isinstance(group, dict)
        and isinstance(group.get("global_ranks"), list)
        and all(type(rank) is int and 0 <= rank < 1 << 31 for rank in group["global_ranks"])
    }


def world_size(metadata: Mapping[str, Any]) -> int | None:
    """Return the number of ranks of the job, None if it is not recorded."""
    stated = metadata.get("distributed_args")
    size = integer(stated.get("world_size")) if isinstance(stated, dict) else None
    sizes = [len(ranks) for purpose, ranks in groups(metadata).values() if purpose == "default_group"]
    return size if size is not None and size > 0 else max(sizes, default=None)


def files(folder: Path) -> list[Path]:
    """Return the file with the events of each rank in a folder: the folder of a rank, or one that holds such folders.
    Return [] for other folders. Raises SourceError for a recording that was not analysed."""
    if folder.name == OUTPUT:
        ranks = [folder.parent]
    elif folder.name.endswith(SUFFIX) or is_folder(folder / OUTPUT) or _RAW.search(folder.name):
        ranks = [folder]
    else:
        ranks = sorted(child for child in folder.iterdir() if child.name.endswith(SUFFIX) and is_folder(child))
    return [recording for rank in ranks for recording in RankFolder(rank).recordings()]


class RankFolder:
    """The folder of one rank. Files that it lacks count as empty. If ``partial`` is set, damaged files are read as far
    as possible, and are named in ``damaged``; otherwise they raise SourceError."""

    def __init__(self, path: Path, partial: bool = False) -> None:
        self.path, self.partial = path, partial
        self.damaged: dict[str, None] = {}

    @classmethod
    def around(cls, file: Path, partial: bool = False) -> RankFolder | None:
        """Return the folder to which a file belongs, None if it was taken out of it."""
        return cls(file.parent.parent, partial) if file.parent.name == OUTPUT else None

    def recordings(self) -> list[Path]:
        """Return the file with the events: a database, which is exact, or else the text. A folder may have the
        databases of several ranks. Raises SourceError."""
        for name in (DATABASES, f"{DATABASES}.gz", *TRACES):
            if files_of_kind := sorted((self.path / OUTPUT).glob(name)):
                return files_of_kind
        hint = _ONLY_SUMS if any((self.path / OUTPUT).glob("*.[dcj]*")) else _NOT_ANALYSED
        raise SourceError(f"{self.path}: no {TRACES[0]} and no {DATABASES} in {OUTPUT}", hint)

    @functools.cached_property
    def rank(self) -> int | None:
        """The rank of the process, None if it is not recorded."""
        return next(iter(self.ranks.values()), None)

    @functools.cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of the process in the settings, and in the names of the settings and of the folder. The first one
        is taken."""
        named = ((name, match[1]) for name in self._names if (match := _INFO.fullmatch(name)))
        folder = _RANK.search(self.path.name)
        found = [("rank_id", self._info.get("rank_id")), *named, (self.path.name, folder[1] if folder else None)]
        numbers = {name: integer(value) for name, value in found}
        return {name: number for name, number in numbers.items() if number is not None and number >= 0}

    @functools.cached_property
    def options(self) -> dict[str, bool]:
        """The options of the profiler that perfkit stores."""
        config = self._section("common_config")
        return {key: config[key] for key in _OPTIONS if isinstance(config.get(key), bool)}

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The level of the recording, other settings that decide what it contains, and versions of the software."""
        config = self._section("experimental_config")
        settings = {key.strip("_"): config[key] for key in _SETTINGS if config.get(key) is not None}
        return settings | versions({**self._info, **self.metadata})

    @functools.cached_property
    def kernels(self) -> pa.Table | None:
        """The vendor's table of kernels (:data:`~perfkit_core.readers.ascend.device_tasks.DETAILS`)."""
        return self._table("kernel_details.csv", kernel_columns, DETAILS)

    @functools.cached_property
    def allocations(self) -> pa.Table | None:
        """The vendor's table of allocations (:data:`~perfkit_core.readers.ascend.memory.ALLOCATIONS`)."""
        return self._table("operator_memory.csv", allocation_columns, ALLOCATIONS)

    @functools.cached_property
    def _names(self) -> list[str]:
        return sorted(file.name for file in self.path.glob("profiler_*.json"))

    @functools.cached_property
    def _info(self) -> Mapping[str, Any]:
        return next((self._json(name) for name in self._names if _INFO.fullmatch(name)), {})

    @functools.cached_property
    def metadata(self) -> Mapping[str, Any]:
        """What the program states about the recording."""
        return self._json(_METADATA) if _METADATA in self._names else {}

    def findings(self) -> list[Finding]:
        """Return the warning about damaged files, of those that were read until now."""
        return damaged_tables(self.damaged)

    def _section(self, name: str) -> Mapping[str, Any]:
        config = self._info.get("config")
        section = config.get(name) if isinstance(config, dict) else None
        return section if isinstance(section, dict) else {}

    def _json(self, name: str) -> Mapping[str, Any]:
        path = self.path / name
        try:
            content = decode_json(_content(path).decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            if not self.partial:
                raise SourceError(f"{path}: not JSON ({error})", _REMOVE) from None
            self.damaged[name] = None
            return {}
        return content if isinstance(content, dict) else {}

    def _table(self, name: str, columns: Callable[[pa.Table], Mapping[str, Any]], schema: pa.Schema) -> pa.Table | None:
        """Return the ``columns`` of a table, or None if the folder lacks it. Raises SourceError if it is damaged."""
        path = next((file for end in ("", ".gz") if (file := self.path / OUTPUT / f"{name}{end}").exists()), None)
        if path is None:
            return None
        for intact in (False, True):  # if it is damaged, its intact rows
            try:
                cells = columns(_cells(path, intact))
                return pa.table([cells[field.name].cast(field.type) for field in schema], schema)
            except SourceError:
                if not self.partial:
                    raise
                self.damaged[name] = None
        return None


def _cells(path: Path, intact: bool) -> pa.Table:
    """Return a table with columns of text. If ``intact`` is set, leave out rows that are damaged or have no end. Raises
    SourceError."""
    content = _content(path)
    if not content.strip():
        raise _unreadable(path, "the file is empty")
    parsing = pv.ParseOptions(newlines_in_values=True, invalid_row_handler=(lambda row: "skip") if intact else None)
    try:
        header = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
        names = next(filter(None, csv.reader(header)), [])  # to read only them, Arrow would convert a block
        types = pv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True,
                                  null_values=["", "N/A"], quoted_strings_can_be_null=True)  # fmt: skip
        whole = content[: content.rfind(b"\n") + 1] if intact else content
        table = pv.read_csv(pa.BufferReader(whole), parse_options=parsing, convert_options=types)
        return table.replace_schema_metadata({_FILE: str(path)})
    except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, str(error).splitlines()[0][:200]) from None


def kernel_columns(table: pa.Table) -> dict[str, Any]:
    """Return the columns of DETAILS. Raises SourceError."""
    duration = _times(table, "Duration(us)", needed=True)
    blocks = "Block Dim" if "Block Dim" in table.column_names else "Block Num"
    return {
        "start_ns": _times(table, "Start Time(us)", needed=True),
        "dur_ns": pc.if_else(pc.less(duration, 0), None, duration), "name": _texts(table, "Name", needed=True),
        "type": _texts(table, "Type"), "core": _texts(table, "Accelerator Core"),
        "wait_ns": _times(table, "Wait Time(us)"), "blocks": _sizes(table, blocks, 1),
        "shapes": _mapped(_texts(table, "Input Shapes"), arguments.shapes),
        "dtypes": _mapped(_texts(table, "Input Data Types"), arguments.types),
    }  # fmt: skip


def allocation_columns(table: pa.Table) -> dict[str, Any]:
    """Return the columns of ALLOCATIONS. Raises SourceError."""
    sizes = {
        f"{when}_{what}": _sizes(table, f"{when.capitalize()} Total {what.capitalize()}(MB)", _MIB)
        for when in ("allocation", "release") for what in ("allocated", "reserved")
    }  # fmt: skip
    return {
        "name": _texts(table, "Name", needed=True), "bytes": _sizes(table, "Size(KB)", _KIB, needed=True),
        "allocation_ns": _times(table, "Allocation Time(us)", needed=True),
        "release_ns": _times(table, "Release Time(us)"), "stream": _texts(table, "Stream Ptr"),
        "device": pc.utf8_lower(_texts(table, "Device Type")), **sizes,
    }  # fmt: skip


_FILE: Final = b"file"
"""Key of the metadata of a table."""


def _unreadable(file: Path | str | None, problem: str) -> SourceError:
    text = f"{file}: not a readable table ({problem})"
    return SourceError(text, "let the profiler analyse the recording again, or read what is intact with --partial")


def _content(path: Path) -> bytes:
    try:
        with open_bytes(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except DAMAGED as error:
        raise SourceError(f"{path}: damaged or truncated data ({error})", "copy the file again") from None
    if len(content) > _MOST_BYTES:
        raise SourceError(f"{path}: more than {_MOST_BYTES >> 30} GiB", _REMOVE)
    return content


def _texts(table: pa.Table, name: str, needed: bool = False) -> pa.ChunkedArray:
    at = table.schema.get_field_index(name)  # -1 also if there are several
    if at < 0:
        if needed and len(table):
            count = table.column_names.count(name)
            problem = f"the column {name} exists {count} times" if count else f"it has no column {name}"
            raise _unreadable(table.schema.metadata[_FILE].decode(), problem)
        return pa.chunked_array([pa.nulls(len(table), pa.string())])
    column = pc.utf8_trim_whitespace(table.column(at))
    return pc.if_else(pc.is_in(column, pa.array(["", "N/A"])), None, column)


def _times(table: pa.Table, name: str, needed: bool = False) -> pa.Array:
    """Return times in µs, which are texts, in ns."""
    column = _texts(table, name, needed)
    try:
        times = to_ns(column.to_pylist(), lambda at: f", row {at + 1} of the column {name}")
    except SourceError as error:
        raise _unreadable(table.schema.metadata[_FILE].decode(), error.message) from None
    return pc.if_else(pc.is_valid(column).combine_chunks(), pa.array(times), None)


def _sizes(table: pa.Table, name: str, unit: int, needed: bool = False) -> pa.Array:
    column = _texts(table, name, needed)
    plain = pc.if_else(pc.match_substring_regex(column, r"^-?\d{1,12}(\.\d+)?([eE]-\d{1,3})?$"), column, None)
    for wrong in pc.unique(column.filter(pc.invert(pc.is_in(column, plain)))).to_pylist()[:1]:
        file = table.schema.metadata[_FILE].decode()
        raise _unreadable(file, f"{wrong[:40]!r} in the column {name} is not a number")
    return pc.cast(pc.round(pc.multiply(plain.cast(pa.float64()), float(unit))), pa.int64())


def _mapped(column: pa.ChunkedArray, meaning: Any) -> pa.Array:
    return mapped(column.combine_chunks().dictionary_encode(), meaning)
