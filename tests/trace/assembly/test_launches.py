"""The launch of device work is found by correlation id, else by external id. Unlaunched work is reported."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import arrays
from tests.support.events import codes, device, host, names_of_rows, trace
from tests.support.tables import check_events


def test_one_launch_may_have_thousands_of_kernels() -> None:
    """All kernels of a graph launch refer to this launch. No other launch is affected."""
    graph = [device(f"k{i}", "kernel", 100 + i, 1, correlation=7) for i in range(1753)]
    found = trace([
        host("cudaGraphLaunch", "runtime", 10, 5, correlation=7),
        host("other", "runtime", 20, 5, correlation=8),
        *graph,
    ])  # fmt: skip
    by = names_of_rows(found, "launched_by")
    assert {by[f"k{i}"] for i in range(1753)} == {"cudaGraphLaunch"}
    assert by["cudaGraphLaunch"] is by["other"] is None
    assert "device-events-without-launch" not in codes(found)


def test_the_launches_of_work() -> None:
    """Only runtime calls and synchronisations are matched by correlation id, as ids of operators have another meaning.
    A runtime call encloses the driver call with the same id: the outer call begins first and is used."""
    cases = {
        "work without a launch is counted": [
            host("launch", "runtime", 0, 5, correlation=1),
            device("known", "kernel", 10, 5, correlation=1),
            device("wrong id", "kernel", 20, 5, correlation=2),
            device("no id", "kernel", 30, 5),
        ],
        "the first call with the id launched": [
            host("cudaLaunchKernel", "runtime", 0, 10, correlation=5),
            host("cuLaunchKernel", "runtime", 2, 3, correlation=5),
            device("k", "kernel", 20, 5, correlation=5),
        ],
        "an operator with the same id is no launch": [
            host("aten::mm", "operator", 0, 10, correlation=5), device("k", "kernel", 20, 5, correlation=5),
        ],
        "without a runtime call, the external id names the launch": [
            host("aten::mm", "operator", 0, 10, external=3),
            host("launch", "runtime", 20, 5, correlation=9, external=3),
            device("by operator", "kernel", 30, 5, correlation=1, external=3),
            device("by call", "kernel", 40, 5, correlation=9, external=3),
        ],
        "without device work": [host("launch", "runtime", 0, 5, correlation=1)],
    }  # fmt: skip
    traces = {name: trace(rows) for name, rows in cases.items()}
    check_events("trace/launches.txt", traces, "launched_by", "no-steps no-phases")


@pytest.mark.parametrize("apart", [1, 1_000_003])
@given(st.lists(st.integers(-1, 9), max_size=12), st.lists(st.integers(-1, 11), max_size=12))
def test_a_key_finds_the_first_row_that_has_it(apart: int, keys: list[int], wanted: list[int]) -> None:
    """The result does not depend on the distance between ids. Unknown ids (-1) match no row."""
    rows = 100 + 2 * np.arange(len(keys))
    expected = [int(rows[keys.index(key)]) if key in keys and key >= 0 else -1 for key in wanted]
    spread = [np.where(ids >= 0, ids * apart, -1) for ids in (np.array(wanted, np.int64), np.array(keys, np.int64))]
    assert arrays.first_match(*spread, rows).tolist() == expected
