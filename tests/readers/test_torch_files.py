"""Tests of every real torch trace, event by event, against the values that the json and decimal modules read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import kernels
from perfkit_core.views.merging import table_of

COLUMNS = {
    "correlation": ("correlation",),
    "stream": ("stream",),
    "sequence": ("Sequence number",),
    "bytes": ("bytes", "Bytes", "size"),
    "address": ("Addr",),
    "total_bytes": ("Total Allocated",),
    "flops": ("flops",),
    "shapes": ("Input Dims", "Input dims"),
    "dtypes": ("Input type",),
    "stack": ("Call stack",),
}
MARKS = ("Iteration Start: PyTorch Profiler", "Record Window End")
PEAK_BYTES = 250 * 10**6
MEASURE = """
import re, sys
from pathlib import Path
from perfkit_core.cli.main import main
assert main(["summary", "--view", "all", sys.argv[1]]) == 0
status = dict(re.findall(r"(\\w+):\\s+(\\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8")))
print(int(status["VmHWM"]) - int(status["RssFile"]), file=sys.stderr)
"""


def recorded_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of the file that describe the run, in the order of the table: by start, longest first."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(data.decode("utf-8", "replace"), parse_float=Decimal, strict=False)
    events = document if isinstance(document, list) else document["traceEvents"]
    base = 0 if isinstance(document, list) else int(document.get("baseTimeNanoseconds", 0))
    kept = [e for e in events if e.get("ph") in ("X", "i", "I", "R", "C") and e.get("cat") != "Trace"]
    kept = [e for e in kept if not e["name"].startswith(MARKS)]
    for e in kept:
        e["start"], e["end"] = base + nanoseconds(e.get("ts", 0)), nanoseconds(e.get("dur", 0))
    return sorted(kept, key=lambda e: (e["start"], -e["end"]))


def nanoseconds(value: Any) -> int:
    return int((Decimal(value) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def test_every_event_equals_what_json_and_decimal_read(torch_file: Path) -> None:
    found, expected = load(torch_file), recorded_events(torch_file)
    check_arguments(found, expected)
    assert len(found) == len(expected) > 0
    assert found.events["name"].to_pylist() == [e["name"] for e in expected]
    assert found.ints("start_ns").tolist() == [e["start"] for e in expected]
    assert found.ints("dur_ns").tolist() == [e["end"] for e in expected]
    assert found.events["category"].to_pylist() == [e.get("cat") or None for e in expected]
    nowhere = (~found.host & ~found.rows("kind", "memory")).tolist()
    for column in ("pid", "tid"):
        numbers = [None if gone else number(e.get(column)) for e, gone in zip(expected, nowhere, strict=True)]
        read = found.events[column].to_pylist()
        texts = [isinstance(e.get(column), str) and number(e.get(column)) is None for e in expected]
        assert [None if text else value for text, value in zip(texts, read, strict=True)] == numbers


def test_requests_to_a_copy_engine_are_copies(traces: Path) -> None:
    """The direction and the size are arguments of each request. Events that only order streams are no kernels."""
    path = traces / "torch" / "mtia-inference.json.gz"
    requests = [e for e in recorded_events(path) if e["name"] == "dma_request"]
    copies = table_of(kernels.MEMCPY_VIEW, load(path), ViewRequest()).set_index("copy_kind")
    assert set(copies.index) == {"HtoD", "DtoH"}
    for kind, direction in (("HtoD", "HOST_TO_DEVICE"), ("DtoH", "DEVICE_TO_HOST")):
        expected = [e for e in requests if e["args"]["direction"] == direction]
        sums = copies.loc[kind, ["calls", "bytes", "total_device_ns"]].tolist()
        assert sums == [len(expected), sum(e["args"]["size"] for e in expected), sum(e["end"] for e in expected)]
    assert set(table_of(kernels.VIEW, load(path), ViewRequest())["name"]) == {"merge", "remote", "pe_exe"}


def number(value: Any) -> int | None:
    return int(value) if str(value).lstrip("-").isdecimal() else None


def check_arguments(found: Trace, expected: list[dict[str, Any]]) -> None:
    """Check that every argument is in its column or in ``args``: no recorded value is lost or changed."""
    held = {column: found.events[column].to_pylist() for column in (*COLUMNS, "args")}
    host = found.host.tolist()
    collectives = set(found.tables["collectives"]["row"].to_pylist())
    for row, e in enumerate(expected):
        arguments = dict(e.get("args") or {})
        rest = json.loads(held["args"][row] or "{}", parse_float=Decimal)
        described = row in collectives  # perfkit has added the size
        for column, names in COLUMNS.items():
            if column == "stream" and host[row]:
                continue
            value = next((arguments.pop(name) for name in names if name in arguments), None)
            added = described and column == "bytes" and value is None
            assert added or same(held[column][row], value), (row, column, value)
        for name in ("External id", "external id"):
            arguments.pop(name, None)
        assert equal(rest, arguments), (row, rest, arguments)


def same(held: Any, value: Any) -> bool:
    """Compare a cell with its argument. Unsigned addresses wrap, lists are JSON text, and empty values are null."""
    if value is None or value == "":
        return held is None
    if isinstance(value, list):
        return equal(json.loads(held, parse_float=Decimal), value)
    if isinstance(value, str) and not isinstance(held, str):
        value = int(value)
    return bool(held == value or held == value - 2**64)


def equal(a: Any, b: Any) -> bool:
    """Compare decimals that have more digits than a float as floats."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b or (isinstance(b, Decimal) and float(a) == float(b)))


