"""Rule 34: a rank that is slower than the median of the others, which wait for it. Times are in µs. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.trace.model.collective import AWAITED
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.ranks import KERNEL
from tests.support.rule_cases import check_rule

US = 1000


def rank(number: int, compute: int, loading: int = 0, name: str = KERNEL, clock: int = 0, items: int = 0) -> Trace:
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
        if items:
            made.append(host("aten::mm", "operator", 700, 1, shapes=f"[[{items}, 8]]"))
        at = (1000 * step + clock) * US
        rows += [one | {"start_ns": one["start_ns"] * US + at, "dur_ns": one["dur_ns"] * US} for one in made]
    return trace([row for row in rows if row["dur_ns"]], rank=number)


def job(compute: Sequence[int], loading: Sequence[int] = (0, 0, 0)) -> Trace:
    """Return up to three ranks; the clock of the second rank is 3 ms ahead."""
    clocks = (0, 3000, 0)
    return concat_traces([rank(n, compute[n], loading[n], clock=clocks[n]) for n in range(len(compute))])


def waiting(microseconds: int, late: int = 5) -> Trace:
    """Return one rank whose collectives begin with a wait for the rank ``late``."""
    recording = rank(0, 200)
    rows = [row for row, name in enumerate(recording.events["name"].to_pylist()) if name == KERNEL]
    waits = {"row": rows, "awaited": [late] * 3, "after_ns": [0] * 3, "wait_ns": [microseconds * US] * 3}
    return recording.with_tables(awaited_ranks=AWAITED.table(waits))


def test_rank_skew() -> None:
    """Without waits, the steps of ranks 0 and 1 of the first case take 700 µs: 206 µs, a transfer of 94 µs, and 400 µs
    after it. In the second case, making a batch takes 10, 60 and 310 µs: rank 2 takes 275 µs longer than the median of
    the others, and 250 µs longer than the next rank, so no more can be saved."""
    roots = [rank(n, 200 + 100 * n, name="ncclDevKernel_Broadcast_RING_LL") for n in range(2)]
    check_rule("rank-skew", {
        "a slow device": job((200, 200, 500)),
        "a slow loader": job((200, 200, 200), (10, 60, 310)),
        "of two ranks, one takes 40 µs longer to load and 60 µs to compute": job((200, 260), (10, 50)),
        "50 of 1000 µs": job((200, 200, 250)),
        "51 of 1000 µs": job((200, 200, 251)),
        "equal ranks": job((300, 300, 300)),
        "one rank": rank(0, 200),
        "one rank, whose device waits for rank 5 for 300 of 399 µs": waiting(300),
        "one rank, whose device waits for rank 5 for 50 of 399 µs": waiting(50),
        "collectives with a root": concat_traces(roots),
        "an incomplete recording": job((300, 300, 500)).with_meta(incomplete=True),
    })  # fmt: skip


def test_the_largest_number_of_a_rank_takes_no_memory() -> None:
    late = (1 << 31) - 1
    found = {advice.rule: advice for advice in advise(waiting(300, late)).advice}
    assert found["rank-skew"].candidate.evidence["slow_rank"] == late


@pytest.mark.parametrize(("items", "late"), [(4, "unknown"), (8, "larger")])
def test_items_are_spread_by_size_if_those_of_the_slow_rank_are_larger(items: int, late: str) -> None:
    """Rank 2 computes longer. Its inputs have as many items as those of the others, or twice as many."""
    ranks = [rank(0, 200, items=4), rank(1, 200, items=4), rank(2, 500, items=items)]
    (advice,) = [item for item in advise(concat_traces(ranks)).advice if item.rule == "rank-skew"]
    assert advice.candidate.words["late"] == late
