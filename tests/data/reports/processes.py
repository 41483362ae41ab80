"""Several processes in one file or folder: servers that merge their ranks, and torch's default file names."""

from __future__ import annotations

from typing import Any, Final

from tests.data.reports.formats import EPOCH_US, Content, chrome, paddle_json
from tests.data.reports.training import OPERATORS, Events, call, shifted, span, spans, training

H100S: Final = [{"id": number, "name": "NVIDIA H100 80GB HBM3"} for number in range(3)]
WORK: Final = [
    ("aten::mm", "gemm_rank0", 150.0),
    ("aten::add", "add_rank1", 200.0),
    ("aten::relu", "relu_rank2", 100.0),
]
"""Operator, kernel and the kernel's duration of each rank."""


def rank_events(
    rank: int, process: Any, device_process: Any, thread: int, device: int | None = None, us: float | None = None
) -> Events:
    """Return the two steps of a rank. All ranks have the same correlation ids and step numbers. Each rank begins 3 µs
    after the one before, and its kernels run on the device of its number."""
    operator, work, kernel_us = WORK[rank]
    events = training(
        (2, 3), 1000.0 + 3 * rank, (rank if device is None else device,), operators=[operator] * OPERATORS,
        kernels=[work] * OPERATORS, process=process, thread=thread, device_process=device_process,
        kernel_us=us or kernel_us,
    )  # fmt: skip
    # In the report, no kernel of the second rank overlaps with the kernel before it.
    late = [
        event["ts"] + 5 if event["cat"] == "kernel" and rank and event["ts"] % 1000 > 100 else event["ts"]
        for event in events
    ]
    return [event | {"ts": ts} for event, ts in zip(events, late, strict=True)]


def merged(labels: list[str], host: str = "{} {}", device: str = "{} {}") -> Events:
    """Return the ranks of a server in one file. The pids are texts: a label and a number of a process or device."""
    return [
        event for rank, label in enumerate(labels)
        for event in rank_events(rank, host.format(label, 83 + rank), device.format(label, rank), 83 + rank)
    ]  # fmt: skip


def numbered() -> Events:
    """Return two processes with numbers as pids, whose correlation ids are the same: their files were concatenated."""
    return [*rank_events(0, 83, 0, 83), *rank_events(1, 84, 1, 84)]


def paddle_merged() -> dict[str, Any]:
    """Return two ranks of Paddle in one file, with pids that are texts."""
    content = paddle_json([*rank_events(0, 83, 0, 83), *rank_events(1, 84, 1, 84)])
    for event in content["traceEvents"]:
        rank = int(event["pid"] in (1, 84))
        event["pid"] = f"rank {rank} pid {event['pid']}"
    return content


PROFILED: Final = [
    call("aten::ones", call("aten::empty"), call("aten::fill_")),
    call("aten::ones", call("aten::empty"), call("aten::fill_")),
    call("aten::matmul", call("aten::mm", *[call("aten::resolve_conj")] * 3)),
]  # fmt: skip


def cycle(steps: tuple[int, ...], at: float, process: int = 3546, host: str = "vm", **header: Any) -> dict[str, Any]:
    """Return one recording of a schedule that repeats: two active steps on a CPU, as ``tensorboard_trace_handler``
    writes it. It has no rank."""
    events: Events = []
    for index, number in enumerate(steps):
        begin = at + 90 * index
        events.append(span("user_annotation", f"ProfilerStep#{number}", begin, 80.0, process, process))
        events += [event | {"pid": process, "tid": process} for event in spans(PROFILED, begin + 10, leaf_us=1.0)]
    window = {"args": {"Op count": 0}, "pid": "Spans", "tid": "PyTorch Profiler"}
    events.append(span("Trace", "PyTorch Profiler (0)", at - 200, 400.0) | window)
    origin = 1790857026000000000
    return chrome(events, deviceProperties=[], host_name=host, baseTimeNanoseconds=origin, **header)


def cycles(
    folder: str, worker: str, count: int, suffix: str = "", rank: int | None = None, process: int = 3546
) -> dict[str, Content]:
    """Return the files of a process: ``WORKER.NANOSECONDS.pt.trace.json``. Cycle n has steps 4 n + 2 and 4 n + 3."""
    host = worker.rpartition("_")[0]
    header = {} if rank is None else {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
    return {
        f"{folder}/{worker}.{1795896474130822077 + 1_960_699 * n}.pt.trace.json{suffix}": lambda n=n: cycle(
            (4 * n + 2, 4 * n + 3), 5039448130285.612 + 2190 * n, process, host, **header
        )
        for n in range(count)
    }  # type: ignore[misc]


def paddle_cycles() -> dict[str, Content]:
    """Return the files of ``paddle.profiler.export_chrome_tracing(DIR)`` of a schedule that repeats."""
    return {
        f"r38c_paddle/host_vmpid_3546_time_2026_11_28_10_11_1{n}.paddle_trace.json": lambda n=n: paddle_json(
            shifted(training((4 * n + 2, 4 * n + 3)), bool, 4000 * n), EPOCH_US
        )
        for n in range(2)
    }  # type: ignore[misc]


FILES: Final[dict[str, Content]] = {
    "r11_merged_sglang.json": lambda: {
        "schemaVersion": 1, "deviceProperties": H100S[:2], "traceEvents": merged(["[TP00]", "[TP01]"]),
    },
    "r11_three_ranks.json": lambda: chrome(
        merged(["[TP00-PP00]", "[TP01-PP00]", "[TP02-PP00]"]), deviceProperties=H100S
    ),
    "r11_words.json": lambda: chrome(merged(["rank 0", "rank 1"],
        "{} pid {}", "{} gpu {}"), deviceProperties=H100S[:2]),
    "r11_numbers.json": lambda: chrome(numbered(), deviceProperties=H100S[:2]),
    "r11_paddle.json": paddle_merged,
    **cycles("r38c_tb_default", "vm_3546", 2),
    **cycles("r38c_dots", "node-3.cluster.example.org_3546", 2),
    **cycles("r38c_three", "gpu-box_77", 3, ".gz", process=77),
    **cycles("r38c_two_processes", "vm_3546", 2, rank=0),
    **cycles("r38c_two_processes", "vm_3547", 2, rank=1, process=3547),
    **paddle_cycles(),
}  # fmt: skip
