"""The rank that comes last at a collective, and what holds it, on two ranks with times that are worked out by hand."""

from __future__ import annotations

import pytest

from perfkit_core.base.language.messages import english
from perfkit_core.causes.last_ranks import last_ranks
from perfkit_core.trace.model.collective import AWAITED
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import device, host, trace
from tests.support.ranks import KERNEL, collective


def rank(number: int, arrives: int, begins: int = 0, decodes: int = 0, of: int = 2) -> Trace:
    """Return a step of 5,000 ns with a collective that ends at 4,500. Before its launch, the host decodes an image."""
    facts = collective(arrives, 4_500, group_size=of)
    return trace(
        [
            host("step 7", "step", begins, 5_000 - begins, step=7),
            host("aten::mm", "operator", begins + 10, 60),
            host("launch", "runtime", begins + 20, 10, correlation=1),
            device("gemm", "kernel", begins + 40, 60, 1),
            host("decode_jpeg", "python", begins + 100, max(decodes, 1)),
            host("launch", "runtime", arrives - 60, 20, correlation=2),
            device(KERNEL, "kernel", facts.pop("start_ns"), facts.pop("dur_ns"), 2, **facts),
        ],
        rank=number,
    ).with_meta(world_size=of)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (rank(1, 4_000, decodes=2_900), "Of the time by which it comes later, 96.6% is in decode_jpeg."),
        (rank(1, 4_000, begins=3_000, decodes=800), "Why is unknown: it has no events for 66.7% of the time"),
    ],
    ids=["decodes", "recorded late"],
)
def test_the_cause_of_a_delay(late: Trace, said: str) -> None:
    """Rank 0 arrives at 1,000 and rank 1 at 4,000. Rank 1 decodes for 2,899 ns longer than rank 0."""
    (sentence,) = (english(text) for text in last_ranks(concat_traces([rank(0, 1_000), late])))
    assert sentence.startswith("Other ranks wait 3.00 µs in total for rank 1 (number of collectives: 1, of ranks: 1). ")
    assert said in sentence


def test_what_all_ranks_do_makes_none_of_them_late() -> None:
    """Each rank decodes for 800 ns. Afterwards, nothing is recorded on rank 1 for 200 ns longer."""
    ranks = [rank(number, arrives, decodes=800) for number, arrives in ((0, 1_000), (1, 1_200))]
    (sentence,) = (english(text) for text in last_ranks(concat_traces(ranks)))
    assert sentence.endswith("Of the time by which it comes later, 100% is in host code that was not recorded.")


def test_a_missing_rank_may_have_come_later() -> None:
    ranks = [rank(0, 1_000, of=3), rank(1, 4_000, decodes=2_900, of=3)]
    (sentence,) = (english(text) for text in last_ranks(concat_traces(ranks)))
    assert sentence.startswith("Other ranks wait at least 3.00 µs in total for rank 1 ")


def test_equal_arrivals_are_no_delay() -> None:
    ranks = [rank(number, 1_000) for number in (0, 1)]
    assert not [*last_ranks(concat_traces(ranks))]
    assert not [*last_ranks(ranks[0])]


def test_a_rank_that_was_not_read_is_named_if_a_device_waits_for_it() -> None:
    """Of 3,500 ns in the collective, 3,100 are a wait for rank 2. They outweigh the 300 ns by which rank 1 is later."""
    both = concat_traces([rank(0, 1_000, of=3), rank(1, 1_300, of=3)])
    rows = [row for row, name in enumerate(both.events["name"].to_pylist()) if name == KERNEL]
    waits = {"row": rows, "awaited": [2, 2], "after_ns": [10, 10], "wait_ns": [3_100, 2_800]}
    (sentence,) = map(english, last_ranks(both.with_tables(awaited_ranks=AWAITED.table(waits))))
    assert sentence == "Rank 2, for which others wait, was not read: its recording would show what delays it."
