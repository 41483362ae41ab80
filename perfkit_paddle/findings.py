"""Data-quality warnings about Paddle's recordings, and metadata of recordings (TraceMeta and devices)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.language.messages import message
from perfkit_core.base.system.outside_text import whole_number
from perfkit_core.readers.chrome import dialect
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.schema import CPU, DEVICE_WORK
from perfkit_paddle.names import DEVICE_BACKEND

_UTILISATION: Final = {"System Cpu Utilization": "system", "Process Cpu Utilization": "process"}


def truncated() -> Finding:
    return Finding("truncated", message("the file is truncated or damaged: the events after the damage are missing"))


def skipped(count: int) -> Finding:
    text = message("{count} damaged events could not be read and are missing", count=count)
    return Finding("skipped-events", text)


def unlabelled(count: int) -> Finding:
    """Warn of names that do not end with a duration. Paddle's JSON has a duration at the end of each name."""
    text = message(
        "{count} event names are cut off, possibly at a quote character inside the name. Other events may be missing",
        count=count,
    )
    return Finding("names-cut-short", text)


def rounded(start_error_ns: int, duration_error_ns: int, memory_error_ns: int) -> Finding:
    """Report the rounding of times in Paddle's JSON. Memory events have larger errors, because their starts are stored
    in whole µs. ``memory_error_ns`` is 0 without memory events."""
    text = message(
        "Paddle's JSON rounds times: starts may be off by {start} ns, durations by {duration} ns. "
        "A .pb file (export_protobuf) and a recording of perfkit's trace_handler are exact",
        start=start_error_ns,
        duration=duration_error_ns,
    )
    if memory_error_ns:
        text = message(
            "Paddle's JSON rounds times: starts may be off by {start} ns, starts of memory events by {memory} ns, "
            "durations by {duration} ns. A .pb file (export_protobuf) and a recording of perfkit's trace_handler are "
            "exact",
            start=start_error_ns,
            memory=memory_error_ns,
            duration=duration_error_ns,
        )
    return Finding("rounded-clocks", text, note=True)


def parents_rebuilt(odd_threads: int) -> Finding:
    """Report that parents were inferred, because Paddle's JSON does not record parents."""
    text = message("parents are inferred from the order of the events and from rounded times")
    if odd_threads:
        text = message(
            "parents are inferred from the order of the events and from rounded times. In {count} threads, events are "
            "not in Paddle's usual order, so parents are inferred from rounded times only",
            count=odd_threads,
        )
    return Finding("rebuilt-parents", text, note=True)


def partial_step(number: int, stepped: bool = True) -> Finding:
    """Report a step that is not complete. ``stepped``: whether the loop called the profiler's ``step()`` at all."""
    text = message("the profiler's stop() ended step {number}: the step is not a complete iteration", number=number)
    if not stepped:
        text = message("the recording ended before any call of the profiler's step(): call it after each iteration")
    return Finding("partial-step", text)


def save_failed(reason: str) -> Finding:
    """Report that the cycle was read from Paddle's Python objects, because Paddle could not save it as a protobuf."""
    text = message(
        "Paddle could not write its protobuf ({reason}): copy kinds and operator inputs are missing", reason=reason
    )
    return Finding("save-failed", text)


def unknown_arguments(reason: str, count: int) -> Finding:
    """Warn of matrix products in static programs whose shapes are unknown."""
    text = message(
        "{count} matrix products of static programs have no shapes, because threads run operators in any order: set "
        "FLAGS_enable_pir_in_executor_trace_run=1 to run them in the order of the program",
        count=count,
    )
    if reason == "sizes":
        text = message(
            "{count} matrix products of static programs have no shapes, because sizes in the program are unknown: give "
            "paddle.static.data() fixed sizes",
            count=count,
        )
    return Finding("operators-without-shapes", text)


def overflowed_bytes(count: int) -> Finding:
    text = message("{count} copies have an unknown size: Paddle's JSON cannot store 2 GiB or more", count=count)
    return Finding("overflowed-bytes", text)


def devices(events: pa.Table, described: tuple[Device, ...]) -> tuple[Finding, ...]:
    """Return a warning if device work ran on a device without recorded properties, else ()."""
    described_ids = {CPU, *(device.id for device in described)}
    if described_ids.issuperset(events["device"].unique().to_pylist()):
        return ()
    work = pc.is_in(events["kind"].cast(pa.string()), pa.array(DEVICE_WORK))
    missing = sorted(set(events.filter(work)["device"].unique().to_pylist()) - described_ids)
    text = message("the file does not describe {devices}", devices=", ".join(missing))
    return (Finding("no-device-properties", text),) if missing else ()


def device(properties: Mapping[str, Any], name: object) -> Device:
    """Return a device. ``properties`` has the keys of Paddle's JSON."""
    # Paddle's JSON has smCount where other profilers have numSms.
    named = {"numSms" if key == "smCount" else key: value for key, value in properties.items()}
    rest = {key: value for key, value in named.items() if key not in ("id", "totalGlobalMem", "name")}
    number = dialect.integer(properties.get("id")) or 0
    return dialect.device(DEVICE_BACKEND, number, name, properties.get("totalGlobalMem"), rest)


def make_meta(processes: Mapping[int, int], extra_info: Mapping[str, str], rank: int | None, **facts: Any) -> TraceMeta:
    """Return the metadata of a trace. ``processes`` maps thread ids to process ids. ``extra_info`` is a table that
    Paddle records: it maps thread ids to thread names, and contains two CPU utilisations, as ratios."""
    pids = set(processes.values())
    fallback = pids.pop() if len(pids) == 1 else None  # the process of threads without events
    thread_names = {}
    for key, name in extra_info.items():
        number = whole_number(key)
        pid = None if number is None else processes.get(number, fallback)
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
