"""Rules 15 and 16: a device that waits for launches, and chains of elementwise kernels."""

from __future__ import annotations

import pytest

from perfkit_core.advice.rules.elementwise_chain import find as chains
from perfkit_core.advice.rules.launch_bound import find as launch_bound
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, found, kernel, op, predicted, steps, why_not

NAME = {"torch": "aten::add", "paddle": "add dygraph"}


def launching(kernels: int = 20, dur: int = 4, sync: bool = True, framework: str = "torch") -> Trace:
    """Return steps of 1000 µs with an operator of 40 µs every 45 µs. Each operator launches a kernel of ``dur`` µs.
    With ``sync``, the host waits for the last kernel at the end of the step."""
    rows: Rows = []
    for i in range(kernels):
        rows += [
            op(NAME[framework], 45 * i, 40),
            call("cudaLaunchKernel", 45 * i + 20, 10, i),
            kernel("gemm", 45 * i + 25, dur, i),
        ]
    rows += [call("cudaDeviceSynchronize", 960, 10, kind="sync")] if sync else []
    return steps(rows, 1000, framework=framework)


@BOTH
def test_a_device_that_waits_for_launches(framework: str) -> None:
    recording = launching(framework=framework)
    (one,) = found(launch_bound, recording)
    assert one.evidence["kernels"] == 20
    assert one.evidence["host_busy_ns"] == 20 * 40_000 + 19 * 5_000  # operators and the time between them
    assert one.evidence["device_busy_ns"] == 80_000
    assert one.ceiling_ns == 920_000
    # Launches take 6, 50 or 120 µs instead of 800 µs. The time between them is 0, 28.5 or 76 µs instead of 95 µs. The
    # 105 µs after them stay. So the host alone would finish after 111, 183.5 or 301 µs. The kernels begin 5 µs after
    # the launches and take 99 µs including the gaps between them. The host waits for the kernels and finishes 35 µs
    # after them: after 145 or 189 µs in the first two cases.
    assert predicted(recording, one) == (145_000, 189_000, 105_000 + 196_000)


@pytest.mark.parametrize(("count", "calls"), [(1, 19), (2, 19), (3, 20)])
def test_one_time_work_does_not_count(count: int, calls: int) -> None:
    """One of 20 calls takes 900 µs more. This call counts only if there are at least three steps, because it then
    recurs."""
    rows: Rows = []
    for i in range(20):
        start = 45 * i + (900 if i else 0)
        rows += [op("aten::add", start, 40 if i else 940), call("cudaLaunchKernel", 45 * i + 920, 10, i)]
        rows += [kernel("gemm", 45 * i + 925, 4, i)]
    (one,) = found(launch_bound, steps(rows, 2000, count))
    between = (19 if calls == 20 else 18) * 5_000
    assert one.evidence["host_busy_ns"] == calls * 40_000 + between + (900_000 if calls == 20 else 0)
    assert any("may not recur" in str(text) for text in one.vetoes) == (calls == 19)


def test_the_device_time_stays() -> None:
    recording = launching(dur=9)  # 20 kernels take 180 µs
    (one,) = found(launch_bound, recording)
    assert (predicted(recording, one)[0] or 0) >= 180_000


@BOTH
def test_kernels_that_are_longer_than_launches(framework: str) -> None:
    assert found(launch_bound, launching(dur=10, framework=framework)) == []
    assert len(found(launch_bound, launching(dur=9, framework=framework))) == 1


def test_a_host_that_is_busy_for_less_time_than_the_device() -> None:
    rows: Rows = [op("aten::add", 0, 30), *(call("cudaLaunchKernel", 2 * i, 1, i) for i in range(10))]
    rows += [kernel("gemm", 20 + 8 * i, 8, i) for i in range(10)]
    assert found(launch_bound, steps(rows, 400)) == []


def test_a_busy_device_does_not_wait() -> None:
    rows: Rows = [op("aten::add", 0, 100), *(call("cudaLaunchKernel", 10 * i, 9, i) for i in range(10))]
    rows += [kernel("gemm", 5 + 9 * i, 9, i) for i in range(10)]
    assert len(found(launch_bound, steps(rows, 181))) == 1
    assert found(launch_bound, steps(rows, 180)) == []  # the device is busy for 90 µs, half of the step


def test_calls_that_copy_to_the_host_stay() -> None:
    rows: Rows = [op("aten::item", 0, 40), call("cudaLaunchKernel", 5, 10, 1), kernel("gemm", 16, 4, 1)]
    copy = kernel("Memcpy DtoH", 30, 4, 2) | {"kind": "memcpy", "copy_kind": "DtoH pageable"}
    assert found(launch_bound, steps([*rows, call("cudaMemcpyAsync", 20, 18, 2), copy])) == []


def test_without_a_device() -> None:
    assert "device" in why_not(launch_bound, steps([op("aten::add", 0, 10)]))
    assert found(chains, steps([op("aten::add", 0, 10)])) == []


