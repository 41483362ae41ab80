"""Training steps on a device with times that can be computed by hand: the device never waits for the host.

Each operator takes 10 µs on the host and launches its kernels immediately. The first kernel starts 7 µs after the step,
and the kernels follow each other without gaps. The step ends when the host has waited for the last kernel. So a step
takes 7 µs plus the sum of its kernels, and a time saved in a kernel is saved in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

HOST_NS, LAUNCH_NS, QUEUED_NS = 10_000, 2_000, 7_000

A100 = Device("cuda:0", "NVIDIA A100", 40 * 10**9, {"computeMajor": 8, "computeMinor": 0, "warpSize": 32})
V100 = Device("cuda:0", "Tesla V100", 32 * 10**9, {"computeMajor": 7, "computeMinor": 0, "warpSize": 32})
P100 = Device("cuda:0", "Tesla P100", 16 * 10**9, {"computeMajor": 6, "computeMinor": 0, "warpSize": 32})
MI300 = Device("cuda:0", "AMD Instinct MI300X", 192 * 10**9, {"computeMajor": 9, "computeMinor": 4, "warpSize": 64})


@dataclass(frozen=True)
class Op:
    """A host event. Its fields are the kernels that it launches itself, the events inside it, and further columns. A
    kernel is given by its name and its duration in µs."""

    name: str
    kernels: Sequence[tuple[str, int]] = ()
    inner: Sequence[Op] = ()
    kind: str = "operator"
    more: dict[str, Any] = field(default_factory=dict)


def training(
    *ops: Op, steps: int = 1, on: Device | None = A100, names: Callable[[str], str | None] | None = None
) -> Trace:
    """Return steps that run the same operators."""
    return steps_of([ops] * steps, on, names)


def steps_of(
    steps: Sequence[Sequence[Op]], on: Device | None = A100, names: Callable[[str], str | None] | None = None
) -> Trace:
    """Return steps with these operators, one after the other."""
    writer = _Writer()
    for number, ops in enumerate(steps):
        writer.step(number, ops)
    return trace(writer.rows, names=names).with_meta(devices=(on,) if on else ())


class _Writer:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.now = self.busy_until = 0

    def step(self, number: int, ops: Sequence[Op]) -> None:
        begin = self.now
        for op in ops:
            self._host(op)
        if self.busy_until > self.now:
            self.rows.append(host("cudaDeviceSynchronize", "sync", self.now, self.busy_until - self.now))
            self.now = self.busy_until
        self.rows.append(host(f"step {number}", "step", begin, self.now - begin, step=number))

    def _host(self, op: Op) -> None:
        begin = self.now
        for index, (name, us) in enumerate(op.kernels):
            self._launch(name, us * 1000, begin + LAUNCH_NS * (index + 1))
        self.now += HOST_NS
        for one in op.inner:
            self._host(one)
        self.rows.append(host(op.name, op.kind, begin, self.now - begin, **op.more))

    def _launch(self, name: str, dur_ns: int, at: int) -> None:
        number = len(self.rows) + 1
        self.rows.append(host("cudaLaunchKernel", "runtime", at, LAUNCH_NS // 2, correlation=number))
        start = max(at + QUEUED_NS - LAUNCH_NS, self.busy_until)
        copy = {"kind": "memcpy", "copy_kind": name.split()[1]} if name.startswith("Memcpy ") else {"kind": "kernel"}
        kind = copy.pop("kind")
        self.rows.append(device(name, kind, start, dur_ns, number, **copy))
        self.busy_until = start + dur_ns
