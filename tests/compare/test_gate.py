"""Tests of the gate: the meaning of its conditions, and that a condition only fails if its limit is exceeded beyond
noise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from perfkit_core.api import summarize
from perfkit_core.compare.gate import conditions as gate
from perfkit_core.compare.gate.conditions import (
    BUDGET,
    CHANGE,
    DIFFERENCE,
    FAILED,
    PASSED,
    Outcome,
    data,
    parsed,
    table,
)
from perfkit_core.compare.pair import CompareOptions, pair
from perfkit_core.errors import UsageError
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.golden import check_golden
from tests.support.small_trace import small_trace
from tests.support.stepped_trace import stepped_trace

STEADY = (20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9)
STEPS = 60
ODD = range(1, 20, 2)


def judged(condition: str, base: Trace | list[Trace], other: Trace | list[Trace], noise: float = 0.0) -> Outcome:
    sides = [side if isinstance(side, list) else [side] for side in (base, other)]
    (outcome,) = pair(*sides, CompareOptions(conditions=(parsed(condition),), noise=noise)).outcomes
    return outcome


@cache
def steady(factor: float = 1.0, operator_ms: float = 1.0, operators: int = 1, name: str = "fw::matmul") -> Trace:
    """Return a trace of eight steps of about 20 ms, times ``factor``."""
    return stepped_trace([ms * factor for ms in STEADY], operator_ms, operators, name)


@cache
def memory_trace(kept: int = 0, highest: int = 100, scaled: int = 0) -> Trace:
    """Return a trace of steps of 100 ns with memory events. fw::add allocates and frees 100 bytes per step, but
    ``highest`` bytes in the second step. In each step, fw::leak allocates ``kept`` bytes and fw::scale allocates
    ``scaled`` bytes. These bytes are never freed."""
    rows, total = [], 0
    for number in range(STEPS):
        start, size = number * 100, highest if number == 1 else 100
        blocks = [(10, "fw::leak", kept, 32 * number + 64)] * bool(kept)
        blocks += [(20, "fw::scale", scaled, 32 * number + 80)] * bool(scaled)
        blocks += [(40, "fw::add", size, 8), (60, "fw::add", -size, 8)]
        rows.append(host("fw::leak", "operator", start + 80, 5))
        rows.append(host(f"step {number}", "step", start, 100, step=number))
        for at, name, change, address in blocks:
            total += change
            moved = {"bytes": change, "address": address, "total_bytes": total}
            rows += [host(name, "operator", start + at, 10), host("[memory]", "memory", start + at + 5, 0, **moved)]
    return trace(rows, rank=0, names={"fw::leak": "matmul"}.get)


@cache
def called(left_out: range) -> Trace:
    """Return a trace of ten steps with two calls each, without those of some numbers."""
    steps = [host(f"step {at}", "step", at * 1_000, 900, step=at) for at in range(10)]
    calls = [host("aten::mm", "operator", at * 500 + 100, 300) for at in range(20) if at not in left_out]
    return trace(steps + calls)


@cache
def longest_call() -> Trace:
    """Return a trace of calls of 1 µs, of which one takes 2 µs."""
    calls = [host("fw::add", "operator", at * 5_000 + 100, 2_000 if at == 1 else 1_000) for at in range(STEPS)]
    return trace([host(f"step {at}", "step", at * 5_000, 4_000, step=at) for at in range(STEPS)] + calls)


@pytest.mark.parametrize(
    ("text", "kind", "limit", "upward"),
    [
        ("step_time > 3%", CHANGE, 0.03, True),
        ("step_time < -2.5 %", CHANGE, -0.025, False),
        ("step_time>+5ms", DIFFERENCE, 5_000_000, True),
        ("step_time > 0.12 s", BUDGET, 120_000_000, True),
        ("memory_places.peak_bytes[cpu] > 1.5GiB", BUDGET, 3 * 2**29, True),
        ("operators.calls[a > b] > 1_000", BUDGET, 1000, True),
        ("device.busy_ratio < -0.05", DIFFERENCE, -0.05, False),
        ("operators.flops > +2G", DIFFERENCE, 2e9, True),
        ("operators.calls > +\r5", DIFFERENCE, 5, True),
    ],
)
def test_conditions_are_parsed(text: str, kind: str, limit: float, upward: bool) -> None:
    condition = parsed(text)
    assert (condition.kind, condition.upward) == (kind, upward)
    assert condition.limit == pytest.approx(limit, abs=1e-12)


def test_rows_may_hold_anything() -> None:
    assert parsed("kernels.total_ns[void f<int>(T[3]) > 2] > 5%").row == "void f<int>(T[3]) > 2"


WILD = (20, 31, 18, 40, 22, 15, 33, 20)
LIMITS = ("step_time > 3%", "step_time < -3%", "step_time > +1ms", "step_time > +3ms", "step_time > 21ms",
          "step_time > 23ms", "step_time < 18.5ms")  # fmt: skip
PEAKS = tuple(f"memory_places.peak_bytes[cpu] > {limit}" for limit in ("500B", "+500B", "10%"))
LEAKS = ("memory_leaks.bytes > +1B", "memory_leaks.bytes[fw::leak] > +1B", "memory_leaks.steps[fw::leak] > +0",
         "memory_leaks.blocks[fw::leak] > +0", "memory_leaks.blocks[cpu] > +0", "memory_peak.bytes[fw::leak] > +1B",
         "memory_peak.bytes[cpu] > +1B", "memory_leaks.avg_step_bytes[cpu] > +1B",
         "memory_leaks.avg_step_bytes[cpu] > +1KiB", "memory_leaks.avg_step_bytes[matmul] > +1B",
         "memory_leaks.avg_step_bytes[fw::add] > +1B",
         "memory_leaks.avg_step_bytes[fw::add, 0, cpu] > +1B")  # fmt: skip


def cases() -> Iterator[tuple[str, list[Trace], list[Trace], float, Sequence[str]]]:
    """Return a title, the captures of base and other, the noise, and the conditions."""
    start, twice, none = [steady()], [steady(1.0, 1.5, 2)], [small_trace().slice(0, 0)]
    yield "steps of 20 ms become 10 % longer", start, [steady(1.1)], 0, LIMITS
    yield "steps of 20 ms become 10 % longer, but processes differ by 20 %", start, [steady(1.1)], 0.2, LIMITS[:1]
    yield "steps of 20 ms become 2 % longer", start, [steady(1.02)], 0, LIMITS[:1]
    yield "steps of 20 ms become 10 % shorter", start, [steady(0.9)], 0, LIMITS
    wild = [[stepped_trace([ms * times for ms in WILD])] for times in (1, 1.1)]
    yield "steps that vary by half become 10 % longer", *wild, 0, LIMITS[:1]
    yield "single steps of 20 and 40 ms", [stepped_trace([20])], [stepped_trace([40])], 0, LIMITS[:1]
    yield "single steps of 20 ms", [stepped_trace([20])], [stepped_trace([20])], 0, LIMITS[:1]
    yield "one matmul of 1 ms per step becomes two of 1.5 ms", start, twice, 0, (
        "operators.self_cpu_ns[fw::matmul] > 5%", "operators.self_cpu_ns > 5%", "operators.calls[fw::matmul] > +0",
        "operators.avg_cpu_ns[fw::matmul] > 1.6ms", "partition.total_ns[compute] > +1.9ms", "step_time > 0.1%",
        "steps.start_ns > 3%",
    )  # fmt: skip
    yield "only other has fw::slow", start, [steady(name="fw::slow")], 0, ("operators.self_cpu_ns[fw::slow] > 5%",)
    yield (
        "operators take 5 or 10 % of the steps, which vary by half a per cent",
        start,
        [steady(1, 2.0)],
        0,
        [f"partition.ratio[compute] {limit}" for limit in ("> 0.06", "> 0.09999", "< 0.15", "> 0.11", "> +0.04")],
    )
    yield (
        "steps have one call, and then nine of ten have two",
        [called(ODD)],
        [called(range(1, 2))],
        0,
        [f"operators.calls[aten::mm] > {limit}" for limit in ("10%", "1.5", "+0.9", "1.9", "1.78", "1.8")],
    )
    yield "nested operators", [small_trace()], [small_trace()], 0, (
        "operators.self_cpu_ns > 3%", "operators.total_cpu_ns > 3%", "operators.total_cpu_ratio > 3%",
    )  # fmt: skip
    yield "one of 60 steps has a peak of 1,000 bytes", [memory_trace()], [memory_trace(highest=1000)], 0, PEAKS
    peaks = [memory_trace(highest=size) for size in (1000, 1100, 1200)]
    yield "three captures with a peak each", [memory_trace()] * 3, peaks, 0, PEAKS
    yield "7 bytes are kept per step", [memory_trace()], [memory_trace(7)], 0, LEAKS
    yield "two operators keep 9 bytes per step", [memory_trace()], [memory_trace(7, scaled=2)], 0, LEAKS
    yield "both keep 7 bytes per step", [memory_trace(7)], [memory_trace(7)], 0, LEAKS
    yield "nothing is kept", [memory_trace()], [memory_trace()], 0, (
        *LEAKS, "memory_leaks.steps > 0", "memory_leaks.bytes[fw::ad] > +1B",
        "memory_places.peak_bytes[fw::add] > +1B",
    )  # fmt: skip
    yield "other has no memory events", [memory_trace(7)], start, 0, LEAKS[1:2]
    longest = ("operators.max_cpu_ns[fw::add] > 1500ns",)
    yield "calls of 1 µs, of which one takes 2 µs", [longest_call()], [longest_call()], 0, longest
    yield "two captures of these calls", [longest_call()] * 2, [longest_call()] * 2, 0, longest
    yield "base has no steps", none, [small_trace()], 0, LIMITS[:1]
    yield "not a condition, or of an unknown number", start, start, 0, (
        "step_time", "step_time > fast", "step_time.p99 > 3%", "operators > 3%", "step_time > 5MB", "step_time > 3",
        "memory.allocated_bytes > 5ms", "step_time > -3%", "step_time < 3%", "nothing.calls > 3%",
        "operators.speed > 3%", "operators.self_cpu_ns[relu] > 3%", "operators.self_cpu_bytes[fw::matmul] > 3%",
        "modules.total_cpu_ns > 3%", "modules.speed > 3%",
    )  # fmt: skip


def shown(condition: str, base: list[Trace], other: list[Trace], noise: float) -> str:
    try:
        outcome = judged(condition, base, other, noise)
    except UsageError as error:
        return re.sub(r"known: .*", "known: …", f"{condition}: error\n  {error}")
    numbers = (outcome.base, outcome.other, outcome.difference, outcome.change_ratio, outcome.noise)
    return f"{condition}: {outcome.result}; " + " ".join("-" if each is None else f"{each:,.8g}" for each in numbers)


def test_results_and_numbers_of_conditions() -> None:
    """A condition fails only beyond noise. Counts are means that need not be whole, a row that only one run has is 0 in
    the other, and peaks, leaks and longest calls are those of whole captures. Sums of total times would count nested
    operators twice, and numbers of steps with leaks do not add up, so both are errors."""
    lines = ["condition: result; base other difference change noise"]
    for title, base, other, noise, conditions in cases():
        lines += ["", f"# {title}", *(shown(condition, base, other, noise) for condition in conditions)]
    check_golden("compare/gate.txt", "\n".join(lines) + "\n")


def test_numbers_of_captures_are_marked() -> None:
    (peak,) = data([judged(PEAKS[0], memory_trace(), memory_trace(highest=1000))])
    assert (peak["samples"], peak["statistic"]) == ("captures", "mean")
    (calls,) = table([judged("operators.calls[aten::mm] > 10%", called(ODD), called(range(1, 2)))]).to_dict("records")
    assert (calls["base"], calls["other"], calls["difference"]) == ("1", "1.9", "+0.9")


def test_bytes_are_exact() -> None:
    """If this number of bytes were stored in billionths, it would change."""
    size = 8_589_934_543
    copied = trace([host("copy", "runtime", 0, 2, correlation=1), device("copy", "memcpy", 5, 9, 1, bytes=size)])
    outcome = judged(f"memcpy.bytes > {size}B", copied, copied)
    assert (outcome.result, outcome.other) == (PASSED, size)


def test_several_ranks_count_as_a_summary_counts_them() -> None:
    """In the view of the graph, the times of each rank are relative to its first operator."""
    first = trace([host("fw::add", "operator", 0, 10)], rank=0)
    later = trace([host("fw::add", "operator", 700, 10), host("fw::mul", "operator", 720, 10)], rank=1)
    both = concat_traces([first, later])
    outcome = judged("graph.start_ns[fw::mul] > 20ns", both, both)
    assert summarize(both, "graph").set_index("name").loc["fw::mul", "start_ns"] == 20
    assert (outcome.result, outcome.base) == (PASSED, 20)


def test_device_work_has_the_noise_of_devices_in_every_view() -> None:
    """Each step of 20 ms has a kernel of 10 or 11 ms, and an operator that launches it."""
    rows = []
    for at in range(8):
        start, long = at * 20_000_000, 10_000_000 + at % 2 * 1_000_000
        rows += [
            host(f"step {at}", "step", start, 20_000_000, step=at),
            host("fw::add", "operator", start + 10, long),
            host("launch", "runtime", start + 20, 10, correlation=at + 1),
            device("add", "kernel", start + 100, long, at + 1),
        ]
    run = trace(rows)
    numbers = (
        "kernels.total_device_ns",
        "overview.time_ns[kernel]",
        "partition.total_ns[device_compute]",
        "overview.time_ns[operator]",
    )
    outcomes = pair([run], [run], CompareOptions(conditions=tuple(parsed(f"{each} > 3%") for each in numbers))).outcomes
    assert {outcome.base for outcome in outcomes} == {10_500_000}
    *of_device, of_host = (outcome.noise for outcome in outcomes)
    assert len({*of_device}) == 1
    assert of_host > 2 * of_device[0]


def test_swapped_sides_ask_for_swapped_signs() -> None:
    there, back = judged("step_time > 3%", steady(), steady(1.1)), judged("step_time < -3%", steady(1.1), steady())
    assert there.result == back.result == FAILED
    assert (there.low, there.high) == (-back.high, -back.low)


def test_equal_recordings_alarm_once_in_twenty_at_most() -> None:
    """Processes differ by 10 % and steps by 3 %. Each side has three captures, and the limit is 3 %."""
    draw = np.random.default_rng(11)

    def side() -> list[Trace]:
        levels = 20 * np.exp(draw.normal(0, 0.1, 3))
        return [stepped_trace(level * (1 + draw.normal(0, 0.03, 8))) for level in levels]

    assert [judged("step_time > 3%", side(), side()).result for _ in range(40)].count(FAILED) <= 40 // 20 + 1


def test_outcomes_for_people_and_programs() -> None:
    outcomes = [judged("step_time > 3%", steady(), steady(1.1))]
    (row,) = table(outcomes).to_dict("records")
    shown = [row[name] for name in ("condition", "result", "base", "other", "difference")]
    assert shown == ["step_time > 3%", FAILED, "20.0 ms", "22.0 ms", "+2.00 ms"]
    (one,) = data(outcomes)
    assert one["statistic"] == "median"
    assert (one["unit"], one["base"], one["other"], one["difference"]) == ("ns", 20_000_000, 22_000_000, 2_000_000)
    assert one["interval"][0] <= 2_000_000 <= one["interval"][1]
    assert gate.outcomes((), ([], []), None, 0.0, 0.0) == ()
