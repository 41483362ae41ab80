"""Communication, computation and overlap as perfkit and Paddle count them. The expected numbers were computed by
hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.communication import distributed
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import partition
from tests.support.events import device, host, trace

ROWS = [
    host("step 0", "step", 0, 1000, step=0),
    host("all_reduce", "communication", 100, 50),
    host("inner", "communication", 110, 30),
    host("sum", "operator", 115, 10),
    host("launch", "runtime", 116, 2, correlation=1),
    host("launch", "runtime", 130, 5, correlation=2),
    host("broadcast_tensors", "operator", 200, 60),
    host("launch", "runtime", 210, 10, correlation=3),
    host("mm", "operator", 300, 50),
    host("launch", "runtime", 310, 10, correlation=4),
    host("launch", "runtime", 400, 10, tid=3, correlation=5),
    host("barrier", "communication", 900, 50),
    device("pack", "kernel", 120, 20, correlation=1),
    device("ring", "kernel", 140, 200, correlation=2, stream=8, bytes=4096),
    device("add", "kernel", 260, 40, correlation=3),
    device("gemm", "kernel", 330, 100, correlation=4),
    device("ncclAllGather", "kernel", 980, 100, correlation=5),
]


def parts(found: Trace, columns: str, **request: Any) -> dict[str, tuple[Any, ...]]:
    table = table_of(distributed.VIEW, found, ViewRequest(**request))
    return {
        row["part"]: tuple(None if pd.isna(row[name]) else row[name] for name in columns.split())
        for _, row in table.iterrows()
    }


def test_ours_by_hand() -> None:
    """Communication consists of three parts: the kernel that all_reduce launched, the barrier, which launched no
    kernels, and the kernel with a collective's name. The operator sum in all_reduce computes. Only time in the step
    counts."""
    assert parts(trace(ROWS), "host_calls device_calls time_ns bytes") == {
        "step": (None, None, 1000, None),
        "communication": (2, 2, 200 + 50 + 20, 4096),
        "computation": (None, 3, 20 + 140, None),
        "overlap": (None, None, 40 + 10, None),
        "exposed_communication": (None, None, 220, None),
    }
    table = table_of(distributed.VIEW, trace(ROWS), ViewRequest()).set_index("part")
    assert table.loc["exposed_communication", "ratio"] == pytest.approx(0.22)


def test_kernels_in_the_span_of_an_asynchronous_collective_compute() -> None:
    """The span of the collective lasts until its work is done. Meanwhile the thread launches two operators. A wrapper
    of the collective does not hide its kernel."""
    rows = [
        host("step 0", "step", 0, 1000, step=0),
        host("lib:all_reduce", "communication", 100, 800),
        host("wrapper", "operator", 110, 20),
        host("launch", "runtime", 115, 5, correlation=1),
        host("fc", "operator", 200, 50),
        host("launch", "runtime", 210, 5, correlation=2),
        host("mul", "operator", 300, 50),
        host("launch", "runtime", 310, 5, correlation=3),
        device("ring", "kernel", 150, 100, correlation=1, stream=8),
        device("fc", "kernel", 300, 200, correlation=2),
        device("mul", "kernel", 500, 100, correlation=3),
    ]
    recording = trace(rows, names={"wrapper": "collective_call"}.get)
    assert parts(recording, "device_calls time_ns") == {
        "step": (None, 1000),
        "communication": (1, 100),
        "computation": (2, 300),
        "overlap": (None, 0),
        "exposed_communication": (None, 100),
    }


def test_exposed_communication_is_that_of_the_partition() -> None:
    table = table_of(partition.VIEW, trace(ROWS), ViewRequest()).set_index("category")
    assert table.loc["exposed_communication", "total_ns"] == 220


def test_native_by_hand() -> None:
    """Paddle counts calls that launch kernels, and time after the step. The kernel pack lies below all_reduce and below
    an operator, so it counts twice. A kernel whose launch lies in no host event does not count."""
    assert parts(trace(ROWS), "host_calls device_calls time_ns", native=True) == {
        "step": (None, None, 1000),
        "communication": (4, 3, (340 - 100) + 50),
        "computation": (None, 2, 20 + 100),
        "overlap": (None, None, 20 + 10),
        "exposed_communication": (None, None, 260),
    }


def test_native_counts_a_call_with_the_times_of_another_once() -> None:
    rows = [host("allreduce", "operator", 0, 10), host("allreduce", "operator", 0, 10, tid=2)]
    assert parts(trace(rows), "host_calls", native=True)["communication"] == (1,)


def test_without_a_device_operators_compute() -> None:
    rows = [
        host("step 0", "step", 0, 100, step=0),
        host("backward", "operator", 0, 60),
        host("c10d all_reduce", "communication", 20, 10),
        host("gloo all_reduce", "communication", 25, 50, tid=2),
    ]
    assert parts(trace(rows), "host_calls device_calls time_ns") == {
        "step": (None, None, 100),
        "communication": (2, 0, 55),
        "computation": (1, None, 50),
        "overlap": (None, None, 30),
        "exposed_communication": (None, None, 25),
    }


def test_the_times_of_ranks_are_added() -> None:
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS[:12], rank=3)])
    assert parts(both, "time_ns")["communication"] == (270 + 100,)  # only the host calls of rank 3 were recorded
    table = table_of(distributed.VIEW, both, ViewRequest(by=("rank",)))
    times = {(row["rank"], row["part"]): row["time_ns"] for _, row in table.iterrows()}
    assert times[(0, "communication")] == 270
    assert times[(3, "communication")] == 50 + 50
    assert times[(3, "step")] == 1000


def test_work_launched_in_the_previous_step_counts() -> None:
    rows = [*ROWS, host("step 1", "step", 1000, 100, step=1), host("mm", "operator", 1010, 10)]
    assert parts(trace(rows), "time_ns", steps=(1,))["communication"] == (80,)  # launched in the previous step


def test_without_communication_only_the_native_table_has_rows() -> None:
    found = trace([host("broadcast_tensors", "operator", 0, 10)])
    assert table_of(distributed.VIEW, found, ViewRequest()).empty
    assert not table_of(distributed.VIEW, found, ViewRequest(native=True)).empty
    check_view(distributed.VIEW, found)
    check_view(distributed.VIEW, trace(ROWS))


@pytest.mark.parametrize("of_kernel", [None, 4096], ids=["by-its-call", "by-both"])
def test_a_message_counts_once_wherever_its_size_is_recorded(of_kernel: int | None) -> None:
    """There are two all-reduces of 4096 and 1000 bytes in the step. The all-reduce after the step does not count."""
    size = {} if of_kernel is None else {"bytes": of_kernel}
    rows = [
        host("step 0", "step", 0, 1000, step=0),
        host("all_reduce", "communication", 100, 50, bytes=4096),
        host("launch", "runtime", 110, 5, correlation=1),
        host("all_reduce", "communication", 900, 50, bytes=1000),
        host("launch", "runtime", 910, 5, correlation=2),
        device("ncclAllReduce", "kernel", 200, 50, correlation=1, **size),
        device("ncclAllReduce", "kernel", 2000, 50, correlation=2, **size),
    ]
    assert parts(trace(rows), "bytes")["communication"] == (4096,)
