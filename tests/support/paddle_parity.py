"""perfkit's numbers in the form of the tables that Paddle's ``summary()`` prints, as printed strings.

``mine(trace, table)`` returns the rows that perfkit computes for a printed table with ``native=True``. A row is a pair
of a path and cells. The path is a tuple of names: thread, operator, … The cells are a dict with the headings of the
printed table as keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from perfkit_core.api import summarize
from perfkit_core.trace.model.trace import Trace
from tests.support.paddle_summary import Table, time

Line = tuple[tuple[str, ...], dict[str, str]]
MERGED = "All threads merged"


def theirs(table: Table) -> list[Line]:
    """Return the printed rows. The path of a row contains the names of the rows above it."""
    found, path = [], []
    for row in table.rows:
        path = [*path[: row.level], row.name]
        found.append(((row.thread or "", *path), row.cells))
    return found


def mine(trace: Trace, table: Table, sort: str | None = None) -> list[Line]:
    """Return perfkit's rows for a printed table, in perfkit's order."""
    title = table.title.partition(" - ")[0]
    return list(TABLES[title](trace, table, sort))


def share(ratio: Any) -> str:
    """Return a ratio as Paddle prints it."""
    return f"{float(ratio) * 100:.2f}"


def four(row: pd.Series, side: str, head: str, unit: str, ratio: Any) -> dict[str, str]:
    """Return the cells for total, average, maximum, minimum and ratio. Paddle prints the exact average, so it is
    computed here from the total."""
    total, calls = row[f"total_{side}_ns"], row["calls"]
    assert abs(2 * (row[f"avg_{side}_ns"] * calls - total)) <= calls
    times = {"Total": total, "Avg": total / calls, "Max": row[f"max_{side}_ns"], "Min": row[f"min_{side}_ns"]}
    return {f"{head} {name}": time(ns, unit) for name, ns in times.items()} | {f"{head} Ratio(%)": share(ratio)}


def dashes(head: str) -> dict[str, str]:
    return {f"{head} {name}": "-" for name in ("Total", "Avg", "Max", "Min", "Ratio(%)")}


def both(row: pd.Series, unit: str, cpu_ratio: Any, device_ratio: Any) -> dict[str, str]:
    """Return the cells for calls, CPU and GPU."""
    cells = four(row, "cpu", "CPU", unit, cpu_ratio) | four(row, "device", "GPU", unit, device_ratio)
    return {"Calls": str(row["calls"])} | cells


def device(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    for _, row in summarize(trace, "device", native=True).iterrows():
        name = row["device"].replace("cpu (process)", "CPU(Process)").replace("cpu (system)", "CPU(System)")
        yield ("", name.replace("cuda:", "GPU")), {"Utilization (%)": share(row["utilisation_ratio"])}


def overview(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    for _, row in summarize(trace, "overview", native=True).iterrows():
        name = () if row["category"] == "ProfileStep" else (row["category"],)
        head = "CPU Time" if row["place"] == "host" else "GPU Time"
        cells = {"Calls": str(row["calls"]), head: time(row["time_ns"], table.unit), "Ratio (%)": share(row["ratio"])}
        yield ("", "ProfileStep", *name), cells


PHASES = {"step": "ProfileStep", "dataloader": "Dataloader", "forward": "Forward", "backward": "Backward",
          "optimizer": "Optimization", "other": "Others"}  # fmt: skip


def model(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    for _, row in summarize(trace, "model", native=True).iterrows():
        name = PHASES[row["phase"]]
        if name != "Others":
            path = ("",) if name == "ProfileStep" else ("", "ProfileStep")
            yield (*path, name), both(row, table.unit, row["cpu_ratio"], row["device_ratio"])
            continue
        cells = {"Calls": "-"} | dashes("CPU") | dashes("GPU")
        for side, head in (("cpu", "CPU"), ("device", "GPU")):
            cells[f"{head} Total"] = time(row[f"total_{side}_ns"], table.unit)
            cells[f"{head} Ratio(%)"] = share(row[f"{side}_ratio"])
        yield ("", "ProfileStep", name), cells


def distribution(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    rows = summarize(trace, "distributed", native=True).set_index("part")
    for part, path in (("step", ()), ("communication", ("Communication",)), ("computation", ("Computation",)),
                       ("overlap", ("Overlap",))):  # fmt: skip
        cells = {"Total Time": time(rows["time_ns"][part], table.unit), "Ratio (%)": share(rows["ratio"][part])}
        yield ("", "ProfileStep", *path), cells


def threads(table: Table) -> tuple[str, ...]:
    """Return the grouping that gives perfkit's table the same thread headings as the printed table."""
    return () if all(row.thread in (None, MERGED) for row in table.rows) else ("thread",)


def heading(row: pd.Series) -> str:
    return str(row["tid"]) if "tid" in row.index else MERGED


