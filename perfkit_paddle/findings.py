"""What is doubtful in Paddle's data, and the devices it names. Codes are stable.

TraceMeta of a Paddle profile: what its extra information says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.language.messages import message
from perfkit_core.model.meta import Device, Finding, TraceMeta
from perfkit_core.model.schema import CPU, DEVICE_WORK
from perfkit_paddle.names import DEVICE_BACKEND

_RENAMED: Final = {"smCount": "numSms"}
"""Property as Paddle spells it → as other profilers do."""


def truncated() -> Finding:
    """The file broke off."""
    return Finding("truncated", message("the file is cut off or damaged: what comes after the damage is missing"))


def skipped(count: int) -> Finding:
    """Events that could not be read."""
    text = message("{count} damaged events could not be read and are missing", count=count)
    return Finding("skipped-events", text)


def unknown_types(counts: Mapping[str, int]) -> Finding:
    """Event types that no known Paddle writes."""
    types = ", ".join(f"{name} ({count})" for name, count in counts.items())
    text = message("event types that perfkit does not know are kept as 'other': {types}", types=types)
    return Finding("unknown-event-types", text)


def unlabelled(count: int) -> Finding:
    """Names without the duration that Paddle appends: text in a name closed it early."""
    text = message(
        "{count} names lack the duration that Paddle appends: quotes in them may hide their end or other events",
        count=count,
    )
    return Finding("names-cut-short", text)


def rounded(start_error_ns: int, duration_error_ns: int, memory_error_ns: int) -> Finding:
    """Paddle's JSON keeps times as float32 µs and whole µs, those of memory events as whole µs alone. An error of 0:
    there are no memory events."""
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
    """Paddle's JSON holds no tree."""
    text = message("parents are worked out from the order of the events and from rounded times")
    if odd_threads:
        text = message(
            "parents are worked out from the order of the events and from rounded times; {count} threads are not in "
            "Paddle's order: there neighbours within the rounding may be swapped",
            count=odd_threads,
        )
    return Finding("rebuilt-parents", text)


def partial_step(number: int) -> Finding:
    """stop() ends the step that is running."""
    text = message("step {number} was ended by the profiler's stop(): it is not a whole iteration", number=number)
    return Finding("partial-step", text)


def save_failed(reason: str) -> Finding:
    """Paddle's own writer failed; the live tree tells less."""
    text = message(
        "Paddle could not write its protobuf ({reason}): copy kinds and operator inputs are missing", reason=reason
    )
    return Finding("save-failed", text)


def overflowed_bytes(count: int) -> Finding:
    """Paddle's JSON prints bytes as int32."""
    text = message("{count} copies of 2 GiB or more have a negative size in Paddle's JSON: unknown", count=count)
    return Finding("overflowed-bytes", text)


def devices(events: pa.Table, known: tuple[Device, ...]) -> tuple[Finding, ...]:
    """Device work without a description of the device."""
    told = {CPU, *(device.id for device in known)}
    if told.issuperset(events["device"].unique().to_pylist()):
        return ()
    work = pc.is_in(events["kind"].cast(pa.string()), pa.array(DEVICE_WORK))
    used = set(events.filter(work)["device"].unique().to_pylist())
    missing = sorted(used - told)
    if not missing:
        return ()
    text = message("the file does not describe {devices}", devices=", ".join(missing))
    return (Finding("no-device-properties", text),)


def device(properties: Mapping[str, Any], name: object) -> Device:
    """A device from its recorded properties (keys of Paddle's JSON)."""
    rest = {_RENAMED.get(k, k): v for k, v in properties.items() if k not in ("id", "totalGlobalMem", "name")}
    memory = properties.get("totalGlobalMem")
    return Device(
        f"{DEVICE_BACKEND}:{properties.get('id', 0)}",
        name if isinstance(name, str) else None,
        memory if isinstance(memory, int) else None,
        rest,
    )


FRAMEWORK: Final = "paddle"
_UTILISATION: Final = {"System Cpu Utilization": "system", "Process Cpu Utilization": "process"}


def make_meta(processes: Mapping[int, int], extra_info: Mapping[str, str], rank: int | None, **facts: Any) -> TraceMeta:
    """The meta of a cycle; its window is that of its events. ``processes``: the process of each thread that has events;
    ``extra_info`` maps thread ids to names, and names of CPU utilisations to ratios."""
    return TraceMeta(
        framework=FRAMEWORK,
        ranks=() if rank is None else (rank,),
        thread_names=_thread_names(extra_info, processes, rank),
        cpu_utilisation=_utilisation(extra_info),
        **facts,
    )


def processes(events: pa.Table) -> dict[int, int]:
    """Process of each thread that has events."""
    pairs = events.select(["tid", "pid"]).drop_null().group_by(["tid", "pid"]).aggregate([])
    return dict(zip(pairs["tid"].to_pylist(), pairs["pid"].to_pylist(), strict=True))


def _thread_names(extra_info: Mapping[str, str], processes: Mapping[int, int], rank: int | None) -> dict[str, str]:
    """``rank:pid:tid`` → name. A thread without events belongs to the process, when there is only one."""
    only = set(processes.values())
    fallback = only.pop() if len(only) == 1 else None
    names = {}
    for key, name in extra_info.items():
        pid = processes.get(int(key), fallback) if key.isdecimal() else None
        if pid is not None:
            names[f"{'-' if rank is None else rank}:{pid}:{key}"] = name
    return names


def _utilisation(extra_info: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for key, scope in _UTILISATION.items():
        try:
            found[scope] = float(extra_info[key])
        except (KeyError, ValueError):
            continue
    return found