def chained(names: list[str], kernels: list[str], dur: int = 40, framework: str = "torch") -> Trace:
    """Return steps with operators of 20 µs, one after the other. Each operator launches a kernel of ``dur`` µs, without
    gaps between the kernels. The step ends when the host has waited for the last kernel."""
    rows: Rows = []
    for i, (name, work) in enumerate(zip(names, kernels, strict=True)):
        rows += [op(name, 20 * i, 20), call("cudaLaunchKernel", 20 * i + 2, 10, i), kernel(work, 10 + dur * i, dur, i)]
    end = 10 + dur * len(names)
    rows.append(call("cudaDeviceSynchronize", 20 * len(names), end - 20 * len(names), kind="sync"))
    return steps(rows, end, framework=framework)


ELEMENTWISE = {
    "torch": "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>",
    "paddle": "void phi::funcs::VectorizedBroadcastKernel<float, phi::funcs::AddFunctor>",
}
CHAIN = {"torch": ["aten::mul", "aten::add", "aten::relu"], "paddle": ["scale dygraph", "add dygraph", "relu dygraph"]}


@BOTH
def test_three_elementwise_kernels_in_a_row(framework: str) -> None:
    recording = chained(CHAIN[framework], [ELEMENTWISE[framework]] * 3, framework=framework)
    (one,) = found(chains, recording)
    assert one.evidence["chains"] == 3  # one chain in each of three steps
    assert one.evidence["chain_device_ns"] == 120_000
    assert one.evidence["chain_host_ns"] == 40_000
    # the fused kernel starts at 10 µs and takes 1, 4/3 or 5/3 of 40 µs
    assert predicted(recording, one) == (10_000 + 40_000, 10_000 + 53_333, 10_000 + 66_667)


def test_a_fused_chain_takes_no_longer_than_its_kernels() -> None:
    """The kernels take 108 µs in total, so the fused kernel takes at most 108 µs."""
    rows: Rows = []
    for i in range(10):
        start = 0 if i == 0 else 88 + 2 * i
        rows += [op("aten::add", 5 * i, 5), call("cudaLaunchKernel", 5 * i + 1, 2, i)]
        rows += [kernel("elementwise_kernel", 10 + start, 90 if i == 0 else 2, i)]
    rows += [call("cudaDeviceSynchronize", 60, 60, kind="sync")]
    recording = steps(rows, 130)
    (one,) = found(chains, recording)
    assert (predicted(recording, one)[2] or 0) <= 130_000


@BOTH
def test_two_elementwise_kernels_in_a_row_are_no_chain(framework: str) -> None:
    names, kernels = CHAIN[framework], [ELEMENTWISE[framework]] * 3
    assert found(chains, chained(names[:2], kernels[:2], framework=framework)) == []
    between = [kernels[0], kernels[0], "gemm", kernels[0]]
    broken = [*names[:2], "aten::mm" if framework == "torch" else "matmul dygraph", names[2]]
    assert found(chains, chained(broken, between, framework=framework)) == []


def test_operator_names_count_if_kernel_names_are_unknown() -> None:
    assert len(found(chains, chained(CHAIN["torch"], ["kernel0", "kernel1", "kernel2"]))) == 1
    assert found(chains, chained(["aten::mm", "aten::add", "aten::relu"], ["kernel0"] * 3)) == []


@pytest.mark.parametrize("work", ["reduce_kernel", "triton_red_fused_softmax_0", "multi_tensor_apply_kernel"])
def test_kernels_that_are_not_elementwise(work: str) -> None:
    assert found(chains, chained(CHAIN["torch"], [work] * 3)) == []


def test_a_small_share_does_not_count() -> None:
    rows: Rows = []
    for i, name in enumerate(CHAIN["torch"]):
        rows += [
            op(name, 3 * i, 3),
            call("cudaLaunchKernel", 3 * i, 2, i),
            kernel("elementwise_kernel", 3 + 3 * i, 3, i),
        ]
    assert len(found(chains, steps(rows, 449))) == 1  # 9 of 449 µs on the device are 2.004 %
    assert found(chains, steps(rows, 450)) == []
    assert found(chains, steps(rows, 449), chain_kernels=4) == []


def test_optimizer_kernels_do_not_count() -> None:
    span = op("Optimizer.step#SGD.step", 0, 60, kind="optimizer") | {"phase": "optimizer"}
    rows = [span, *(row for row in _first_step(chained(CHAIN["torch"], [ELEMENTWISE["torch"]] * 3)))]
    assert found(chains, steps(rows, 130)) == []


def _first_step(recording: Trace) -> Rows:
    kept = ("name", "kind", "start_ns", "dur_ns", "device", "pid", "tid", "stream", "correlation")
    rows = recording.events.select(kept).to_pylist()
    return [row for row in rows if row["start_ns"] < 130_000 and row["kind"] != "step"]
