"""Add an invented device to a recording of a CPU: its operators launch kernels, and some fetch results.

The operators, their order and their shapes are recorded. Their times are multiplied, so that a kernel fits into each
operator. The times of the device are invented, as in the synthetic profiles of Paddle with a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.assembly.assemble import OperatorNames
from perfkit_core.trace.model.schema import OPERATOR, OPERATOR_DETAIL, STEP
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

Role = Literal["kernel", "small kernel", "to host", "to device", "host"]

STRETCH: Final = 20
"""Factor of the recorded times."""
KERNEL_NS: Final = {"kernel": 30_000, "small kernel": 2_000}
COPY_NS: Final = 2_000
CALL_NS: Final = 1_000
_COLUMNS: Final = ("name", "kind", "start_ns", "dur_ns", "tid", "step", "phase", "shapes", "dtypes", "op_name")


def with_device(recorded: Trace, role: Callable[[str, int], Role], copied_bytes: int = 4) -> Trace:
    """Return the steps of a recording with a device. ``role`` gets the canonical name of an outermost operator and its
    number among the operators of this name in its step, and returns what the operator does on the device."""
    names: OperatorNames | None = get_plugins().framework(recorded.meta.framework).operator_names()
    kinds = (STEP, OPERATOR, OPERATOR_DETAIL)
    keep = recorded.host & recorded.rows("kind", *kinds) & (recorded.ints("step") >= 0)
    events = recorded.events.select(list(_COLUMNS)).filter(keep).to_pylist()
    begin = min(event["start_ns"] for event in events)
    rows: list[dict[str, Any]] = []
    done = correlation = until = 0
    seen: dict[tuple[int, str], int] = {}
    for event in sorted(events, key=lambda one: (one["start_ns"], -one["dur_ns"])):
        start, dur = ((event[key] - less) * STRETCH for key, less in (("start_ns", begin), ("dur_ns", 0)))
        more = {key: event[key] for key in ("phase", "shapes", "dtypes") if event[key]}
        step = {"step": event["step"]} if event["kind"] == STEP else {}
        rows.append(host(event["name"], event["kind"], start, dur, **more, **step))
        if event["kind"] != OPERATOR or start < until:
            continue
        until = start + dur
        name = event["op_name"] or ""
        number = seen.setdefault((event["step"], name), 0)
        seen[event["step"], name] += 1
        doing = role(name, number)
        if doing == "host":
            continue
        correlation += 1
        launch = start + dur // 4
        called = "cudaLaunchKernel" if doing in KERNEL_NS else "cudaMemcpyAsync"
        rows.append(host(called, "runtime", launch, CALL_NS, correlation=correlation))
        began = max(done, launch + CALL_NS)
        if doing in KERNEL_NS:
            done = began + KERNEL_NS[doing]
            blocks = 1 if doing == "small kernel" else 1_000
            grid = {"args": f'{{"grid":[{blocks},1,1],"block":[64,1,1]}}'}
            rows.append(device(name, "kernel", began, KERNEL_NS[doing], correlation, **grid))
            continue
        done = began + COPY_NS
        way = "DtoH pageable" if doing == "to host" else "HtoD pageable"
        copy = {"copy_kind": way, "bytes": copied_bytes}
        rows.append(device(f"Memcpy {way}", "memcpy", began, COPY_NS, correlation, **copy))
        if doing == "to host":
            wait = launch + CALL_NS + 100
            assert done + 100 < until, f"{name}: the operator ends before its copy"
            rows.append(host("cudaStreamSynchronize", "sync", wait, done + 100 - wait))
    made = trace(rows, names=names)
    return made.with_meta(framework=recorded.meta.framework, options={})
