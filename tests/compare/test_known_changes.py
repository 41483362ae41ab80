"""Comparisons of hand-made trainings, whose changes are known to the nanosecond: the first screen names each change
with its place and size, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from perfkit_core.base.language.messages import render
from perfkit_core.compare.report import comparison_report, first_look
from perfkit_core.trace.model.report_data import Report
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

US = 1000
LAYERS, STEPS = 8, 8
Calls = Sequence[tuple[str, int]]
"""The operators of a layer, with the time of their kernels in µs."""
PLAIN: Calls = (("linear", 500), ("relu", 100))


def training(changed: Mapping[int, Calls] | None = None, *, framework: str = "torch", plain: Calls = PLAIN,
             jitter_us: int = 0, steps: int = STEPS, marked: bool = True, until: float = 1) -> Trace:  # fmt: skip
    """Return a training whose host waits at the end of each step. All but the ``changed`` layers run ``plain``. The
    recording ends at this share of the last step, but the range of the step is complete."""
    rows, start, correlation = [], 0, 0
    for step in range(steps):
        begin, at, done = start, start + 20 * US, start + 40 * US
        for layer in range(LAYERS):
            for name, busy_us in (changed or {}).get(layer, plain):
                correlation += 1
                rows.append(host(name, "operator", at, 10 * US, phase="forward", module=f"blocks.{layer}"))
                rows.append(host("launch", "runtime", at + 2 * US, 5 * US, correlation=correlation))
                busy = busy_us * US + (step * 7 % 5 - 2) * jitter_us * US // LAYERS
                rows.append(device(f"{name}_kernel", "kernel", max(done, at + 8 * US), busy, correlation))
                done = max(done, at + 8 * US) + busy
                at += 12 * US
        rows.append(host("wait", "sync", at, done + 10 * US - at))
        start = done + 30 * US
        if marked:
            rows.append(host(f"step {step}", "step", begin, start - begin, step=step))
    end = begin + until * (start - begin)
    made = trace([row for row in rows if row["start_ns"] < end], rank=0, names=str)
    return made.with_meta(framework=framework, source=f"runs/{framework}")


def compared(base: Trace, other: Trace) -> Report:
    other = other.with_meta(source=f"{other.meta.source}-change")
    return first_look(comparison_report(base, other))


def said(report: Report) -> str:
    return " ".join(text if isinstance(text, str) else render(text) for text in report.headline)


def bars(report: Report) -> dict[str, int]:
    """Return the differences of the waterfall in µs, without its ends."""
    tables = [section.table for section in report.sections if section.name == "waterfall"]
    rows = tables[0].iloc[1:-1] if tables else None
    return {} if rows is None else dict(zip(rows["name"], (rows["difference_ns"] // US).tolist(), strict=True))


def test_equal_runs_differ_in_nothing() -> None:
    report = compared(training(jitter_us=10), training(jitter_us=-10))
    assert said(report).startswith("No difference"), said(report)
    assert not any(text in said(report) for text in ("Layers", "Calls", "By category"))
    assert not bars(report)


def test_a_larger_product_is_named_with_its_place_and_amount() -> None:
    report = compared(training(), training({5: (("linear", 2000), ("relu", 100))}))
    assert said(report).startswith("Slower"), said(report)
    assert "Layers that changed most: blocks.5 +1.50 ms." in said(report)
    assert bars(report) == {"linear, forward, on the device": 1500}


def test_additional_products_are_named_with_their_place_and_number() -> None:
    more = (("linear", 500), ("linear", 500), ("linear", 500), ("relu", 100))
    report = compared(training(), training({2: more}))
    assert "Layers that changed most: blocks.2 +1.00 ms." in said(report)
    assert f"linear {LAYERS} → {LAYERS + 2}" in said(report)
    assert bars(report) == {"linear, forward, on the device": 1000}


def test_a_net_zero_change_shows_both_layers() -> None:
    report = compared(training(), training({3: (("linear", 900), ("relu", 100)), 6: (("linear", 100), ("relu", 100))}))
    assert said(report).startswith("No difference"), said(report)
    assert "Layers that changed most: blocks.3 +400 µs; blocks.6 -400 µs." in said(report)


@pytest.mark.parametrize("bias", [40, 120])
def test_a_bias_that_only_one_framework_adds_by_itself_belongs_to_the_product(bias: int) -> None:
    """The product and its bias are one operator in torch, and two in Paddle: their sum is compared."""
    paddle = training(framework="paddle", plain=(("matmul", 500), ("add", bias), ("relu", 100)))
    torch = training(framework="torch", plain=(("linear", 500 + bias - 20), ("relu", 100)))
    report = comparison_report(torch, paddle)
    rows = [row for row in report.data["operators"] if row["level"] == "unmatched"]
    assert not rows
    assert report.data["matched_share"]["base"]["family"]["device"] == 1
    total = sum(row["difference_ns"] for row in report.data["attribution"])
    assert total == report.data["step_time"]["difference"]
    device_ns = sum(row["difference_ns"] for row in report.data["attribution"] if row["place"] == "device")
    assert device_ns == 20 * LAYERS * US


def test_a_doubled_batch_is_said_first_and_compared_per_sample() -> None:
    twice = tuple((name, 2 * busy) for name, busy in PLAIN)
    base, other = training(), training(plain=twice)
    base, other = (made.with_meta(extra={"batch_size": size}) for made, size in ((base, "32"), (other, "64")))
    report = compared(base, other)
    assert said(report).startswith("The steps do different amounts of work: 32 samples in base and 64 samples in other")
    assert "Per sample: 151 µs instead of 152 µs, 0.72% shorter" in said(report)
    assert report.data["normalised"]["amounts"] == [32, 64]


@pytest.mark.parametrize("until", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("steps", [3, STEPS])
def test_a_step_in_which_the_recording_ended_is_left_out(steps: int, until: float) -> None:
    """The host has launched a part of the layers, or the device has not finished them."""
    report = compared(training(), training(steps=steps, until=until))
    assert said(report).startswith("No difference"), said(report)
    assert not any(text in said(report) for text in ("Layers", "Calls", "By category"))
    assert not bars(report)
    notes = [str(finding.text) for finding in report.sources[1].quality if finding.code == "steps-left-out"]
    assert f"not compared: step {steps - 1}" in " ".join(notes)


def test_recordings_without_steps_are_compared_by_the_calls_that_both_repeat() -> None:
    """A longer recording is no change, but slower products are."""
    base, longer = training(steps=8, marked=False), training(steps=13, marked=False)
    report = compared(base, longer)
    assert said(report).startswith("No difference"), said(report)
    assert not bars(report)
    slower = compared(base, training(steps=13, marked=False, plain=(("linear", 900), ("relu", 100))))
    assert "Slower: the mean time from one call of linear_kernel to the next is" in said(slower), said(slower)
    (name, difference_us), *_ = bars(slower).items()
    assert (name, difference_us) == ("linear, forward, on the device", 400)
