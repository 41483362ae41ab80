"""The first sentence of a report: what limits the training, with the figures that show it, from the tables of views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message
from perfkit_core.output.report.step_time import equal

VIEWS: Final = ("partition", "model", "device", "operators", "steps")
"""Views whose tables a verdict uses. It uses those that are there."""
LIMITING: Final = 0.15
"""Minimum share of the step time of waits or host work for a verdict other than device-bound or compute-bound."""
_COMPUTE: Final = ("device_compute", "compute")
_WITHOUT_OPERATORS: Final = ("launch_and_host", "framework", "idle")
"""Categories in which the host works outside operators, or in which no device works."""
_WAITS: Final = {
    "input_wait": mark("Input-bound: {share:ratio} of the step time{per_step} is spent waiting for the next batch"),
    "exposed_communication": mark(
        "Communication-bound: {share:ratio} of the step time{per_step} is communication without computation"
    ),
    "exposed_copy": mark("Copy-bound: for {share:ratio} of the step time{per_step}, devices only copy data"),
}
_LAUNCH_BOUND: Final = mark(
    "Launch-bound: devices are idle for {share:ratio} of the step time{per_step}, mostly while the host "
    "runs Python or launches work"
)
_HOST_BOUND: Final = mark(
    "Host-bound: devices are idle for {share:ratio} of the step time{per_step}, mostly while nothing was "
    "recorded on the host"
)
_OVERHEAD_BOUND: Final = mark(
    "Overhead-bound: for {share:ratio} of the step time{per_step}, no operator runs, mostly while Python or "
    "framework code runs"
)
_UNRECORDED: Final = mark(
    "Overhead-bound: for {share:ratio} of the step time{per_step}, no operator runs, mostly in code that "
    "was not recorded"
)
_DEVICE_BOUND: Final = mark("Device-bound: devices compute for {share:ratio} of the step time{per_step}")
_CPU_BOUND: Final = mark("Compute-bound: operators compute for {share:ratio} of the step time{per_step}")


def verdict(tables: Mapping[str, pd.DataFrame]) -> Iterator[Message]:
    """Yield one sentence on what limits the steps. Without steps, yield sentences on the whole recording instead.
    Without the table of the view partition, yield nothing."""
    partition, operators = tables.get("partition"), tables.get("operators")
    if partition is None or _only_ranges(operators, tables.get("device")):
        return
    durations = tables["steps"]["dur_ns"].astype("float64") if "steps" in tables else pd.Series(dtype="float64")
    steps, devices = len(durations), tables.get("device")
    if len(partition) and partition["total_ns"].sum():
        yield _of_steps(_Partition(partition, durations))
        complete = int(partition["steps"].max()) if "steps" in partition else steps
        if complete < steps:
            text = mark(
                "Only {complete} of {steps} steps count, because the device work of the others was not recorded "
                "completely."
            )
            yield message(text, complete=complete, steps=steps)
    elif steps or (devices is not None and (devices["busy_ns"].gt(0) & devices["span_ns"].eq(0)).any()):
        yield message("No verdict: device work was not recorded completely, so how long devices are idle is unknown.")
    else:
        yield from _of_recording(tables)


def _only_ranges(operators: pd.DataFrame | None, devices: pd.DataFrame | None) -> bool:
    """Return whether neither operators nor device work were recorded, so that nothing is known about waits."""
    return operators is not None and operators.empty and devices is not None and not devices["busy_ns"].any()


class _Partition:
    """The share of the step time and the mean time per step of each category. Categories do not overlap. If the median
    ``durations`` of the steps differs from their mean, only the share is said: a screen's step time is the median."""

    def __init__(self, table: pd.DataFrame, durations: pd.Series) -> None:
        self._timed = durations.empty or equal(durations)
        self._longest_ns = durations.median() if len(durations) else np.inf
        rows = table.fillna({"ratio": 0.0, "avg_ns": 0})
        self._shares: dict[str, float] = dict(zip(rows["category"], rows["ratio"].astype(float), strict=True))
        self._times: dict[str, int] = dict(zip(rows["category"], rows["avg_ns"].astype(int), strict=True))
        self.on_device = "device_compute" in self._shares

    def share(self, *categories: str) -> float:
        return sum(self._shares.get(category, 0.0) for category in categories)

    def part(self, template: str, *categories: str) -> Message:
        time = sum(self._times.get(category, 0) for category in categories)
        per_step = message(" ({time:ns} per step)", time=time) if self._timed and time <= self._longest_ns else None
        return message(template, share=self.share(*categories), per_step=per_step)


