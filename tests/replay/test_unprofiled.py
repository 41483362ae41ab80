"""The replay without the work of the profiler."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit_core.advice.recording_cost import recording_cost
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.replay.transforms import Quantity
from perfkit_core.replay.unprofiled import charges, unprofiled
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import call, kernel, op, steps
from tests.support.side_facts import with_clock

COST = Quantity(500, 1_000, 4_000, "a test")


def recording() -> Trace:
    """Return steps of 100 µs with 5 operators of 10 µs, and gaps of 10 µs around them."""
    return steps([op("add", 10 + 20 * at, 10) for at in range(5)], 110)


def timed(*times_ns: int, recorded_ns: int = 110_000) -> TimedSteps:
    off = [TimedStep(10 + at, False, ns) for at, ns in enumerate(times_ns)]
    return TimedSteps((*off, TimedStep(20, True, recorded_ns)))


def test_waits_for_a_processor_are_no_other_speed_of_the_process() -> None:
    """A process that got a tenth of a processor runs ten times faster without such waits: more than other speeds."""
    facts = RuleInput(recording())
    found = unprofiled(facts.replay, COST, 11_000, facts.played_ns)
    assert found.step_ns == pytest.approx(25_000, rel=0.1)
    found = unprofiled(facts.replay, COST, 11_000, facts.played_ns, lost=0.9)
    assert found.step_ns == pytest.approx(11_000, rel=1e-2)


def test_an_operator_is_charged_before_and_after_itself() -> None:
    facts = RuleInput(recording())
    replay = facts.replay
    charge = charges(replay)
    rows = np.flatnonzero(replay.trace.rows("kind", "operator"))
    assert (charge[replay.first[rows]] == 0).all()  # the profiler works outside of the time that it records
    assert (charge[replay.after[rows][:4]] == 1).all()  # half of the operator before, half of the operator after
    assert charge.sum() == pytest.approx(3 * 5 + 2.5)  # and the three steps; nothing precedes the first one


@pytest.mark.parametrize(("measured", "event_ns"), [(107_000, 500), (105_500, 750), (104_000, 1_000)])
def test_the_cost_is_fitted_to_the_measured_step(measured: int, event_ns: int) -> None:
    # a step has five operators, and half of the cost of its own event at either end
    facts = RuleInput(recording())
    found = unprofiled(facts.replay, COST, measured, facts.played_ns)
    assert found.step_ns == pytest.approx(measured, abs=2)
    assert found.event_ns == pytest.approx(event_ns, rel=0.2)
    assert found.speed == pytest.approx(1, abs=0.01)
    assert found.error == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("measured", [50_000, 150_000])
def test_another_speed_explains_what_the_profiler_cannot(measured: int) -> None:
    facts = RuleInput(recording())
    found = unprofiled(facts.replay, COST, measured, facts.played_ns)
    assert found.event_ns in (COST.low, COST.mid)
    assert (found.speed < 1) == (measured < 100_000)
    assert found.step_ns == pytest.approx(measured, rel=1e-3)


def test_without_a_measured_step_the_likely_cost_is_taken_out() -> None:
    facts = RuleInput(recording())
    found = unprofiled(facts.replay, COST, None, facts.played_ns)
    assert (found.event_ns, found.speed, found.error) == (COST.mid, 1, None)
    assert 100_000 < found.step_ns < 110_000


def test_the_time_of_device_work_stays() -> None:
    rows = [op("mm", 0, 20), call("launch", 5, 10, 1), kernel("gemm", 10, 90, 1), op("sync", 20, 80, kind="sync")]
    facts = RuleInput(steps(rows))
    found = unprofiled(facts.replay, COST, 10_000, facts.played_ns)
    graph, played = facts.replay.graph, found.replay.graph
    assert (played.dur_ns[~graph.on_host] == graph.dur_ns[~graph.on_host]).all()
    assert (played.dur_ns[graph.on_host] <= graph.dur_ns[graph.on_host]).all()
    assert (found.error or 0) > 1  # a step cannot be shorter than its kernel, and the base error says so


def test_the_speed_of_the_host_is_unknown_if_the_step_follows_the_device() -> None:
    """Without the cost of events, the step takes 99 µs. Faster host work does not shorten it to the measured 50 µs."""
    rows = [op("mm", 0, 20), call("launch", 5, 10, 1), kernel("gemm", 10, 90, 1), op("sync", 20, 80, kind="sync")]
    facts = RuleInput(steps(rows))
    found = unprofiled(facts.replay, COST, 50_000, facts.played_ns)
    assert (found.speed, found.step_ns) == (1, 99_000)


def test_predictions_start_from_the_measured_step() -> None:
    facts = RuleInput(with_clock(recording(), {"-": timed(60_000, 55_000, 55_000)}))
    assert facts.training.step_ns == pytest.approx(55_000, rel=0.01)
    assert facts.step_ns == 110_000  # the recorded step
    assert facts.slowdown == pytest.approx(2, rel=0.01)


def test_a_framework_without_adapter_has_no_cost() -> None:
    assert recording_cost(TraceMeta(source="", format="", framework="other")).ends == (0, 0, 0)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_options_add_to_the_cost(framework: str) -> None:
    plain = recording_cost(TraceMeta(source="", format="", framework=framework))
    shapes = recording_cost(TraceMeta(source="", format="", framework=framework, options={"record_shapes": True}))
    off = recording_cost(TraceMeta(source="", format="", framework=framework, options={"record_shapes": False}))
    assert all(more > less > 0 for less, more in zip(plain.ends, shapes.ends, strict=True))
    assert off.ends == plain.ends
