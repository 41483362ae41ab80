"""Check the JSON of a Chrome trace for the properties that every viewer needs."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def events(path: Path) -> list[Event]:
    """Return the events of a file, with times as exact decimals."""
    raw = path.read_bytes()
    data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=Decimal)
    return data["traceEvents"] if isinstance(data, dict) else data


def ns(microseconds: Any) -> int:
    """Return a time of the file in ns. Fail if the time has a fraction of a ns."""
    exact = Decimal(microseconds) * 1000
    assert exact == int(exact), f"a fraction of a ns: {microseconds}"
    return int(exact)


def check(found: list[Event]) -> None:
    """Check that times ascend, that the events of one row nest, and that all rows are named. Each arrow must have two
    ends, and each end must be at the start of a box."""
    timed = [event for event in found if event["ph"] != "M"]
    assert [ns(e["ts"]) for e in timed] == sorted(ns(e["ts"]) for e in timed)
    assert min((ns(e["ts"]) for e in timed), default=0) == 0
    _check_rows(timed)
    _check_arrows(timed)
    named = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    processes = {e["pid"] for e in found if e["name"] == "process_name"}
    assert {(e["pid"], e["tid"]) for e in timed} <= named
    assert {e["pid"] for e in timed} <= processes


def _check_rows(timed: list[Event]) -> None:
    open_ends: dict[Any, list[int]] = defaultdict(list)
    for event in timed:
        if event["ph"] != "X":
            continue
        start = ns(event["ts"])
        end, around = start + ns(event["dur"]), open_ends[event["pid"], event["tid"]]
        while around and around[-1] <= start:
            around.pop()
        assert not around or around[-1] >= end, f"{event['name']} sticks out of its row"
        around.append(end)


def _check_arrows(timed: list[Event]) -> None:
    boxes = {(e["pid"], e["tid"], ns(e["ts"])) for e in timed if e["ph"] == "X"}
    ends: dict[Any, list[Event]] = defaultdict(list)
    for event in timed:
        if event["ph"] in "stf":
            ends[event["cat"], event["id"]].append(event)
            assert (event["pid"], event["tid"], ns(event["ts"])) in boxes
    for both in ends.values():
        assert [e["ph"] for e in both] == ["s", "f"]
        assert both[0]["name"] == both[1]["name"]
        assert both[1]["bp"] == "e"
