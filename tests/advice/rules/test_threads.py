"""Rule 14: the recorded threads of all processes compared with the recorded cores."""

from __future__ import annotations

import pytest

from perfkit_core.advice.rules.thread_oversubscription import find as oversubscribed
from perfkit_core.model.trace import Trace
from tests.support.advised import found, op, steps, why_not


def recorded(**numbers: object) -> Trace:
    return steps([op("add", 0, 10)]).with_meta(extra={"host": numbers})


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_more_threads_than_cores(framework: str) -> None:
    (one,) = found(oversubscribed, recorded(cores=8, threads=4, processes=4).with_meta(framework=framework))
    assert (one.method, one.after_ns) == ("none", None)  # no saving is predicted
    assert one.evidence["proposed_threads"] == 2
    assert one.fill["threads"] == "2"


def test_as_many_threads_as_cores() -> None:
    assert found(oversubscribed, recorded(cores=8, threads=4, processes=2)) == []
    assert found(oversubscribed, recorded(cores=8, threads=8)) == []
    assert len(found(oversubscribed, recorded(cores=8, threads=9))) == 1


@pytest.mark.parametrize(
    "numbers", [{}, {"cores": 8}, {"threads": 8}, {"cores": 0, "threads": 8}, {"cores": True, "threads": 4}]
)
def test_what_was_not_recorded(numbers: dict[str, object]) -> None:
    assert "nproc" in why_not(oversubscribed, recorded(**numbers))
