"""The first sentence of a report: what limits the training, with the figures that show it, from the tables of views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message

VIEWS: Final = ("partition", "model", "device", "operators", "steps")
"""Views whose tables a verdict uses. It uses those that are there."""
LIMITING: Final = 0.15
"""Minimum share of the step time of waits or host work for a verdict other than device-bound or compute-bound."""
_COMPUTE: Final = ("device_compute", "compute")
_WITHOUT_OPERATORS: Final = ("launch_and_host", "framework", "idle")
"""Categories in which the host works outside operators, or in which no device works."""
_WAITS: Final = {
    "input_wait": mark(
        "Input-bound: {share:ratio} of the step time ({time:ns} per step) is spent waiting for the next batch"
    ),
    "exposed_communication": mark(
        "Communication-bound: {share:ratio} of the step time ({time:ns} per step) is communication without computation"
    ),
    "exposed_copy": mark("Copy-bound: for {share:ratio} of the step time ({time:ns} per step), devices only copy data"),
}
_LAUNCH_BOUND: Final = mark(
    "Launch-bound: devices are idle for {share:ratio} of the step time ({time:ns} per step), mostly while the host "
    "runs Python or launches work"
)
_HOST_BOUND: Final = mark(
    "Host-bound: devices are idle for {share:ratio} of the step time ({time:ns} per step), mostly while nothing was "
    "recorded on the host"
)
_OVERHEAD_BOUND: Final = mark(
    "Overhead-bound: for {share:ratio} of the step time ({time:ns} per step), no operator runs, mostly while Python or "
    "framework code runs"
)
_UNRECORDED: Final = mark(
    "Overhead-bound: for {share:ratio} of the step time ({time:ns} per step), no operator runs, mostly in code that "
    "was not recorded"
)
_DEVICE_BOUND: Final = mark("Device-bound: devices compute for {share:ratio} of the step time ({time:ns} per step)")
_CPU_BOUND: Final = mark("Compute-bound: operators compute for {share:ratio} of the step time ({time:ns} per step)")


def verdict(tables: Mapping[str, pd.DataFrame]) -> Iterator[Message]:
    """Yield one sentence on what limits the steps. Without steps, yield sentences on the whole recording instead.
    Without the table of the view partition, yield nothing."""
    partition, operators = tables.get("partition"), tables.get("operators")
    if partition is None or _only_ranges(operators, tables.get("device")):
        return
    steps, devices = len(tables.get("steps", ())), tables.get("device")
    if len(partition) and partition["total_ns"].sum():
        yield _of_steps(partition)
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


def _of_steps(partition: pd.DataFrame) -> Message:
    rows = partition.fillna({"ratio": 0.0, "avg_ns": 0})
    shares = dict(zip(rows["category"], rows["ratio"].astype(float), strict=True))
    times = dict(zip(rows["category"], rows["avg_ns"].astype(int), strict=True))
    on_device = "device_compute" in shares

    def part(template: str, *names: str) -> Message:
        values = {
            "share": sum(shares.get(name, 0) for name in names),
            "time": sum(times.get(name, 0) for name in names),
        }
        return message(template, **values)

    host = _UNRECORDED if shares.get("idle", 0) > shares.get("framework", 0) else _OVERHEAD_BOUND
    if on_device:
        host = _LAUNCH_BOUND if shares.get("launch_and_host", 0) >= shares.get("idle", 0) else _HOST_BOUND
    limits = {name: (shares.get(name, 0.0), part(template, name)) for name, template in _WAITS.items()}
    # devices are idle during input waits, too; a sentence that says "mostly" needs a part that exceeds them
    outside = {name: shares.get(name, 0.0) for name in _WITHOUT_OPERATORS}
    if not on_device or max(outside.values()) >= shares.get("input_wait", 0):
        names = (*outside, "input_wait") if on_device else tuple(outside)
        limits["host"] = (sum(outside.values()), part(host, *names))
    share, limit = max(limits.values(), key=lambda entry: entry[0])
    if share < LIMITING:
        return message("{what}.", what=part(_DEVICE_BOUND if on_device else _CPU_BOUND, *_COMPUTE))
    template = (
        mark("{what}; devices compute for {share:ratio}.")
        if on_device
        else mark("{what}; operators compute for {share:ratio}.")
    )
    return message(template, what=limit, share=sum(shares.get(name, 0) for name in _COMPUTE))


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
