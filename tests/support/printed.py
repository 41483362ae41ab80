"""Reads the tables that Paddle's ``summary()`` prints, and prints numbers as it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd

_TITLE = re.compile(r"-+(\w[\w ]*) Summary-+")
_THREAD = re.compile(r"-+Thread: (.+?)-+")
_ROW = re.compile(r"( *)(\S.*?) {2,}(\d+) +(\S+(?: / \S+){4})(?: {2,}(\S+(?: / \S+){4}))?(?: {2,}(\S+))?\s*")
_SIZES = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


class Row(NamedTuple):
    """One printed row: its table, its thread, its level, its cells as printed ("" where there is none)."""

    table: str
    thread: str
    depth: int
    name: str
    calls: str
    first: str
    second: str


def rows(path: Path) -> tuple[str, list[Row]]:
    """The time unit of a summary, and all rows of its tables of calls."""
    table, thread, unit, found = "", "", "ms", []
    for line in path.read_text().splitlines():
        if title := _TITLE.fullmatch(line):
            table, thread = title[1], ""
        elif line.startswith("Time unit: "):
            unit = line.removeprefix("Time unit: ")
        elif apart := _THREAD.fullmatch(line):
            thread = apart[1]
        elif (row := _ROW.fullmatch(line)) and table != "Overview":
            found.append(Row(table, thread, len(row[1]) // 2, row[2], row[3], row[4], row[5] or ""))
    return unit, found


def cells(row: pd.Series, side: str, unit: str, ratio: float) -> str:
    """``Total / Avg / Max / Min / Ratio(%)`` of a row of ours; ``side``: "cpu" or "device", where unknown is 0."""
    total, least, most = (row[f"{what}_{side}_ns"] for what in ("total", "min", "max"))
    if pd.isna(least):
        return "- / - / - / - / -" if side == "cpu" else "0.00 / 0.00 / 0.00 / 0.00 / 0.00"
    times = (total, total / row["calls"], most, least)
    return " / ".join([*(f"{float(time) / _SIZES[unit]:.2f}" for time in times), f"{ratio * 100:.2f}"])


def cut(name: str, width: int) -> str:
    """As it cuts names that are too long."""
    return name if len(name) <= width else name[: width - 3] + "..."