def test_eight_ranks_of_one_job_are_one_trace(traces: Path) -> None:
    files = sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))
    parts = [load(path) for path in files]
    whole = load(files)
    assert whole.meta.ranks == tuple(range(8))
    assert len(whole) == sum(map(len, parts))
    assert whole.events["rank"].to_pylist() == [rank for rank, part in enumerate(parts) for _ in range(len(part))]
    offset = 0
    for part in parts:
        for column in ("parent", "launched_by"):
            rows = whole.ints(column)[offset : offset + len(part)]
            mine = part.ints(column)
            assert np.array_equal(np.where(rows < 0, -1, rows - offset), mine)
        offset += len(part)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is measured on Linux only")
def test_the_largest_file_is_summarised_in_250_megabytes(traces: Path) -> None:
    """Measures the peak memory of the process ``perfkit summary --view all``, without the libraries that it maps: the
    kernel maps more or less of their files, for example 138 MB in one folder and 200 MB in another."""
    largest = max((traces / "torch").rglob("*.json.gz"), key=size_inside)
    command = [sys.executable, "-c", MEASURE, str(largest)]
    subprocess.run(
        command, capture_output=True, check=True
    )  # compile first if needed, because compiling takes more memory than reading
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert 50 * 10**6 < int(done.stderr) * 1024 < PEAK_BYTES


def size_inside(path: Path) -> int:
    """Return the decompressed size, which is stored in the last four bytes of a gzip file."""
    return int.from_bytes(path.read_bytes()[-4:], "little")


def test_damage_in_a_real_file_keeps_the_events_before_it(traces: Path, tmp_path: Path) -> None:
    data = gzip.decompress((traces / "torch" / "h100-vit.json.gz").read_bytes())
    whole = load(traces / "torch" / "h100-vit.json.gz")
    path = tmp_path / "cut.json"
    path.write_bytes(data[: len(data) // 2])
    found: Trace = load(path, partial=True)
    assert len(whole) // 4 < len(found) < len(whole)
    assert not counted(found) - counted(whole)


def counted(trace: Trace) -> Counter[tuple[str, int]]:
    """Count each pair of name and duration. Starts are not compared: the clock's base may be in the missing part."""
    return Counter(zip(trace.events["name"].to_pylist(), trace.ints("dur_ns").tolist(), strict=True))


def test_a_file_of_another_framework_is_refused(traces: Path) -> None:
    with pytest.raises(SourceError, match="unknown profile format"):
        load(traces / "other" / "jax-mi300x-gemm.xplane.pb")


def test_a_finer_time_after_thousands_of_whole_microseconds(tmp_path: Path) -> None:
    """A finding reports times in whole microseconds. A single finer time anywhere in the file must prevent the
    finding."""
    whole = [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": at, "dur": 1} for at in range(9000)]
    for last, wanted in ((9000, True), (9000.25, False)):
        path = tmp_path / f"{last}.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*whole, {**whole[0], "ts": last}]}))
        assert ("rounded-clock" in {finding.code for finding in load(path).quality}) is wanted
