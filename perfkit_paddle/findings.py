"""Data-quality warnings about Paddle's recordings, with stable codes, and the TraceMeta with its devices."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.language.messages import message
from perfkit_core.model.meta import Device, Finding, TraceMeta
from perfkit_core.model.schema import CPU, DEVICE_WORK
from perfkit_paddle.names import DEVICE_BACKEND

_RENAMED: Final = {"smCount": "numSms"}
"""Paddle's spelling of a property → the spelling of other profilers."""
_UTILISATION: Final = {"System Cpu Utilization": "system", "Process Cpu Utilization": "process"}


def truncated() -> Finding:
    return Finding("truncated", message("the file is cut off or damaged: what comes after the damage is missing"))


def skipped(count: int) -> Finding:
    text = message("{count} damaged events could not be read and are missing", count=count)
    return Finding("skipped-events", text)


def unknown_types(counts: Mapping[str, int]) -> Finding:
    types = ", ".join(f"{name} ({count})" for name, count in counts.items())
    text = message("event types that perfkit does not know are kept as 'other': {types}", types=types)
    return Finding("unknown-event-types", text)


def unlabelled(count: int) -> Finding:
    """Report names without the duration that Paddle appends: text in the name ended it early."""
    text = message(
        "{count} names lack the duration that Paddle appends: quotes in them may hide their end or other events",
        count=count,
    )
    return Finding("names-cut-short", text)


def rounded(start_error_ns: int, duration_error_ns: int, memory_error_ns: int) -> Finding:
    """Report that Paddle's JSON stores times as float32 µs and whole µs, those of memory events as whole µs only (error
    0: there are none)."""
    text = message(
        "Paddle's JSON rounds clocks: starts may be off by {start} ns, durations by {duration} ns; "
        "its .pb file is exact (export_protobuf, or perfkit's trace_handler)",
        start=start_error_ns,
        duration=duration_error_ns,
    )
    if memory_error_ns:
        text = message(
            "Paddle's JSON rounds clocks: starts may be off by {start} ns, those of memory events by {memory} ns, "
            "durations by {duration} ns; its .pb file is exact (export_protobuf, or perfkit's trace_handler)",
            start=start_error_ns,
            memory=memory_error_ns,
            duration=duration_error_ns,
        )
    return Finding("rounded-clocks", text)


def parents_rebuilt(odd_threads: int) -> Finding:
    """Report that parents were rebuilt, because Paddle's JSON has none."""
    text = message("parents are inferred from the order of the events and from rounded times")
    if odd_threads:
        text = message(
            "parents are inferred from the order of the events and from rounded times; {count} threads are not in "
            "Paddle's order: neighbours within the rounding error may be swapped there",
            count=odd_threads,
        )
    return Finding("rebuilt-parents", text)


def partial_step(number: int) -> Finding:
    text = message("step {number} was ended by the profiler's stop(): it is not a whole iteration", number=number)
    return Finding("partial-step", text)


def save_failed(reason: str) -> Finding:
    """Report that Paddle's own writer failed, so that the poorer live tree was used."""
    text = message(
        "Paddle could not write its protobuf ({reason}): copy kinds and operator inputs are missing", reason=reason
    )
    return Finding("save-failed", text)


def overflowed_bytes(count: int) -> Finding:
    """Report that Paddle's JSON prints bytes as int32."""
    text = message("{count} copies of 2 GiB or more have a negative size in Paddle's JSON: unknown", count=count)
    return Finding("overflowed-bytes", text)


def devices(events: pa.Table, described: tuple[Device, ...]) -> tuple[Finding, ...]:
    known = {CPU, *(device.id for device in described)}
    if known.issuperset(events["device"].unique().to_pylist()):
        return ()
    work = pc.is_in(events["kind"].cast(pa.string()), pa.array(DEVICE_WORK))
    missing = sorted(set(events.filter(work)["device"].unique().to_pylist()) - known)
    if not missing:
        return ()
    text = message("the file does not describe {devices}", devices=", ".join(missing))
    return (Finding("no-device-properties", text),)


def device(properties: Mapping[str, Any], name: object) -> Device:
    """Return a device from its recorded properties (keys of Paddle's JSON)."""
    rest = {_RENAMED.get(k, k): v for k, v in properties.items() if k not in ("id", "totalGlobalMem", "name")}
    memory = properties.get("totalGlobalMem")
    return Device(
        f"{DEVICE_BACKEND}:{properties.get('id', 0)}",
        name if isinstance(name, str) else None,
        memory if isinstance(memory, int) else None,
        rest,
    )


def make_meta(processes: Mapping[int, int], extra_info: Mapping[str, str], rank: int | None, **facts: Any) -> TraceMeta:
    """Return the meta of a cycle; its window is that of its events. ``processes`` maps threads with events to
    processes; ``extra_info`` maps thread ids to names, and names of CPU utilisations to ratios."""
    pids = set(processes.values())
    fallback = pids.pop() if len(pids) == 1 else None  # for threads without events
    thread_names = {}
    for key, name in extra_info.items():
        pid = processes.get(int(key), fallback) if key.isdecimal() else None
        if pid is not None:
            thread_names[f"{'-' if rank is None else rank}:{pid}:{key}"] = name
    cpu_utilisation = {}
    for key, scope in _UTILISATION.items():
        with contextlib.suppress(KeyError, ValueError):
            cpu_utilisation[scope] = float(extra_info[key])
    return TraceMeta(
        framework="paddle",
        ranks=() if rank is None else (rank,),
        thread_names=thread_names,
        cpu_utilisation=cpu_utilisation,
        **facts,
    )


def processes(events: pa.Table) -> dict[int, int]:
    pairs = events.select(["tid", "pid"]).drop_null().group_by(["tid", "pid"]).aggregate([])
    return dict(zip(pairs["tid"].to_pylist(), pairs["pid"].to_pylist(), strict=True))
