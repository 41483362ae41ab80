"""The gate: what its conditions mean, and that only a limit exceeded beyond noise fails."""

from __future__ import annotations

import numpy as np
import pytest
from small_trace import small_trace
from stepped_trace import stepped_trace

from perfkit_core.comparison.gate import outcomes as gate
from perfkit_core.comparison.gate.conditions import BUDGET, CHANGE, DIFFERENCE, parsed
from perfkit_core.comparison.gate.outcomes import CANNOT_TELL, FAILED, PASSED, WITHIN_NOISE, Outcome
from perfkit_core.comparison.gate.table import data, table
from perfkit_core.comparison.pair import Asked, pair
from perfkit_core.errors import UsageError
from perfkit_core.trace import Trace

STEADY = [20.0, 20.1, 20.0, 19.9, 20.0, 20.1, 20.0, 19.9]


def judged(condition: str, base: Trace, other: Trace, noise: float = 0.0) -> Outcome:
    (found,) = pair([base], [other], Asked(conditions=(parsed(condition),), noise=noise)).outcomes
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
    ],
)
def test_conditions_mean(text: str, kind: str, limit: float, upward: bool) -> None:
    found = parsed(text)
    assert (found.kind, found.upward) == (kind, upward)
    assert found.limit == pytest.approx(limit, abs=1e-12)


def test_rows_may_hold_anything() -> None:
    assert parsed("kernels.total_ns[void f<int>(T[3]) > 2] > 5%").row == "void f<int>(T[3]) > 2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("step_time", "is no condition; write NUMBER > LIMIT"),
        ("step_time > fast", "is no condition"),
        ("step_time.p99 > 3%", "'step_time' is no number"),
        ("operators > 3%", "'operators' is no number"),
        ("step_time > 5MB", "MB does not suit step_time; %, ns, us, µs, ms, s"),
        ("memory.allocated_bytes > 5ms", "ms does not suit allocated_bytes"),
        ("step_time > -3%", "in the other direction"),
        ("step_time < 3%", "in the other direction"),
    ],
)
def test_what_is_no_condition_is_told(text: str, told: str) -> None:
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
    """20 ms, ten percent more is 22 ms, two 20.4 ms; the steps hardly vary."""
    other = stepped_trace([ms * factor for ms in STEADY])
    found = judged(condition, stepped_trace(STEADY), other)
    assert found.result == result
    assert (found.base, found.other) == (20_000_000, round(20_000_000 * factor))


def test_within_noise_fails_nothing() -> None:
    """Ten percent more, but processes of this machine differ by 20 %; or steps that differ by half."""
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
    """One matmul of 1 ms a step, then two of 1.5 ms: 3 ms instead of 1, twice the calls, 1.5 ms a call."""
    base, other = stepped_trace(STEADY), stepped_trace(STEADY, 1.5, 2)
    found = judged("operators.self_cpu_ns[fw::matmul] > 5%", base, other)
    assert (found.result, found.base, found.other, found.change_ratio) == (FAILED, 1_000_000, 3_000_000, 2.0)
    calls = judged("operators.calls[fw::matmul] > +0", base, other)
    assert (calls.result, calls.base, calls.other) == (FAILED, 1, 2)
    assert judged("operators.avg_cpu_ns[fw::matmul] > 1.6ms", base, other).result == PASSED
    assert judged("operators.self_cpu_ns > 5%", base, other).other == 3_000_000
    assert judged("partition.total_ns[compute] > +1.9ms", base, other).result == FAILED
    assert judged("step_time > 0.1%", base, other).result == PASSED


def test_a_row_that_only_one_run_has_is_0_in_the_other() -> None:
    base, other = stepped_trace(STEADY), stepped_trace(STEADY, name="fw::slow")
    found = judged("operators.self_cpu_ns[fw::slow] > 5%", base, other)
    assert (found.result, found.base, found.other, found.change_ratio) == (FAILED, 0, 1_000_000, None)


def test_shares_are_compared_as_shares() -> None:
    """1 of 20 ms and 2 of 20 ms in operators: about 5 % and 10 % of the step."""
    found = judged("partition.ratio[compute] > +0.04", stepped_trace(STEADY), stepped_trace(STEADY, 2.0))
    assert found.result == FAILED
    assert (found.base, found.other) == (pytest.approx(0.05, abs=1e-4), pytest.approx(0.1, abs=1e-4))


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("nothing.calls > 3%", "there is no view 'nothing'; known: "),
        ("operators.speed > 3%", "operators has no number 'speed'; known: calls, "),
        ("operators.self_cpu_ns[relu] > 3%", "no row 'relu' in operators; known: fw::matmul"),
        ("steps.start_ns > 3%", None),
        ("operators.self_cpu_bytes[fw::matmul] > 3%", "is not known in base"),
    ],
)
def test_what_is_not_there_is_told(condition: str, told: str | None) -> None:
    base = stepped_trace(STEADY)
    if told is None:
        assert judged(condition, base, base).result == PASSED
        return
    with pytest.raises(UsageError) as error:
        judged(condition, base, base)
    assert told in str(error.value)


def test_totals_of_nested_operators_are_not_added_up() -> None:
    """fw::add lies inside of fw::matmul: its time would count twice."""
    with pytest.raises(
        UsageError, match=r"operators.total_cpu_ns is not one number: 2 rows; name one of them in brackets"
    ):
        judged("operators.total_cpu_ns > 3%", small_trace(), small_trace())
    found = judged("operators.self_cpu_ns > 3%", small_trace(), small_trace())
    assert found.base == 4_999_500  # 5 ms in each step, once, but for the launch of 500 ns


def test_step_time_without_steps() -> None:
    none = small_trace().slice(0, 0)
    with pytest.raises(UsageError, match="step_time is not known"):
        pair([none], [small_trace()], Asked(conditions=(parsed("step_time > 3%"),)))


def test_swapped_sides_ask_for_swapped_signs() -> None:
    base, other = stepped_trace(STEADY), stepped_trace([ms * 1.1 for ms in STEADY])
    there, back = judged("step_time > 3%", base, other), judged("step_time < -3%", other, base)
    assert there.result == back.result == FAILED
    assert (there.low, there.high) == (-back.high, -back.low)


def test_equal_recordings_alarm_once_in_twenty_at_most() -> None:
    """Processes differ by 10 %, steps by 3 %; three captures a side; the gate is set to 3 %."""
    draw = np.random.default_rng(11)

    def side() -> list[Trace]:
        levels = 20 * np.exp(draw.normal(0, 0.1, 3))
        return [stepped_trace(level * (1 + draw.normal(0, 0.03, 8))) for level in levels]

    condition = Asked(conditions=(parsed("step_time > 3%"),))
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
    assert (one["unit"], one["base"], one["other"], one["difference"]) == ("ns", 20_000_000, 22_000_000, 2_000_000)
    assert one["interval"][0] <= 2_000_000 <= one["interval"][1]
    assert gate.outcomes((), gate.Gated(([], []), None, 0.0)) == ()
