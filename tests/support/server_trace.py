"""Chrome traces of an inference server, with times in whole microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import chrome

Kernels = Sequence[tuple[str, int, int]]
"""Name, start and duration of each kernel."""


class Server:
    """Collects the events of one process."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._id = 0

    def add(self, category: str, name: str, start: int, dur: int, **args: Any) -> None:
        place: dict[str, Any] = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 1, "tid": 1}
        self.events.append({"ph": "X", "cat": category, "name": name, "ts": start, "dur": dur, "args": args, **place})

    def range(self, name: str, start: int, dur: int) -> None:
        self.add("user_annotation", name, start, dur)

    def launch(self, call: str, start: int, kernels: Kernels, **each: Sequence[Any]) -> None:
        """Add a runtime call of 2 µs and its kernels. ``each`` has further arguments of each kernel."""
        self._id += 1
        self.add("cuda_runtime", call, start, 2, correlation=self._id)
        for number, (name, begin, dur) in enumerate(kernels):
            more = {key.replace("_", " "): values[number] for key, values in each.items()}
            self.add("kernel", name, begin, dur, correlation=self._id, stream=7, device=0, **more)

    def operator(self, name: str, start: int, dur: int, **args: Any) -> None:
        self.add("cpu_op", name, start, dur, **args)

    def write(self, path: Path) -> Path:
        return chrome.write(path, self.events, schemaVersion=1)


def decode_and_prefill(path: Path, decodes: int = 4) -> Path:
    """A prefill step, decode steps of 8 requests every 600 µs, and a mixed step. The host prepares each decode step for
    320 µs while the device is idle."""
    server = Server()
    server.range("execute_context_2(4096)_generation_0(0)", 0, 900)
    server.launch("cudaLaunchKernel", 100, [("ampere_sgemm_128x64", 300, 2000)])
    server.launch("cudaLaunchKernel", 110, [("flash_fwd_kernel", 2300, 500)])
    start = 3000
    for _ in range(decodes):
        server.range("execute_context_0(0)_generation_8(8)", start, 400)
        at = start + 320
        server.launch(
            "cudaGraphLaunch", start + 300,
            [("ampere_sgemm_128x64", at, 60), ("flash_fwd_splitkv", at + 60, 20),
             ("ncclDevKernel_AllReduce_Sum", at + 80, 10), ("vectorized_elementwise_kernel", at + 90, 10)],
        )  # fmt: skip
        start += 600
    server.range("execute_context_1(512)_generation_8(8)", start, 400)
    server.launch("cudaLaunchKernel", start + 100, [("ampere_sgemm_128x64", start + 150, 700)])
    return server.write(path)
