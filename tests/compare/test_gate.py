"""Tests of the gate: the meaning of its conditions, and that a condition only fails if its limit is exceeded beyond
noise."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit_core.api import summarize
from perfkit_core.compare.gate import conditions as gate
from perfkit_core.compare.gate.conditions import (
    BUDGET,
    CANNOT_TELL,
    CHANGE,
    DIFFERENCE,
    FAILED,
    PASSED,
    WITHIN_NOISE,
    Outcome,
    data,
    parsed,
    table,
)
from perfkit_core.compare.pair import CompareOptions, pair
from perfkit_core.errors import UsageError
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.small_trace import small_trace
from tests.support.stepped_trace import stepped_trace

STEADY = [20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9]
STEPS = 60


def judged(condition: str, base: Trace, other: Trace, noise: float = 0.0) -> Outcome:
    (found,) = pair([base], [other], CompareOptions(conditions=(parsed(condition),), noise=noise)).outcomes
    return found


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
    found = parsed(text)
    assert (found.kind, found.upward) == (kind, upward)
    assert found.limit == pytest.approx(limit, abs=1e-12)


def test_rows_may_hold_anything() -> None:
    assert parsed("kernels.total_ns[void f<int>(T[3]) > 2] > 5%").row == "void f<int>(T[3]) > 2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("step_time", "is not a condition; write NUMBER > LIMIT"),
        ("step_time > fast", "is not a condition"),
        ("step_time.p99 > 3%", "'step_time' is not a number"),
        ("operators > 3%", "'operators' is not a number"),
        ("step_time > 5MB", "MB is not a unit of step_time; use %, ns, µs, ms, s, us"),
        ("step_time > 3", "the limit of step_time needs a unit; use %, ns, µs, ms, s, us"),
        ("memory.allocated_bytes > 5ms", "ms is not a unit of allocated_bytes"),
        ("step_time > -3%", "--fail-on 'step_time > -3%': the limit after > has the wrong sign"),
        ("step_time < 3%", "after < has the wrong sign (+ or -); write > 3% for an increase, or < -3% for a decrease"),
    ],
)
def test_invalid_conditions_raise_errors(text: str, told: str) -> None:
    with pytest.raises(UsageError, match="--fail-on") as error:
        parsed(text)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("condition", "factor", "result"),
    [
        ("step_time > 3%", 1.10, FAILED),
        ("step_time > 3%", 1.02, PASSED),
        ("step_time > 3%", 0.90, PASSED),
        ("step_time < -3%", 0.90, FAILED),
        ("step_time > +1ms", 1.10, FAILED),
        ("step_time > +3ms", 1.10, PASSED),
        ("step_time > 21ms", 1.10, FAILED),
        ("step_time > 23ms", 1.10, PASSED),
        ("step_time < 18.5ms", 0.90, FAILED),
    ],
)
def test_steady_steps(condition: str, factor: float, result: str) -> None:
    """Steps of 20 ms hardly vary. With 10 % more they take 22 ms, with 2 % more 20.4 ms."""
    other = stepped_trace([ms * factor for ms in STEADY])
    found = judged(condition, stepped_trace(STEADY), other)
    assert found.result == result
    assert (found.base, found.other) == (20_000_000, round(20_000_000 * factor))


def test_within_noise_fails_nothing() -> None:
    """An increase of 10 % is within noise if processes differ by 20 %, or if steps differ by half."""
    other = stepped_trace([ms * 1.1 for ms in STEADY])
    assert judged("step_time > 3%", stepped_trace(STEADY), other, noise=0.2).result == WITHIN_NOISE
    wild = [20, 31, 18, 40, 22, 15, 33, 20]
    assert (
        judged("step_time > 3%", stepped_trace(wild), stepped_trace([ms * 1.1 for ms in wild])).result == WITHIN_NOISE
    )


def test_one_step_cannot_tell() -> None:
    assert judged("step_time > 3%", stepped_trace([20]), stepped_trace([40])).result == CANNOT_TELL
    assert judged("step_time > 3%", stepped_trace([20]), stepped_trace([20])).result == PASSED


def test_a_number_of_a_view_is_taken_in_every_step() -> None:
    """One matmul of 1 ms per step becomes two of 1.5 ms: 3 ms instead of 1 ms, and twice as many calls."""
    base, other = stepped_trace(STEADY), stepped_trace(STEADY, 1.5, 2)
    found = judged("operators.self_cpu_ns[fw::matmul] > 5%", base, other)
    assert (found.result, found.base, found.other, found.change_ratio) == (FAILED, 1_000_000, 3_000_000, 2.0)
    calls = judged("operators.calls[fw::matmul] > +0", base, other)
    assert (calls.result, calls.base, calls.other) == (FAILED, 1, 2)
    assert judged("operators.avg_cpu_ns[fw::matmul] > 1.6ms", base, other).result == PASSED
    assert judged("operators.self_cpu_ns > 5%", base, other).other == 3_000_000
    assert judged("partition.total_ns[compute] > +1.9ms", base, other).result == FAILED
    assert judged("step_time > 0.1%", base, other).result == PASSED


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("operators.calls[aten::mm] > 10%", FAILED),
        ("operators.calls[aten::mm] > 1.5", FAILED),
        ("operators.calls[aten::mm] > +0.9", PASSED),
        ("operators.calls[aten::mm] > 1.9", PASSED),
        ("operators.calls[aten::mm] > 1.78", FAILED),
        ("operators.calls[aten::mm] > 1.8", WITHIN_NOISE),
    ],
)
def test_counts_are_means_that_need_not_be_whole(condition: str, result: str) -> None:
    """One step of ten has one call, and the others have two: the mean is 1.9 calls per step."""
    steps = [host(f"step {at}", "step", at * 1_000, 900, step=at) for at in range(10)]
    calls = [host("aten::mm", "operator", at * 500 + 100, 300) for at in range(20)]
    base, other = trace(steps + calls[::2]), trace(steps + calls[:1] + calls[2:])
    found = judged(condition, base, other)
    assert (found.result, found.base, found.other, found.difference) == (result, 1, 1.9, 0.9)
    assert found.change_ratio == 0.9
    assert table([found])[["base", "other", "difference"]].to_numpy().tolist() == [["1", "1.9", "+0.9"]]


def test_bytes_are_exact() -> None:
    """If this number of bytes were stored in billionths, it would change."""
    size = 8_589_934_543
    copied = trace([host("copy", "runtime", 0, 2, correlation=1), device("copy", "memcpy", 5, 9, 1, bytes=size)])
    found = judged(f"memcpy.bytes > {size}B", copied, copied)
    assert (found.result, found.other) == (PASSED, size)


def test_a_budget_of_shares_fails_beyond_noise_only() -> None:
    """Operators take 1 or 2 ms of about 20 ms, so their shares are 5 or 10 % of the step. The shares vary by half a per
    cent of their value."""
    base, other = stepped_trace(STEADY), stepped_trace(STEADY, 2.0)
    assert judged("partition.ratio[compute] > 0.06", base, other).result == FAILED
    assert judged("partition.ratio[compute] > 0.09999", base, other).result == WITHIN_NOISE
    assert judged("partition.ratio[compute] < 0.15", base, other).result == FAILED
    assert judged("partition.ratio[compute] > 0.11", base, other).result == PASSED


def test_several_ranks_count_as_a_summary_counts_them() -> None:
    """In the view of the graph, the times of each rank are relative to its first operator."""
    first = trace([host("fw::add", "operator", 0, 10)], rank=0)
    later = trace([host("fw::add", "operator", 700, 10), host("fw::mul", "operator", 720, 10)], rank=1)
    both = concat_traces([first, later])
    found = judged("graph.start_ns[fw::mul] > 20ns", both, both)
    assert summarize(both, "graph").set_index("name").loc["fw::mul", "start_ns"] == 20
    assert (found.result, found.base) == (PASSED, 20)


def test_a_row_that_only_one_run_has_is_0_in_the_other() -> None:
    base, other = stepped_trace(STEADY), stepped_trace(STEADY, name="fw::slow")
    found = judged("operators.self_cpu_ns[fw::slow] > 5%", base, other)
    assert (found.result, found.base, found.other, found.change_ratio) == (FAILED, 0, 1_000_000, None)


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


@pytest.mark.parametrize("condition", ["> 500B", "> +500B", "> 10%"])
def test_a_peak_is_that_of_the_whole_capture(condition: str) -> None:
    """One of the 60 steps has a peak of 1,000 bytes."""
    found = judged(f"memory_places.peak_bytes[cpu] {condition}", memory_trace(), memory_trace(highest=1000))
    assert (found.result, found.base, found.other, found.noise) == (FAILED, 100, 1000, 0)
    assert summarize(memory_trace(highest=1000), "memory_places")["peak_bytes"].to_list() == [1000]
    assert (data([found])[0]["samples"], data([found])[0]["statistic"]) == ("captures", "mean")


def test_several_captures_have_a_peak_each() -> None:
    base, other = [memory_trace()] * 3, [memory_trace(highest=size) for size in (1000, 1100, 1200)]
    (found,) = pair(base, other, CompareOptions(conditions=(parsed("memory_places.peak_bytes[cpu] > 10%"),))).outcomes
    assert (found.result, found.base, found.other) == (FAILED, 100, 1100)
    assert found.noise is not None
    assert found.noise > 0


@pytest.mark.parametrize(
    ("number", "least", "value"),
    [
        ("memory_leaks.bytes", "1B", 7 * (STEPS - 1)),  # no step follows the last one
        ("memory_leaks.steps", "0", STEPS - 1),
        ("memory_leaks.blocks", "0", STEPS - 1),
        ("memory_peak.bytes", "1B", 7 * STEPS),
    ],
)
def test_leaks_are_measured_over_whole_captures(number: str, least: str, value: int) -> None:
    found = judged(f"{number}[fw::leak] > +{least}", memory_trace(), memory_trace(kept=7))
    assert (found.result, found.base, found.other) == (FAILED, 0, value)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("memory_leaks.bytes", 9 * (STEPS - 1)),
        ("memory_leaks.blocks[cpu]", 2 * (STEPS - 1)),
        ("memory_leaks.avg_step_bytes[cpu]", 9),
        ("memory_leaks.avg_step_bytes[matmul]", 7),
        ("memory_peak.bytes[cpu]", 9 * (STEPS - 1) + 100 + 9),
    ],
)
def test_a_leak_condition_fails_if_several_operators_leak(number: str, value: int) -> None:
    least = "1B" if "bytes" in number else "0"
    healthy, leaking = memory_trace(), memory_trace(kept=7, scaled=2)
    assert judged(f"{number} > +{least}", healthy, healthy).result == PASSED
    found = judged(f"{number} > +{least}", healthy, leaking)
    assert (found.result, found.other) == (FAILED, value)


def test_steps_with_leaks_have_no_total_over_operators() -> None:
    """The numbers of steps of several operators do not add up, so a condition on all operators is refused even if it
    passes at first."""
    with pytest.raises(UsageError, match=r"memory_leaks.steps is unknown in base"):
        judged("memory_leaks.steps > 0", memory_trace(), memory_trace())


def test_leaks_are_unknown_without_memory_events() -> None:
    with pytest.raises(UsageError, match=r"memory_leaks.bytes\[fw::leak\] is unknown in other"):
        judged("memory_leaks.bytes[fw::leak] > +1B", memory_trace(kept=7), stepped_trace(STEADY))


@pytest.mark.parametrize("row", ["fw::add", "cpu", "fw::add, 0, cpu"])
@pytest.mark.parametrize("kept", [0, 7])
def test_a_leak_condition_passes_without_leaks(row: str, kept: int) -> None:
    """Memory of fw::add is always freed. The condition passes if there is no leak, and if only fw::leak leaks."""
    found = judged(f"memory_leaks.avg_step_bytes[{row}] > +1KiB", memory_trace(kept=kept), memory_trace(kept=kept))
    assert found.result == PASSED
    assert found.other == (7 if kept and row == "cpu" else 0)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("memory_leaks.bytes[fw::ad]", "in memory_leaks, and no recorded event has this name; existing rows: none"),
        ("memory_places.peak_bytes[fw::add]", "no row 'fw::add' in memory_places; existing rows: 0, cpu"),
    ],
)
def test_a_leak_condition_that_cannot_fail_raises_an_error(number: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        judged(f"{number} > +1B", memory_trace(), memory_trace())
    assert told in str(error.value)


def test_the_longest_call_is_that_of_the_whole_capture() -> None:
    """Calls take 1 ms, but one of 60 takes 2 ms. Only several captures show how much this number varies."""
    calls = [host("fw::add", "operator", at * 5_000 + 100, 2_000 if at == 1 else 1_000) for at in range(STEPS)]
    steps = [host(f"step {at}", "step", at * 5_000, 4_000, step=at) for at in range(STEPS)]
    longest = trace(steps + calls)
    found = judged("operators.max_cpu_ns[fw::add] > 1500ns", longest, longest)
    assert (found.result, found.other, found.noise) == (CANNOT_TELL, 2_000, None)
    condition = CompareOptions(conditions=(parsed("operators.max_cpu_ns[fw::add] > 1500ns"),))
    assert pair([longest] * 2, [longest] * 2, condition).outcomes[0].result == FAILED


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
    found = trace(rows)

    def noise(number: str) -> float | None:
        (one,) = pair([found], [found], CompareOptions(conditions=(parsed(f"{number} > 3%"),))).outcomes
        assert one.base == 10_500_000
        return one.noise

    of_device = noise("kernels.total_device_ns")
    assert noise("overview.time_ns[kernel]") == noise("partition.total_ns[device_compute]") == of_device
    assert of_device is not None
    assert (noise("overview.time_ns[operator]") or 0) > 2 * of_device


def test_shares_are_compared_as_shares() -> None:
    """Operators take 1 or 2 of 20 ms, which is about 5 or 10 % of the step."""
    found = judged("partition.ratio[compute] > +0.04", stepped_trace(STEADY), stepped_trace(STEADY, 2.0))
    assert found.result == FAILED
    assert (found.base, found.other) == (pytest.approx(0.05, abs=1e-4), pytest.approx(0.1, abs=1e-4))


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("nothing.calls > 3%", "unknown view 'nothing'; known: "),
        ("operators.speed > 3%", "operators has no number 'speed'; columns with numbers: calls, "),
        ("operators.self_cpu_ns[relu] > 3%", "no row 'relu' in operators; existing rows: fw::matmul"),
        ("steps.start_ns > 3%", None),
        ("operators.self_cpu_bytes[fw::matmul] > 3%", "is unknown in base"),
        (
            "modules.total_cpu_ns > 3%",
            "modules.total_cpu_ns is unknown in base; list the recorded",
        ),
        ("modules.speed > 3%", "modules has no number 'speed'; columns with numbers: none, because the view is empty"),
    ],
)
def test_unknown_numbers_raise_errors(condition: str, told: str | None) -> None:
    base = stepped_trace(STEADY)
    if told is None:
        assert judged(condition, base, base).result == PASSED
        return
    with pytest.raises(UsageError) as error:
        judged(condition, base, base)
    assert told in str(error.value)


def test_totals_of_nested_operators_are_not_added_up() -> None:
    """fw::add runs inside fw::matmul, so a sum of their total times would count its time twice."""
    with pytest.raises(UsageError, match=r"is not a single number, because it has 2 rows; write the name of one row"):
        judged("operators.total_cpu_ns > 3%", small_trace(), small_trace())
    with pytest.raises(UsageError, match=r"in brackets, or use self_cpu_ns, whose rows can be summed"):
        judged("operators.total_cpu_ns > 3%", small_trace(), small_trace())
    with pytest.raises(UsageError, match=r"write the name of one row in brackets: COLUMN\[ROW\]"):
        judged("operators.total_cpu_ratio > 3%", small_trace(), small_trace())
    found = judged("operators.self_cpu_ns > 3%", small_trace(), small_trace())
    assert found.base == 4_999_500  # 5 ms per step, less the launch of 500 ns


def test_step_time_without_steps() -> None:
    none = small_trace().slice(0, 0)
    with pytest.raises(UsageError, match="step_time is unknown"):
        pair([none], [small_trace()], CompareOptions(conditions=(parsed("step_time > 3%"),)))


def test_swapped_sides_ask_for_swapped_signs() -> None:
    base, other = stepped_trace(STEADY), stepped_trace([ms * 1.1 for ms in STEADY])
    there, back = judged("step_time > 3%", base, other), judged("step_time < -3%", other, base)
    assert there.result == back.result == FAILED
    assert (there.low, there.high) == (-back.high, -back.low)


def test_equal_recordings_alarm_once_in_twenty_at_most() -> None:
    """Processes differ by 10 % and steps by 3 %. Each side has three captures, and the limit is 3 %."""
    draw = np.random.default_rng(11)

    def side() -> list[Trace]:
        levels = 20 * np.exp(draw.normal(0, 0.1, 3))
        return [stepped_trace(level * (1 + draw.normal(0, 0.03, 8))) for level in levels]

    condition = CompareOptions(conditions=(parsed("step_time > 3%"),))
    failed = [pair(side(), side(), condition).outcomes[0].result for _ in range(40)].count(FAILED)
    assert failed <= 40 // 20 + 1


def test_outcomes_for_people_and_programs() -> None:
    found = [judged("step_time > 3%", stepped_trace(STEADY), stepped_trace([ms * 1.1 for ms in STEADY]))]
    (row,) = table(found).to_dict("records")
    assert (row["condition"], row["result"], row["base"], row["other"]) == (
        "step_time > 3%",
        FAILED,
        "20.0 ms",
        "22.0 ms",
    )
    assert row["difference"] == "+2.00 ms"
    (one,) = data(found)
    assert one["statistic"] == "median"
    assert (one["unit"], one["base"], one["other"], one["difference"]) == ("ns", 20_000_000, 22_000_000, 2_000_000)
    assert one["interval"][0] <= 2_000_000 <= one["interval"][1]
    assert gate.outcomes((), ([], []), None, 0.0, 0.0) == ()
