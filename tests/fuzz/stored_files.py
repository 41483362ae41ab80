"""Stored runs: flipped bits, and cells that no version of perfkit writes, with correct checksums."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core.advice.engine import advise
from perfkit_core.api import summarize
from perfkit_core.errors import PerfkitError
from perfkit_core.exporters.export import export
from perfkit_core.model import schema
from perfkit_core.model.trace import Trace
from perfkit_core.pages.profile import run_report
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import as_profile
from perfkit_core.readers.load import load, stream
from perfkit_core.storage import store, writer
from perfkit_core.storage.stored_file import KEY, Stored
from tests.fuzz.target import FindingError, Target
from tests.support.device_steps import Op, training
from tests.support.paths import DATA
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
            found = store.read_stored(self._path, whole=True)
        except PerfkitError:
            return False
        expected = self._expected[1]
        if not found.events.equals(expected.events) or found.meta.devices != expected.meta.devices:
            raise FindingError("a table changed silently")
        return True


class Cells(Target):
    """A run whose cells and references are wrong, but whose checksums are right: all tables, the advice, the page and
    the exports are made, or refused."""

    name = "stored-cells"

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
        trace = chance.choice(self._traces)
        path = self._folder / "cells.perfkit.parquet"
        _write(trace, chance, path)
        try:
            _use_all(path, chance)
        except PerfkitError:
            return False
        return True


def _write(trace: Trace, chance: random.Random, path: Path) -> None:
    table = trace.events.unify_dictionaries()
    for _ in range(chance.choice([1, 1, 2, 5])):
        column = chance.choice(schema.COLUMNS)
        cells = table[column.name].to_pylist()
        few = chance.sample(range(len(cells)), min(len(cells), chance.choice([1, 1, 3, 50])))
        for row in few:
            cells[row] = _cell(column, cells, len(cells), chance)
        at = schema.COLUMN_NAMES.index(column.name)
        table = table.set_column(at, pa.field(column.name, column.type), pa.array(cells, column.type))
    told = Stored(schema_version=schema.SCHEMA_VERSION, meta=trace.meta, quality=(), checksums=True)
    table = table.replace_schema_metadata({KEY: told.json()})
    with path.open("wb") as file:
        writer.write(table, file, chance.choice([7, 100, 1 << 18]), writer.encoding(table.schema))


def _cell(column: schema.Column, cells: list[Any], rows: int, chance: random.Random) -> Any:
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
    trace = store.read_stored(path)
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
