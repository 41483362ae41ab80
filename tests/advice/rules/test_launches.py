"""Rules 15 and 16: a device that waits for launches, and chains of elementwise kernels. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from perfkit_core.advice.operators import within
from perfkit_core.advice.rules import launch_bound, per_tensor_optimizer
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, found, kernel, op, steps
from tests.support.rule_cases import Cases, check_rule

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


def test_updates_belong_to_the_rule_of_the_optimizer() -> None:
    """Twelve tensors are updated one by one after 20 other launches. No launch is claimed twice."""
    rows: Rows = []
    for i in range(20):
        rows += [op(NAME["torch"], 45 * i, 40), call("cudaLaunchKernel", 45 * i + 20, 10, i)]
        rows += [kernel("gemm", 45 * i + 25, 4, i)]
    rows += [op("Optimizer.step#SGD.step", 900, 600, kind="optimizer")]
    for i in range(12):
        rows += [op("aten::add_", 900 + 50 * i, 40), call("cudaLaunchKernel", 920 + 50 * i, 10, 50 + i)]
        rows += [kernel("add", 930 + 50 * i, 5, 50 + i)]
    recording = steps(rows, 1500)
    (launches,), (updates,) = found(launch_bound.find, recording), found(per_tensor_optimizer.find, recording)
    assert (len(launches.rows), len(updates.rows)) == (3 * 20, 3)
    assert not within(recording, updates.rows)[launches.rows].any()


def with_one_long_call(count: int) -> Trace:
    """Return steps in which one of 20 calls takes 900 µs more."""
    rows: Rows = []
    for i in range(20):
        start = 45 * i + (900 if i else 0)
        rows += [op("aten::add", start, 40 if i else 940), call("cudaLaunchKernel", 45 * i + 920, 10, i)]
        rows += [kernel("gemm", 45 * i + 925, 4, i)]
    return steps(rows, 2000, count)


def test_launch_bound() -> None:
    """Launches take 6, 50 or 120 µs instead of 800 µs. The time between them is 0, 28.5 or 76 µs instead of 95 µs. The
    105 µs after them stay. So the host alone would finish after 111, 183.5 or 301 µs. The kernels begin 5 µs after the
    launches and take 99 µs including the gaps between them. The host waits for the kernels and finishes 35 µs after
    them: after 145 or 189 µs in the first two cases."""

    def launches(every: int, dur: int, start: int, work: int) -> Rows:
        calls = [call("cudaLaunchKernel", every * i, dur, i) for i in range(10)]
        return [*calls, *(kernel("gemm", start + work * i, work, i) for i in range(10))]

    def cases(framework: str) -> Cases:
        add = NAME[framework]
        item = [op("aten::item", 0, 40), call("cudaLaunchKernel", 5, 10, 1), kernel("gemm", 16, 4, 1)]
        copied = kernel("Memcpy DtoH", 30, 4, 2) | {"kind": "memcpy", "copy_kind": "DtoH pageable"}
        busy = [op(add, 0, 100), *launches(10, 9, 5, 9)]
        return {
            "kernels of 4 µs": launching(framework=framework),
            "kernels of 9 µs, which take 180 µs in total": launching(dur=9, framework=framework),
            "kernels as long as their launches": launching(dur=10, framework=framework),
            "the host works for less time than the device": steps(
                [op(add, 0, 30), *launches(2, 1, 20, 8)], 400, framework=framework
            ),
            "the device works for less than half of the step": steps(busy, 181, framework=framework),
            "the device works for half of the step": steps(busy, 180, framework=framework),
            "calls that copy to the host stay": steps(
                [*item, call("cudaMemcpyAsync", 20, 18, 2), copied], framework=framework
            ),
            "without a device": steps([op(add, 0, 10)], framework=framework),
            "a long call in one of one step may not recur": with_one_long_call(1),
            "a long call in each of two steps may not recur": with_one_long_call(2),
            "a long call in each of three steps counts": with_one_long_call(3),
        }

    check_rule("launch-bound", cases)


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


def many_short_kernels() -> Trace:
    """Return steps with a kernel of 90 µs and nine kernels of 2 µs."""
    rows: Rows = []
    for i in range(10):
        start = 0 if i == 0 else 88 + 2 * i
        rows += [op("aten::add", 5 * i, 5), call("cudaLaunchKernel", 5 * i + 1, 2, i)]
        rows += [kernel("elementwise_kernel", 10 + start, 90 if i == 0 else 2, i)]
    return steps([*rows, call("cudaDeviceSynchronize", 60, 60, kind="sync")], 130)


def short_chain(dur: int) -> Trace:
    """Return steps of ``dur`` µs with a chain of 9 µs on the device."""
    rows: Rows = []
    for i, name in enumerate(CHAIN["torch"]):
        rows += [op(name, 3 * i, 3), call("cudaLaunchKernel", 3 * i, 2, i)]
        rows += [kernel("elementwise_kernel", 3 + 3 * i, 3, i)]
    return steps(rows, dur)


def test_elementwise_chain() -> None:
    """The fused kernel starts at 10 µs and takes 1, 4/3 or 5/3 of 40 µs."""

    def cases(framework: str) -> Cases:
        def case(names: list[str], kernels: list[str]) -> Trace:
            return chained(names, kernels, framework=framework)

        names, work = CHAIN[framework], ELEMENTWISE[framework]
        product = {"torch": "aten::mm", "paddle": "matmul dygraph"}[framework]
        span = op("Optimizer.step#SGD.step", 0, 60, kind="optimizer") | {"phase": "optimizer"}
        return {
            "three kernels": case(names, [work] * 3),
            "two kernels": case(names[:2], [work] * 2),
            "a product between the kernels": case([*names[:2], product, names[2]], [work, work, "gemm", work]),
            "kernels with unknown names of elementwise operators": case(names, ["kernel0", "kernel1", "kernel2"]),
            "kernels with unknown names, the first of a product": case([product, *names[1:]], ["kernel0"] * 3),
            "reductions": case(names, ["reduce_kernel"] * 3),
            "fused reductions": case(names, ["triton_red_fused_softmax_0"] * 3),
            "kernels over lists of tensors": case(names, ["multi_tensor_apply_kernel"] * 3),
            "kernels of an optimizer": steps([span, *first_step(case(names, [work] * 3))], 130, framework=framework),
            "without a device": steps([op(names[1], 0, 10)], framework=framework),
            "a fused kernel takes at most as long as ten kernels of 108 µs": many_short_kernels(),
            "9 of 449 µs on the device are 2.004%": short_chain(449),
            "9 of 450 µs on the device": short_chain(450),
            "9 of 449 µs, with four kernels as the threshold": (short_chain(449), {"chain_kernels": 4}),
        }

    check_rule("elementwise-chain", cases)


def first_step(recording: Trace) -> Rows:
    kept = ("name", "kind", "start_ns", "dur_ns", "device", "pid", "tid", "stream", "correlation")
    rows = recording.events.select(kept).to_pylist()
    return [row for row in rows if row["start_ns"] < 130_000 and row["kind"] != "step"]
