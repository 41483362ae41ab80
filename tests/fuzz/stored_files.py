"""Stored runs and exported timelines: flipped bits, and cells that no version of perfkit writes."""

from __future__ import annotations

import copy
import functools
import json
import random
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.advice.engine import advise
from perfkit_core.api import summarize
from perfkit_core.errors import PerfkitError
from perfkit_core.exporters.export import export
from perfkit_core.pages.profile import run_report
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import as_profile
from perfkit_core.readers import run_folder
from perfkit_core.readers.load import load, stream
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import recorded_events, store, writer
from perfkit_core.trace.storage.stored_file import KEY, Stored
from tests.fuzz.target import FindingError, Target
from tests.support.device_steps import Op, training
from tests.support.paths import DATA
from tests.support.short_dictionaries import shorten
from tests.support.small_trace import small_trace

_EXTREME: Final = (-(2**63), -(2**62), -(10**12), -2, -1, 0, 1, 2, 7, 10**12, 2**31, 2**32, 2**53, 2**62, 2**63 - 1)
_TEXTS: Final = (
    "", "cpu", "cuda:0", "cuda:-1", "cuda:99999999999999999999", "step", "kernel", "memory", "operator", "[[1, 2]]",
    "[[", "[[9223372036854775807, 9223372036854775807]]", '{"a": 1}', "null", "[]", "x" * 5000, "\x00", "\u202e",
    "a;b;c", "HtoD", "forward", "nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "a.b.c", '["float"]',
    "1e999", "ProfilerStep#-1",
)  # fmt: skip


class FlippedBits(Target):
    """No flipped bit changes a table silently."""

    def __init__(self, folder: Path, stage: str) -> None:
        self.name, self._path = f"stored-bits-{stage}", folder / f"bits-{stage}.perfkit.parquet"
        self._stage = stage

    @functools.cached_property
    def _expected(self) -> tuple[bytes, Trace]:
        source = DATA / "torch-mlp.json.gz"
        if self._stage == "recorded":
            stream(source, self._path)
        else:
            store.write_trace(load(source), self._path)
        return self._path.read_bytes(), load(source)

    @property
    def seeds(self) -> Sequence[bytes]:
        return [self._expected[0]]

    def make(self, chance: random.Random) -> bytes:
        data = bytearray(self.seeds[0])
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        return bytes(data)

    def run(self, data: bytes) -> bool:
        self._path.write_bytes(data)
        try:
            found = run_folder.read_stored(self._path, check=True)
        except PerfkitError:
            return False
        expected = self._expected[1]
        if not found.events.equals(expected.events) or found.meta.devices != expected.meta.devices:
            raise FindingError("a table changed silently")
        return True


