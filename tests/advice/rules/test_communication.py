"""Rules 31 to 33: exposed transfers, gradients exchanged after every backward pass, and one process with several
devices. Times are in µs. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.events import device, host, trace
from tests.support.rule_cases import Cases, check_rule

US = 1000
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CALLS = {"torch": ("c10d::allreduce_", torch_name), "paddle": ("c_allreduce_sum", paddle_name)}


def made(
    rows: list[dict[str, Any]],
    rank: int | None = None,
    names: Callable[[str], str | None] | None = None,
    steps: int = 3,
) -> Trace:
    """Return a trace of steps of 1000 µs, each with these events. Each step has separate correlation ids."""
    found = []
    for step in range(steps):
        found.append(host(f"step {step}", "step", step * 1000 * US, 1000 * US, step=step))
        for row in rows:
            more = {"start_ns": (row["start_ns"] + step * 1000) * US, "dur_ns": row["dur_ns"] * US}
            if row.get("correlation") is not None:
                more["correlation"] = row["correlation"] + 100 * step
            found.append(row | more)
    return trace(found, rank=rank, names=names)


def training(
    transfer: int, begin: int = 506, stream: int = 7, call: str = "call", kernel: str = KERNEL
) -> list[dict[str, Any]]:
    """Return a kernel from 5 to 505 µs and a transfer that begins at ``begin``. The host waits until 4 µs after
    both."""
    end = max(begin + transfer, 505)
    return [
        host("launch k", "runtime", 0, 10, correlation=1),
        device("k", "kernel", 5, 500, 1),
        host(call, "operator", 10, 10),
        host("launch c", "runtime", 11, 8, correlation=2),
        device(kernel, "kernel", begin, transfer, 2) | {"stream": stream},
        host("cudaDeviceSynchronize", "sync", 20, end + 4 - 20),
    ]


def test_exposed_communication() -> None:
    """All, half or none of the transfer is hidden behind the computation. In two ranks, both collectives end at 806, so
    waiting for the later rank is no transfer."""

    def short(rows: list[dict[str, Any]]) -> Trace:
        rows[1]["dur_ns"] = 100
        return made(rows)

    def two_ranks(late: int) -> Trace:
        return concat_traces([made(training(300), rank=0), made(training(300 - late, begin=506 + late), rank=1)])

    def slow(rank: int, steps: int) -> Trace:
        rows = training(850, begin=110)
        rows[1]["dur_ns"] = 100
        rows[4]["bytes"] = 4 << 20
        return made(rows, rank, steps=steps)

    def cases(framework: str) -> Cases:
        call, names = CALLS[framework]
        return {
            "a transfer of 300 µs after 500 µs of computation": made(training(300)),
            "a transfer after 100 µs of computation": short(training(300)),
            "50 of 100 µs of computation overlap the transfer": short(training(300, begin=55, stream=20)),
            "a kernel of any name in a collective": made(training(300, call=call, kernel="mine"), names=names),
            "a kernel of any name in another operator": made(training(300, call=call, kernel="mine")),
            "one of two ranks is 100 µs later, so the transfer takes 200 µs": two_ranks(100),
            "one of two ranks is 290 µs later": two_ranks(290),
            "a hidden transfer": made(training(300, begin=100, stream=20)),
            "no transfer": made(training(300)[:2]),
            "100 of 1000 µs": made(training(100)),
            "101 of 1000 µs": made(training(101)),
            "without steps": trace([device(KERNEL, "kernel", 0, 10)]),
            "4 MiB in 850 µs in each of three steps": slow(0, 3),
            "4 MiB in 850 µs in one step: both ranks may wait for a third one": concat_traces([slow(0, 1), slow(1, 1)]),
        }

    check_rule("exposed-communication", cases)


def accumulating(call: str, sizes: Sequence[int | None], late: int = 0) -> list[dict[str, Any]]:
    """Return two backward passes and an optimizer step. Kernels of 100 µs and collectives of 200 µs follow each other.
    ``sizes`` has the bytes of each pass's collective. None stands for a pass without a collective. The first collective
    begins ``late`` µs later, and ends at the same time."""
    rows, at, number = [], 25, 1
    for index, size in enumerate(sizes):
        begin = 60 * index
        rows += [host("forward", "forward", begin, 20, phase="forward")]
        rows += [host("backward", "backward", begin + 20, 40, phase="backward")]
        rows += [
            host("launch b", "runtime", begin + 20, 10, correlation=number),
            device("b", "kernel", at, 100 + late * (not index), number),
        ]
        at, number = at + 101, number + 1
        if size is not None:
            args = json.dumps({"collective": {"name": "all_reduce"}})
            rows += [
                host(call, "operator", begin + 40, 20),
                host("launch c", "runtime", begin + 45, 10, correlation=number),
            ]
            begin, dur = (at + late, 200 - late) if not index else (at, 200)
            rows += [device(KERNEL, "kernel", begin, dur, number, bytes=size, args=args)]
            at, number = at + 201, number + 1
    rows += [
        host("optimizer", "optimizer", 120, 20, phase="optimizer"),
        host("launch o", "runtime", 125, 10, correlation=9),
    ]
    return [*rows, device("o", "kernel", at, 50, 9), host("cudaDeviceSynchronize", "sync", 140, at + 54 - 140)]


def test_accumulation_sync() -> None:
    """The first collective and the gap after it take 201 µs."""

    def cases(framework: str) -> Cases:
        call, names = CALLS[framework]
        sizes = {
            "both passes exchange 4096 bytes": (4096, 4096),
            "only the last pass exchanges gradients": (None, 4096),
            "only the first pass exchanges gradients": (4096, None),
            "the passes exchange different bytes": (4096, 1024),
            "one pass": (4096,),
        }
        ranks = [made(accumulating(call, (4096, 4096), late), rank, names) for rank, late in enumerate((0, 100))]
        return {
            **{title: made(accumulating(call, passes), names=names) for title, passes in sizes.items()},
            "one of two ranks is 100 µs later: the wait for it remains": concat_traces(ranks),
            "no passes": made([host("a", "operator", 0, 10)]),
            "without phases": made(training(300)),
        }

    check_rule("accumulation-sync", cases)
