"""The launch of device work is found by correlation id, else by external id. Unlaunched work is reported."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import arrays
from tests.support.events import codes, column, device, host, names_of_rows, trace


def test_one_launch_may_have_thousands_of_kernels() -> None:
    """All kernels of a graph launch refer to this launch. No other launch is affected."""
    graph = [device(f"k{i}", "kernel", 100 + i, 1, correlation=7) for i in range(1753)]
    found = trace(
        [
            host("cudaGraphLaunch", "runtime", 10, 5, correlation=7),
            host("other", "runtime", 20, 5, correlation=8),
            *graph,
        ]
    )
    by = names_of_rows(found, "launched_by")
    assert {by[f"k{i}"] for i in range(1753)} == {"cudaGraphLaunch"}
    assert by["cudaGraphLaunch"] is by["other"] is None
    assert "device-events-without-launch" not in codes(found)


def test_work_without_a_launch_is_counted_in_a_finding() -> None:
    found = trace(
        [
            host("launch", "runtime", 0, 5, correlation=1),
            device("known", "kernel", 10, 5, correlation=1),
            device("wrong id", "kernel", 20, 5, correlation=2),
            device("no id", "kernel", 30, 5),
        ]
    )
    by = names_of_rows(found, "launched_by")
    assert by == {"launch": None, "known": "launch", "wrong id": None, "no id": None}
    message = next(f.message for f in found.quality if f.code == "device-events-without-launch")
    assert message.startswith("2 of 3 ")


def test_the_first_call_with_a_correlation_id_launched() -> None:
    """The runtime call encloses the driver call with the same id. The outer call begins first and is used."""
    found = trace(
        [
            host("cudaLaunchKernel", "runtime", 0, 10, correlation=5),
            host("cuLaunchKernel", "runtime", 2, 3, correlation=5),
            device("k", "kernel", 20, 5, correlation=5),
        ]
    )
    assert names_of_rows(found, "launched_by")["k"] == "cudaLaunchKernel"


def test_an_operator_with_the_same_id_is_no_launch() -> None:
    """Only runtime calls and synchronisations are matched by correlation id, as ids of operators have another
    meaning."""
    found = trace([host("aten::mm", "operator", 0, 10, correlation=5), device("k", "kernel", 20, 5, correlation=5)])
    assert names_of_rows(found, "launched_by")["k"] is None


def test_without_a_runtime_call_the_external_id_names_the_launch() -> None:
    found = trace(
        [
            host("aten::mm", "operator", 0, 10, external=3),
            host("launch", "runtime", 20, 5, correlation=9, external=3),
            device("by operator", "kernel", 30, 5, correlation=1, external=3),
            device("by call", "kernel", 40, 5, correlation=9, external=3),
        ]
    )
    by = names_of_rows(found, "launched_by")
    assert (by["by operator"], by["by call"]) == ("aten::mm", "launch")


def test_without_device_work_there_is_a_finding_and_no_link() -> None:
    found = trace([host("launch", "runtime", 0, 5, correlation=1)])
    assert column(found, "launched_by") == {"launch": -1}
    assert "no-device-events" in codes(found)


@pytest.mark.parametrize("apart", [1, 1_000_003])
@given(st.lists(st.integers(-1, 9), max_size=12), st.lists(st.integers(-1, 11), max_size=12))
def test_a_key_finds_the_first_row_that_has_it(apart: int, keys: list[int], wanted: list[int]) -> None:
    """The result does not depend on the distance between ids. Unknown ids (-1) match no row."""
    rows = 100 + 2 * np.arange(len(keys))
    expected = [int(rows[keys.index(key)]) if key in keys and key >= 0 else -1 for key in wanted]
    spread = [np.where(ids >= 0, ids * apart, -1) for ids in (np.array(wanted, np.int64), np.array(keys, np.int64))]
    assert arrays.first_match(*spread, rows).tolist() == expected
