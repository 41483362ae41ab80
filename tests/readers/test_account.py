"""Every event of a source has an account: the rows of the event table, metadata, links and named left-out events add up
to the events that the raw file holds. The raw events are counted here with the standard library."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import reader
from perfkit_core.trace.model import account
from perfkit_core.trace.storage.bytestream import head
from tests.support.wire import fields

TRACES = Path(os.environ.get("PERFKIT_TRACES", "../shared/traces"))
OWN = Path(__file__).parents[1] / "data"
ASCEND = "the vendor's sums of busy and free time are events of the file, but no recorded events"
LARGE_REST = {"ascend": ASCEND, "other/torch-npu-trace-view.json": ASCEND}
"""Files of which more than 0.1 % of the spans are left out, with the reason."""
_FORMATS = (".json", ".json.gz", ".pb", ".pb.gz", ".sqlite")
_NO_EVENTS = ("about_recording", "empty")
"""What becomes of objects that describe the recording, and of the empty object at the end of Paddle's list."""


def files(folder: Path) -> Iterator[Path]:
    """Yield the files that a reader recognises as traces of a profiler."""
    sources = list(get_plugins().sources())
    for path in sorted(folder.rglob("*")):
        if not path.name.endswith(_FORMATS) or path.name.startswith("profiler_info"):
            continue
        if max(source.sniff(path, head(path)) for source in sources) == 2:
            yield path


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()


def events_in(path: Path) -> tuple[int, int]:
    """Return the numbers of events and of spans in a raw file."""
    if path.name.endswith(".sqlite"):
        return events_in_database(path)
    if path.name.endswith((".pb", ".pb.gz")):
        nodes = sum(nodes_in(content(path)))
        return nodes, nodes
    document = json.loads(content(path))
    events: list[dict[str, Any]] = document if isinstance(document, list) else document["traceEvents"]
    return len(events) + allocations_beside(path), sum(event.get("ph") == "X" for event in events)


def allocations_beside(path: Path) -> int:
    """Return the number of begins and ends of allocations in the vendor's table next to a trace of an Ascend device."""
    table = path.with_name("operator_memory.csv")
    rows = csv.DictReader(table.read_text().splitlines()) if table.exists() else []
    return sum(bool(row[name].strip()) for row in rows for name in ("Allocation Time(us)", "Release Time(us)"))


def events_in_database(path: Path) -> tuple[int, int]:
    with sqlite3.connect(path) as database:
        rows = 0
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')}
            if {"start", "end"} <= columns:
                rows += database.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0]
    return rows, rows


def nodes_in(profile: bytes) -> Iterator[int]:
    """Yield a number of events for each node of Paddle's trees: host events, calls, device work, memory, inputs."""
    for tree in fields(profile)[3]:
        for node in map(fields, fields(tree)[2]):
            yield sum(len(node[name]) for name in (3, 5, 6))
            yield from (len(call[1]) + len(call[2]) for call in map(fields, node[4]))


def parameters() -> list[Any]:
    params = [pytest.param(path, id=str(path.relative_to(OWN))) for path in files(OWN)]
    if not TRACES.exists():
        return [*params, pytest.param(None, marks=pytest.mark.skip(reason="no traces of other projects"), id="traces")]
    return params + [pytest.param(path, id=str(path.relative_to(TRACES))) for path in files(TRACES)]


@pytest.mark.parametrize("path", parameters())
def test_each_event_of_a_file_has_an_account(path: Path) -> None:
    events, spans = events_in(path)
    trace = reader(path, head(path), get_plugins()).read(path, False)
    entries = trace.account
    assert account.total(entries, account.ROW) == len(trace)
    assert account.total(entries) == events, entries
    rest = [entry for entry in entries if entry.became not in account.READ]
    assert all(entry.count > 0 for entry in entries)
    if not any(word in str(path) for word in LARGE_REST):
        left_out = sum(entry.count for entry in rest if entry.became not in _NO_EVENTS)
        assert left_out <= spans / 1000, rest