def sorting(sort: str | None, default: str) -> dict[str, Any]:
    """Return the sort arguments. Paddle sorts by a minimum in ascending order, and by any other column in descending
    order."""
    column = default if sort is None else sort
    return {"sort": column, "ascending": column.startswith("min_")}


def operator(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    frame = summarize(trace, "operator_tree", by=threads(table), native=True, **sorting(sort, "total_cpu_ns"))
    if all(row.level == 0 for row in table.rows):
        frame = frame[frame["depth"] == 0]
    path: list[str] = []
    for _, row in frame.iterrows():
        depth = row["depth"]
        path = [*path[:depth], cut(row["name"], 52 - 2 * depth) if depth else row["name"]]
        yield (heading(row), *path), operator_cells(row, table.unit)


def flat_operator(trace: Trace, table: Table, sort: str | None) -> list[Line]:
    """Return the outermost rows of the Operator Summary, in any order: averages may differ by less than a ns, but the
    view is in order of whole ns, which is asserted. The view has no share of the total device time."""
    how = sorting(sort, "total_cpu_ns")
    frame = summarize(trace, "operators", native=True, **how)
    steps = frame[how["sort"]].astype("int64").diff().dropna()
    assert (steps >= 0).all() if how["ascending"] else (steps <= 0).all()
    device_ns = int(frame["total_device_ns"].sum())
    shares = frame["total_device_ns"] / max(device_ns, 1)
    return [
        ((MERGED, row["name"]), both(row, table.unit, row["total_cpu_ratio"], ratio) | {"FLOPs": str(row["flops"])})
        for (_, row), ratio in zip(frame.iterrows(), shares, strict=True)
    ]


def operator_cells(row: pd.Series, unit: str) -> dict[str, str]:
    flops = {"FLOPs": "-" if row["depth"] else str(0 if pd.isna(row["flops"]) else row["flops"])}
    if not pd.isna(row["total_cpu_ns"]):
        return both(row, unit, row["cpu_ratio"], row["device_ratio"]) | flops
    sides = dashes("CPU") | four(row, "device", "GPU", unit, row["device_ratio"])
    return {"Calls": str(row["calls"])} | sides | flops


def cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 3] + "..."


def kernel(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    column = sort if sort is not None and "device" in sort else None
    for _, row in summarize(trace, "kernels", native=True, **sorting(column, "total_device_ns")).iterrows():
        cells = four(row, "device", "GPU", table.unit, row["ratio"])
        yield ("", cut(row["name"], 90)), {"Calls": str(row["calls"])} | cells


def manipulation(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    for _, row in summarize(trace, "memory_manipulation", native=True).iterrows():
        yield ("", row["name"]), both(row, table.unit, row["cpu_ratio"], row["device_ratio"])


def user_defined(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    how = sorting(sort, "total_cpu_ns")
    frame = summarize(trace, "annotations", by=threads(table), native=True, **how)
    for _, row in frame[frame["kind"] == "annotation"].iterrows():
        cells = both(row, table.unit, row["total_cpu_ratio"], row["total_device_ratio"])
        yield (heading(row), row["name"]), cells


MEMORY = {"Type": "type", "Allocation Count": "allocations", "Free Count": "frees", "Free Size": "freed_bytes",
          "Allocation Size": "allocated_bytes", "Increased Size": "increase_bytes"}  # fmt: skip
PEAKS = {"Peak Allocated Memory": "process_peak_bytes", "Peak Reserved Memory": "process_peak_reserved_bytes"}


def memory(trace: Trace, table: Table, sort: str | None) -> Iterator[Line]:
    place = place_of(table)
    frame = summarize(trace, "memory", native=True, sort="increase_bytes").sort_values("type", kind="stable")
    for _, row in frame[frame["device"] == place].iterrows():
        cells = {head: str(row[column]) for head, column in MEMORY.items()}
        yield ("", row["name"]), cells | {"Type": cells["Type"].capitalize()}


def facts(trace: Trace, table: Table) -> dict[str, str]:
    """Return the numbers between the title and the head of a memory table: its peaks."""
    if not set(PEAKS) & set(table.facts):
        return {}
    places = summarize(trace, "memory_places").set_index("device")
    return {head: str(places.loc[place_of(table), column]) for head, column in PEAKS.items()}


def place_of(table: Table) -> str:
    return table.title.partition("Place(")[2].rstrip(")").replace("gpu:", "cuda:")


TABLES: dict[str, Callable[[Trace, Table, str | None], Iterator[Line]]] = {
    "Device Summary": device,
    "Overview Summary": overview,
    "Model Summary": model,
    "Distribution Summary": distribution,
    "Operator Summary": operator,
    "Kernel Summary": kernel,
    "Memory Manipulation Summary": manipulation,
    "UserDefined Summary": user_defined,
    "Memory Summary": memory,
}