def _of_steps(steps: _Partition) -> Message:
    """Return the sentence on the largest limit: a wait, or the host. If all are small, operators or devices limit."""
    limits = [(steps.share(category), steps.part(template, category)) for category, template in _WAITS.items()]
    share, limit = max((*limits, *_host_limit(steps)), key=lambda entry: entry[0])
    if share < LIMITING:
        return message("{what}.", what=steps.part(_DEVICE_BOUND if steps.on_device else _CPU_BOUND, *_COMPUTE))
    template = (
        mark("{what}; devices compute for {share:ratio}.")
        if steps.on_device
        else mark("{what}; operators compute for {share:ratio}.")
    )
    return message(template, what=limit, share=steps.share(*_COMPUTE))


def _host_limit(steps: _Partition) -> Iterator[tuple[float, Message]]:
    """Yield the share of host work outside operators and its sentence, unless devices mostly wait for input."""
    outside = steps.share(*_WITHOUT_OPERATORS)
    if not steps.on_device:
        template = _UNRECORDED if steps.share("idle") > steps.share("framework") else _OVERHEAD_BOUND
        yield outside, steps.part(template, *_WITHOUT_OPERATORS)
    # devices are idle during input waits, too; a sentence that says "mostly" needs a part that exceeds them
    elif max(map(steps.share, _WITHOUT_OPERATORS)) >= steps.share("input_wait"):
        template = _LAUNCH_BOUND if steps.share("launch_and_host") >= steps.share("idle") else _HOST_BOUND
        yield outside, steps.part(template, *_WITHOUT_OPERATORS, "input_wait")


def _of_recording(tables: Mapping[str, pd.DataFrame]) -> Iterator[Message]:
    devices, operators = tables.get("device"), tables.get("operators")
    busy = pd.DataFrame()
    if devices is not None:
        busy = devices[devices["busy_ns"].notna() & (devices["span_ns"].fillna(0) > 0)]
    if len(busy):
        first = busy.sort_values("busy_ns", ascending=False, kind="stable").iloc[0]
        share, span = int(first["busy_ns"]) / int(first["span_ns"]), int(first["span_ns"])
        copies = first.get("copy_ns", 0) / span
        template = mark("{device} runs kernels for {share:ratio} of the recorded {time:ns}{copies}.")
        if len(busy) > 1:
            template = mark(
                "Of {count} devices, {device} is busiest: it runs kernels for {share:ratio} of the recorded "
                "{time:ns}{copies}."
            )
        copying = message(", and copies data for {share:ratio}", share=copies) if copies >= LIMITING else None
        yield message(template, device=first["device"], share=share, time=span, count=len(busy), copies=copying)
    model = tables.get("model")
    loading = () if model is None else model.loc[model["phase"] == "dataloader", "cpu_ratio"].dropna()
    for share in (share for share in loading if share >= LIMITING):
        yield message("Data loading takes {share:ratio} of the time of all recorded phases.", share=share)
    if not len(busy) and operators is not None and len(operators):
        first = operators.sort_values("self_cpu_ns", ascending=False, kind="stable").iloc[0]
        template = mark("{name} takes the most host time of all operators: {share:ratio}.")
        yield message(template, name=first["name"], share=float(first["self_cpu_ratio"]))
