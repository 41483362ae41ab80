"""Repeated traces equal one long recording."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

from benchmarks import inputs
from perfkit_core.readers.load import load


def written(copies_of: Path, size_bytes: int) -> dict[str, list[dict[str, object]]]:
    text: dict[str, list[dict[str, object]]] = json.loads(b"".join(inputs.replicated(copies_of, size_bytes)))
    return text


def test_two_copies_have_separate_links() -> None:
    once = json.loads(gzip.decompress(inputs.SMALL.read_bytes()))["traceEvents"]
    twice = written(inputs.SMALL, 300_000)["traceEvents"]
    assert len(twice) == 2 * len(once)
    assert twice[: len(once)] == once
    assert [event["name"] for event in twice[len(once) :] if "ProfilerStep" not in str(event["name"])] == [
        event["name"] for event in once if "ProfilerStep" not in str(event["name"])
    ]
    spans = [event for event in twice if event["ph"] == "X"]
    ids = Counter(event["args"]["External id"] for event in spans if "External id" in event.get("args", {}))
    before = Counter(e["args"]["External id"] for e in once if e["ph"] == "X" and "External id" in e.get("args", {}))
    assert sorted(ids.values()) == sorted(2 * list(before.values()))
    half = len(spans) // 2
    assert min(float(e["ts"]) for e in spans[half:]) > max(float(e["ts"]) for e in spans[:half])


def test_the_number_of_rows_and_the_time_are_multiples(bench_dir: Path) -> None:
    one, four = load(inputs.SMALL), load(inputs.make(inputs.SMALL, bench_dir / "large.json", 1))
    assert len(four) == 4 * len(one)
    assert four.ints("dur_ns").sum() == 4 * one.ints("dur_ns").sum()
    assert len(set(four.ints("step"))) == 4 * len(set(one.ints("step"))) == 8
