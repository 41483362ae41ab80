"""Rule 34: a rank that is slower than the median rank, while the others wait for it. Times are in µs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.rank_skew import find as skewed
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.ranks import KERNEL

US = 1000


def rank(number: int, compute: int, loading: int = 0, name: str = KERNEL, clock: int = 0) -> Trace:
    """Return three steps of 1000 µs. Each step has a batch, a kernel of ``compute`` µs, and an all-reduce that ends at
    600."""
    rows = []
    for step in range(3):
        begin = loading + 5
        made = [
            host(f"step {step}", "step", 0, 1000, step=step),
            host("next batch", "dataloader", 0, loading, phase="dataloader"),
            host("launch k", "runtime", loading, 10, correlation=10 * step + 1),
            device("k", "kernel", begin, compute, 10 * step + 1),
            host("launch c", "runtime", loading + 10, 10, correlation=10 * step + 2),
            device(name, "kernel", begin + compute + 1, 600 - begin - compute - 1, 10 * step + 2),
            host("cudaDeviceSynchronize", "sync", loading + 20, 604 - loading - 20),
        ]
        at = (1000 * step + clock) * US
        rows += [one | {"start_ns": one["start_ns"] * US + at, "dur_ns": one["dur_ns"] * US} for one in made]
    return trace([row for row in rows if row["dur_ns"]], rank=number)


def job(compute: Sequence[int], loading: Sequence[int] = (0, 0, 0)) -> RuleInput:
    """Return three ranks; the clock of the second rank is 3 ms ahead."""
    clocks = (0, 3000, 0)
    return RuleInput(concat_traces([rank(n, compute[n], loading[n], clock=clocks[n]) for n in range(3)]))


def test_a_slow_device_keeps_the_others_waiting() -> None:
    """Without waits, the steps of ranks 0 and 1 take 700 µs: 206 µs, a transfer of 94 µs, and 400 µs after it. The
    steps of rank 2 take 1000 µs."""
    facts = job((200, 200, 500))
    [found] = skewed(facts)
    assert (found.evidence["slow_rank"], found.evidence["skew_ns"], found.evidence["part"]) == (2, 300 * US, "device")
    assert (found.evidence["part_ns"], found.evidence["median_part_ns"]) == (500 * US, 200 * US)
    assert found.evidence["slowest_in_steps"] == 3
    # rank 2 becomes like the fastest and the median rank (200 µs), or is halfway between (350 µs)
    prediction = predict(facts, found)
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (700 * US, 700 * US, 850 * US)


def test_a_slow_loader_keeps_the_others_waiting() -> None:
    """Making a batch takes 10, 60 and 310 µs. So rank 2 is 250 µs later than rank 1, which is 50 µs later than rank
    0."""
    facts = job((200, 200, 200), (10, 60, 310))
    [found] = skewed(facts)
    assert (found.evidence["slow_rank"], found.evidence["skew_ns"], found.evidence["part"]) == (2, 250 * US, "loading")
    prediction = predict(facts, found)
    # rank 2 becomes like the fastest rank, so rank 1 is last; or like the median rank; or halfway (185 µs)
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (750 * US, 750 * US, 875 * US)


@pytest.mark.parametrize(("slow", "fires"), [(250, False), (251, True)])
def test_a_twentieth_of_the_step_is_the_threshold(slow: int, fires: bool) -> None:
    assert bool(skewed(job((200, 200, slow)))) == fires


def test_equal_ranks_have_no_skew() -> None:
    assert skewed(job((300, 300, 300))) == []


def test_ranks_steps_and_collectives_are_needed() -> None:
    with pytest.raises(NotEvaluableError, match="only one rank"):
        skewed(RuleInput(rank(0, 200)))
    roots = [rank(n, 200 + 100 * n, name="ncclDevKernel_Broadcast_RING_LL") for n in range(2)]
    with pytest.raises(NotEvaluableError, match="no collectives were matched"):
        skewed(RuleInput(concat_traces(roots)))


def test_a_rank_that_is_cut_off_is_not_compared() -> None:
    whole = job((300, 300, 500)).trace
    assert skewed(RuleInput(whole))
    with pytest.raises(NotEvaluableError, match="is cut off"):
        skewed(RuleInput(whole.with_meta(incomplete=True)))
