"""Every number that Paddle's ``summary()`` prints, compared table by table with perfkit's tables with ``native=True``.

Complete tables are compared as printed strings, so that no row and no cell is missing or additional. This is done in
each time unit, with threads separate or merged, with and without operator details, and for each sort key. Rows with
equal values may have any order.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import trace_handler
from tests.support.paddle_parity import TABLES, Line, facts, flat_operator, mine, theirs, threads
from tests.support.paddle_summary import Table, tables

SORTED = {f"{side}{name}": f"{column}_{kind}_ns" for side, kind in (("CPU", "cpu"), ("GPU", "device"))
          for name, column in (("Total", "total"), ("Avg", "avg"), ("Max", "max"), ("Min", "min"))}  # fmt: skip
WORKLOADS = ("amp_custom", "cnn_small", "cnn_small_flags", "mlp_medium", "mlp_medium_mem", "repeat3",
             "static_cond_guard", "static_pir", "to_static")  # fmt: skip


@lru_cache(maxsize=2)
def recorded(source: Path) -> Trace:
    return load(source)


def cycles(folder: Path) -> Iterator[tuple[Trace, Path]]:
    """Return the trace of each cycle, and the folder of its printed summaries."""
    for printed in sorted(folder.glob("cycle*.summary")):
        (source,) = folder.glob(printed.name.removesuffix(".summary") + ".pb*")
        yield recorded(source), printed


def texts(printed: Path) -> Iterator[tuple[str, str | None, str]]:
    """Return name, sort key and text of each printed summary."""
    for path in sorted(printed.glob("*.txt")):
        yield path.name, SORTED.get(path.stem.removeprefix("op_sorted_")), path.read_text()


def flat(lines: list[Line]) -> Counter[tuple[Any, ...]]:
    """Return the rows, in any order."""
    return Counter((path, *sorted(cells.items())) for path, cells in lines)


def equal(trace: Trace, table: Table, sort: str | None, where: str) -> int:
    """Return the number of equal cells. Raises AssertionError if some cell differs."""
    ours, native = mine(trace, table, sort), theirs(table)
    where = f"{where}, {table.title}"
    assert flat(native) == flat(ours), (
        f"{where}: only in one {[*((flat(native) - flat(ours)) + (flat(ours) - flat(native)))][:4]}"
    )
    assert in_order(table.title, native, sort) == in_order(table.title, ours, sort), where
    if table.title == "Operator Summary" and not threads(table):
        outermost = [line for line in native if len(line[0]) == 2]
        flat_rows = flat_operator(trace, table, sort)
        assert flat(flat_rows) == flat(outermost), where
        assert in_order(table.title, flat_rows, sort) == in_order(table.title, outermost, sort), where
    peaks = {head: value for head, value in table.facts.items() if head != "Time unit"}
    assert facts(trace, table) == peaks, where
    return sum(len(cells) for _, cells in native) + len(peaks)


def in_order(title: str, lines: list[Line], sort: str | None) -> dict[str, list[str]]:
    """Return the column by which a table is sorted, at the outermost level of each thread."""
    wanted = next((f"{name[:3]} {name[3:]}" for name, column in SORTED.items() if column == sort), "CPU Total")
    column = {"Operator Summary": wanted, "UserDefined Summary": wanted, "Memory Summary": "Increased Size",
              "Kernel Summary": wanted if "GPU" in wanted else "GPU Total"}.get(title.partition(" - ")[0])  # fmt: skip
    found: dict[str, list[str]] = defaultdict(list)
    for path, cells in lines:
        if column is not None and len(path) == 2:
            found[path[0]].append(cells[column])
    return found


def walk(trace: Trace, text: str, sort: str | None, where: str) -> Counter[str]:
    """Return the number of equal cells of each table in a text."""
    found: Counter[str] = Counter()
    for table in tables(text):
        found[table.title] += equal(trace, table, sort, where)
    return found


@pytest.mark.parametrize("workload", WORKLOADS)
def test_recorded_on_the_cpu(paddle_traces: Path, workload: str) -> None:
    found: Counter[str] = Counter()
    for trace, printed in cycles(paddle_traces / "cpu-3.3.1" / workload):
        for name, sort, text in texts(printed):
            found += walk(trace, text, sort, f"{workload}/{name}")
    print(f"{workload}: {found.total()} cells equal: {dict(found)}")
    assert found.total() > 500
    assert {"Device Summary", "Overview Summary", "Operator Summary"} <= set(found)


def test_recorded_with_a_device(paddle_traces: Path) -> None:
    """Paddle printed eight of the nine tables for a real file with added kernels. The file has no memory events."""
    folder = paddle_traces / "gpu-synthetic"
    found: Counter[str] = Counter()
    for name, sort, text in texts(folder / "gpu1_by_3.3.1.summary"):
        found += walk(recorded(folder / "gpu1.pb"), text, sort, name)
    print(f"device: {found.total()} cells equal: {dict(found)}")
    assert set(found) == set(TABLES) - {"Memory Summary"}
    assert found.total() > 10_000


@pytest.fixture
def live(paddle: Any, tmp_path: Path) -> tuple[Trace, list[tuple[str, str]]]:
    """Return the trace of a live run, and Paddle's summary for each sort key, time unit and level of detail."""
    net = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 1))
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    handler = trace_handler(tmp_path)
    with paddle.profiler.Profiler(scheduler=(1, 4), on_trace_ready=handler, profile_memory=True) as profiler:
        for _ in range(5):
            # Paddle counts equal labels inside each other apart
            with paddle.profiler.RecordEvent("iteration"), paddle.profiler.RecordEvent("iteration"):
                net(paddle.rand([4, 8])).mean().backward()
                optimizer.step()
                optimizer.clear_grad()
            profiler.step()
    asked = [{"sorted_by": paddle.profiler.SortedKeys[key], "time_unit": "ns"} for key in SORTED]
    asked += [{"time_unit": unit, "thread_sep": True, "op_detail": unit == "us"} for unit in ("s", "ms", "us", "ns")]
    return load(tmp_path), [(str(options.get("sorted_by")), summary(profiler, options)) for options in asked]


def summary(profiler: Any, options: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        profiler.summary(**options)
    return out.getvalue()


def test_every_cell_of_a_live_run_is_as_paddle_prints_it(live: tuple[Trace, list[tuple[str, str]]]) -> None:
    trace, printed = live
    found: Counter[str] = Counter()
    for key, text in printed:
        found += walk(trace, text, SORTED.get(key.partition(".")[2]), key)
    print(f"live: {found.total()} cells equal: {dict(found)}")
    wanted = {"Device Summary", "Overview Summary", "Model Summary", "Operator Summary", "UserDefined Summary"}
    assert {title.partition(" - ")[0] for title in found} == wanted | {"Memory Summary"}
    assert len(printed) == 12
