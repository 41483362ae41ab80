"""The reader of Nsight Systems' exports, on a real export: each number must equal what SQL computes from the file."""

from __future__ import annotations

import ctypes
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import load, reader, stream
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.bytestream import head
from tests.support.events import rows

pytestmark = pytest.mark.bare


@pytest.fixture(scope="module")
def path(traces: Path) -> Path:
    return traces / "nsys" / "h100-2gpu-1s.sqlite"


@pytest.fixture(scope="module")
def real(path: Path) -> Trace:
    return load(path)


@pytest.fixture(scope="module")
def sql(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        yield connection


def sums(trace: Trace, *names: str, kind: str) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Return the number of events and their total time in ns, by the values of columns."""
    count: Counter[tuple[Any, ...]] = Counter()
    total: Counter[tuple[Any, ...]] = Counter()
    for found, *key, dur in rows(trace, "kind", *names, "dur_ns"):
        if found == kind:
            count[tuple(key)] += 1
            total[tuple(key)] += dur
    return {key: (number, total[key]) for key, number in count.items()}


def test_kernels_of_a_real_export_by_device_and_name(real: Trace, sql: sqlite3.Connection) -> None:
    """The names are compared with those that GNU's demangler makes of the mangled names."""
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_char_p

    def demangled(name: str) -> str:
        text = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int())) if name.startswith("_Z") else None
        return text.decode() if text else name

    query = """SELECT 'cuda:' || deviceId, value, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL
               JOIN StringIds ON id = mangledName GROUP BY 1, 2"""
    expected = {(device, demangled(name)): (count, total) for device, name, count, total in sql.execute(query)}
    assert sums(real, "device", "name", kind="kernel") == expected
    assert len(expected) == 82


def test_copies_of_a_real_export_by_device_and_direction(real: Trace, sql: sqlite3.Connection) -> None:
    query = """SELECT 'cuda:' || deviceId, copyKind, srcKind, dstKind, bytes, COUNT(*), SUM(end - start)
               FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1, 2, 3, 4, 5"""
    kinds = {(1, 0, 2): "HtoD pageable", (1, 1, 2): "HtoD pinned", (2, 2, 1): "DtoH pinned", (8, 2, 2): "DtoD"}
    expected = {(device, kinds[copy, start, end], size): (count, total)
                for device, copy, start, end, size, count, total in sql.execute(query)}  # fmt: skip
    assert sums(real, "device", "copy_kind", "bytes", kind="memcpy") == expected


def test_ranges_of_a_real_export_by_name(real: Trace, sql: sqlite3.Connection) -> None:
    query = """SELECT globalTid % 0x1000000, SUBSTR(text, 1, INSTR(text, ', op_id = ') - 1), COUNT(*), SUM(end - start)
               FROM NVTX_EVENTS GROUP BY 1, 2"""
    expected = {(thread, name): (count, total) for thread, name, count, total in sql.execute(query)}
    operators, labels = (sums(real, "tid", "name", kind=kind) for kind in ("operator", "annotation"))
    assert operators | labels == expected
    assert {name for _, name in labels} == {name for _, name in expected if name.startswith("FSDP::")}


def test_other_events_and_launches_of_a_real_export(real: Trace, sql: sqlite3.Connection) -> None:
    prefix = "CUPTI_ACTIVITY_KIND_"
    expected = {name: sql.execute(f"SELECT COUNT(*), SUM(end - start) FROM {prefix}{name}").fetchone()
                for name in ("MEMSET", "RUNTIME", "SYNCHRONIZATION", "OVERHEAD")}  # fmt: skip
    of_category: dict[str, tuple[int, int]] = {}
    for kind in ("memset", "runtime", "sync", "overhead"):
        for (category,), (count, total) in sums(real, "category", kind=kind).items():
            before = of_category.get(category, (0, 0))
            of_category[category] = (before[0] + count, before[1] + total)
    assert of_category == {"memset": expected["MEMSET"], "cuda_runtime": expected["RUNTIME"],
                           "synchronization": expected["SYNCHRONIZATION"],
                           "overhead": expected["OVERHEAD"]}  # fmt: skip
    query = f"""SELECT COUNT(*) FROM {prefix}{{}} AS work JOIN {prefix}RUNTIME AS call
                ON work.correlationId = call.correlationId AND work.globalPid >> 24 = call.globalTid >> 24"""
    for name, kind in (("KERNEL", "kernel"), ("MEMCPY", "memcpy"), ("MEMSET", "memset")):
        launched = real.ints("launched_by")[real.rows("kind", kind)] >= 0
        assert int(launched.sum()) == sql.execute(query.format(name)).fetchone()[0]


def test_a_real_export_is_recognised_and_dated(real: Trace, path: Path, tmp_path: Path) -> None:
    assert reader(path, head(path), get_plugins()).name == "nsys"
    assert (real.meta.framework, real.meta.ranks) == ("torch", (0, 1))
    assert real.meta.thread_names == {"0:111:111": "python3", "1:112:112": "python3"}
    first = 1_779_630_014_975_716_426 + 155_357_525_002 - 35_255_823_190
    assert int(real.ints("start_ns").min()) == first
    assert not {"modal", "rich-wsl", "DESKTOP-KBEMEQS"} & set(repr(real.meta).replace("'", " ").split())
    stream(path, tmp_path / "real.perfkit.parquet")
    assert load(tmp_path / "real.perfkit.parquet").events.equals(real.events)
