"""Communication, computation and overlap as perfkit and Paddle count them. The expected numbers were computed by
hand."""

from __future__ import annotations

import pytest

from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import concat_traces
from perfkit_core.views.communication import distributed
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

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


ASYNCHRONOUS = [
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


def test_communication_and_computation() -> None:
    """Communication consists of three parts: the kernel that all_reduce launched, the barrier, which launched no
    kernels, and the kernel with a collective's name. The operator sum in all_reduce computes. Only time in the step
    counts. Paddle counts calls that launch kernels, and time after the step: the kernel pack lies below all_reduce and
    below an operator, so it counts twice, and a kernel whose launch lies in no host event does not count.

    The span of the asynchronous collective lasts until its work is done. Meanwhile the thread launches two operators. A
    wrapper of the collective does not hide its kernel."""
    without = trace([
        host("step 0", "step", 0, 100, step=0),
        host("backward", "operator", 0, 60),
        host("c10d all_reduce", "communication", 20, 10),
        host("gloo all_reduce", "communication", 25, 50, tid=2),
    ])  # fmt: skip
    twice = trace([host("allreduce", "operator", 0, 10), host("allreduce", "operator", 0, 10, tid=2)])
    two_steps = trace([*ROWS, host("step 1", "step", 1000, 100, step=1), host("mm", "operator", 1010, 10)])
    ranks = concat_traces([trace(ROWS, rank=0), trace(ROWS[:12], rank=3)])
    check_tables("views/distributed.txt", {
        "perfkit": view_table("distributed", trace(ROWS)),
        "natively": view_table("distributed", trace(ROWS), native=True),
        "an asynchronous collective":
            view_table("distributed", trace(ASYNCHRONOUS, names={"wrapper": "collective_call"}.get)),
        "natively, a call with the times of another counts once": view_table("distributed", twice, native=True),
        "without a device, operators compute": view_table("distributed", without),
        "the times of ranks are added; only the host calls of rank 3 were recorded": view_table("distributed", ranks),
        "by rank": view_table("distributed", ranks, by=("rank",)),
        "work that was launched in the previous step counts": view_table("distributed", two_steps, steps=(1,)),
    })  # fmt: skip


def test_exposed_communication_is_that_of_the_partition() -> None:
    assert ("exposed_communication", 220) in view_rows("partition", trace(ROWS), "category total_ns")


def test_without_communication_only_the_native_table_has_rows() -> None:
    found = trace([host("broadcast_tensors", "operator", 0, 10)])
    assert view_table("distributed", found).empty
    assert not view_table("distributed", found, native=True).empty
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
    assert ("communication", 4096) in view_rows("distributed", trace(rows), "part bytes")