class _Changed(Target):
    """A file with wrong cells: all tables, the advice, the page and the exports are made, or refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @functools.cached_property
    def _traces(self) -> list[Trace]:
        product = Op("aten::mm", [("ampere_sgemm", 200)], [Op("aten::copy_", [("copy", 20)])])
        on_device = training(product, Op("aten::item", [("reduce", 5)]), Op("aten::add", [("add", 10)] * 3), steps=4)
        return [small_trace(), on_device, load(DATA / "torch-mlp.json.gz"), load(DATA / "paddle-mlp.pb")]

    @property
    def seeds(self) -> Sequence[bytes]:
        return [b"0"]

    def make(self, chance: random.Random) -> bytes:
        return str(chance.getrandbits(64)).encode()

    def run(self, data: bytes) -> bool:
        chance = random.Random(data)
        path = self.written(chance)
        try:
            _use_all(path, chance)
        except PerfkitError:
            return False
        return True

    @abstractmethod
    def written(self, chance: random.Random) -> Path:
        """Write a file with wrong cells, and return its path."""


class Cells(_Changed):
    """A stored run, whose checksums are right."""

    name = "stored-cells"

    def written(self, chance: random.Random) -> Path:
        path, trace = self._folder / "cells.perfkit.parquet", chance.choice(self._traces)
        stored = Stored(schema_version=schema.SCHEMA_VERSION, meta=trace.meta, quality=(), checksums=True)
        _write(trace.events, schema.SCHEMA, stored.json(), chance, path)
        return path


class RecordedCells(_Changed):
    """A stored recording that is not yet assembled."""

    name = "recorded-cells"

    @functools.cached_property
    def _files(self) -> list[Path]:
        files = [self._folder / f"recorded-{at}.perfkit.parquet" for at in range(3)]
        for name, file in zip(("torch-mlp.json.gz", "paddle-mlp.json.gz", "paddle-mlp.pb"), files, strict=True):
            stream(DATA / name, file)
        return files

    def written(self, chance: random.Random) -> Path:
        path, source = self._folder / "recorded.perfkit.parquet", chance.choice(self._files)
        _write(pq.read_table(source), recorded_events.SCHEMA, pq.read_metadata(source).metadata[KEY], chance, path)
        return path


class Timelines(_Changed):
    """An exported timeline with wrong values anywhere in its header or its events."""

    name = "timeline-cells"

    @functools.cached_property
    def _contents(self) -> list[dict[str, Any]]:
        path = self._folder / "exported.json"
        contents = []
        for trace in self._traces:
            export(trace, path, keep_host=True)
            contents.append(json.loads(path.read_bytes()))
        return contents

    def written(self, chance: random.Random) -> Path:
        content = copy.deepcopy(chance.choice(self._contents))
        for _ in range(chance.choice([1, 1, 2, 5])):
            holder: Any = content
            key: Any = chance.choice(["perfkit", "traceEvents", "traceEvents", "baseTimeNanoseconds"])
            while (inner := holder[key]) and isinstance(inner, (dict, list)) and chance.random() < 0.95:
                holder, key = inner, chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
            holder[key] = copy.deepcopy(chance.choice([*_EXTREME, *_TEXTS, None, True, 1.5, 2**64, [], {}, [[1]]]))
        path = self._folder / "timeline.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path


def _write(table: pa.Table, fields: pa.Schema, stored: bytes, chance: random.Random, path: Path) -> None:
    table = table.unify_dictionaries()
    for _ in range(chance.choice([1, 1, 2, 5])):
        column = chance.choice(fields)
        cells = table[column.name].to_pylist()
        few = chance.sample(range(len(cells)), min(len(cells), chance.choice([1, 1, 3, 50])))
        for row in few:
            cells[row] = _cell(column, cells, len(cells), chance)
        at = table.column_names.index(column.name)
        table = table.set_column(at, pa.field(column.name, column.type), pa.array(cells, column.type))
    table = table.replace_schema_metadata({KEY: stored})
    with path.open("wb") as file:
        writer.write(table, file, chance.choice([7, 100, 1 << 18]), writer.encoding(table.schema))
    if chance.random() < 0.1:
        texts = [field.name for field in fields if not pa.types.is_integer(field.type)]
        shorten(path, path, chance.choice(texts), chance.choice([1, 10, 5000]), chance.randrange(len(table)))


def _cell(column: pa.Field, cells: list[Any], rows: int, chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return None
    if chance.random() < 0.3:
        return chance.choice(cells)
    if not pa.types.is_integer(column.type):
        return chance.choice(_TEXTS)
    if column.name in ("parent", "launched_by") and chance.random() < 0.8:
        return chance.randrange(-1, rows)
    value = chance.choice(_EXTREME)
    return int(np.array(value).astype(column.type.to_pandas_dtype()))


def _use_all(path: Path, chance: random.Random) -> None:
    """Use the run in all ways. Each way may refuse it: the others are tried, too."""
    refused: PerfkitError | None = None
    trace = load(path)
    views = get_plugins().views()
    uses: list[Any] = [lambda name=name: summarize(trace, name) for name in chance.sample(sorted(views), 6)]
    uses += [lambda: advise(trace)] if chance.random() < 0.3 else []
    uses += [lambda: run_report(as_profile(trace))] if chance.random() < 0.1 else []
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for to in chance.sample(sorted(get_plugins().exporters()), 2):
            uses.append(lambda to=to: export(trace, Path(folder) / "out", to))
        for use in uses:
            try:
                use()
            except PerfkitError as error:
                refused = error
    if refused:
        raise refused
