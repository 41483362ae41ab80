"""Rule 30: a device that is idle for more than half of the step, unless the training waits for data. The outcomes are
in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.low_device_utilisation import find
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.rule_cases import check_rule


def working(busy_ns: int, loading_ns: int = 0) -> Trace:
    """Return two steps of 1 ms with data loading and device work: two kernels on two streams that overlap
    completely."""
    rows = []
    for step in range(2):
        begin = step * 1_000_000
        rows += [
            host(f"step {step}", "step", begin, 1_000_000, step=step),
            *([host("next", "dataloader", begin, loading_ns)] if loading_ns else []),
            host("launch", "runtime", begin + 100_000, 1000, correlation=2 * step + 1),
            device("a", "kernel", begin + 200_000, busy_ns, 2 * step + 1),
            {**device("b", "kernel", begin + 200_000, busy_ns, 2 * step + 1), "stream": 8},
        ]
    return trace(rows)


def test_low_device_utilisation() -> None:
    check_rule("low-device-utilisation", {
        "499 of 1000 µs": working(499_000),
        "500 of 1000 µs": working(500_000),
        "60 of 1000 µs of loading": working(100_000, loading_ns=60_000),
        "50 of 1000 µs of loading": working(100_000, loading_ns=50_000),
        "without steps": trace([host("a", "operator", 0, 10), device("k", "kernel", 0, 5)]),
        "without a device": trace([host("step", "step", 0, 10, step=0), host("a", "operator", 0, 5)]),
    })  # fmt: skip


def test_a_real_recording(traces: Path) -> None:
    """The busy time equals an independent computation: every nanosecond of the step in which a kernel, memcpy or memset
    runs."""
    loaded = load(traces / "torch" / "h100-bert-small.json.gz")
    events = loaded.to_pandas()
    (step,) = events[events["kind"] == "step"].itertuples()
    work = events[events["kind"].isin(["kernel", "memcpy", "memset"])]
    edges = sorted(
        (max(start, step.start_ns), min(start + dur, step.start_ns + step.dur_ns))
        for start, dur in zip(work["start_ns"], work["dur_ns"], strict=True)
    )
    busy, until = 0, 0
    for start, end in edges:
        busy += max(end - max(start, until), 0)
        until = max(until, end)
    (found,) = find(RuleInput(loaded))
    assert found.evidence["busy_ns"] == busy
