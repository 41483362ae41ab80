"""Rule 9: an operator that waits for the device. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from typing import Any

from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, kernel, op, steps
from tests.support.rule_cases import Cases, check_rule

SLICE = {"torch": "aten::slice_backward", "paddle": "Global_SliceGradNode"}


def slicing(framework: str, longest: int = 1500, blocking: bool = True, busy: int = 1500) -> Rows:
    """Return two calls of an operator: one takes 10 µs, the other takes ``longest`` µs while a kernel of ``busy`` µs
    runs."""
    return [
        op(SLICE[framework], 0, 10),
        call("launch", 2, 4, 1),
        kernel("gemm", 10, busy, 1),
        op(SLICE[framework], 20, longest),
        *([call("cudaStreamSynchronize", 21, longest - 2, kind="sync")] if blocking else [call("launch", 21, 4, 2)]),
    ]


def test_waiting_operator() -> None:
    """The call runs from 20 to 1520 µs, and the kernel ends at 1510."""

    def cases(framework: str) -> Cases:
        def case(rows: Rows | None = None, **options: Any) -> Trace:
            return steps(rows or slicing(framework, **options), dur=1600, framework=framework)

        every = slicing(framework)
        own = [row for row in every if row["kind"] != "kernel"]
        own += [call("launch", 21, 4, 3), kernel("own", 24, 1490, 3)]
        return {
            "a call of 10 µs, and a call of 1500 µs that waits": case(),
            "an operator that computes beside a busy device": case(blocking=False),
            "the kernel covers 79% of the call": case(busy=1200),
            "the kernel covers 80% of the call": case(busy=1210),
            "a hundred times as long": case(longest=1000),
            "more than a hundred times as long": case(longest=1001),
            "calls of equal length": case([row for row in every if row["start_ns"] >= 10_000]),
            "waiting for work that the call launched": case(own),
            "without a device": case([op("aten::add", 0, 50)]),
        }

    check_rule("waiting-operator", cases)
