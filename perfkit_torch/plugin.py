"""The plugin hooks of perfkit_torch. Each hook imports what it needs when it is called. Loading the plugin is therefore
quick and does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from perfkit_core.plugins import benches, checks, contracts


@hookimpl
def perfkit_sources() -> Sequence[contracts.Source]:
    from perfkit_core.plugins.contracts import Source
    from perfkit_torch import memory_snapshot, source

    return [
        Source("torch", "Chrome traces of torch.profiler (.json, .json.gz)", source.sniff, source.read,
               source.peek, source.stream, source.complete),
        Source("torch-memory", "memory snapshots of torch (.pickle)", memory_snapshot.sniff, memory_snapshot.read),
    ]  # fmt: skip


@hookimpl
def perfkit_recorders() -> Sequence[contracts.Recorder]:
    from perfkit_core.plugins.contracts import Recorder
    from perfkit_torch import record

    section, timer = later("perfkit_torch.section", "start"), later("perfkit_torch.throughput", "timer")
    return [
        Recorder("torch", record.ScriptRecording, record.DEMO, section=section, timer=timer, loop=record.TorchRecording)
    ]


@hookimpl
def perfkit_step_timers() -> Mapping[str, Callable[[], Any]]:
    return {"torch": later("perfkit_torch.throughput", "start")}


@hookimpl
def perfkit_remedies() -> Mapping[str, Sequence[contracts.Remedy]]:
    from perfkit_core.advice.remedies import read_remedies

    return {"torch": read_remedies("perfkit_torch")}


@hookimpl
def perfkit_calibrations() -> Sequence[benches.Calibrator]:
    from perfkit_core.plugins.benches import Calibrator

    home = "perfkit_torch.calibration"
    recording_ns = {  # measured with torch 2.13 on a CPU, for a mix of operators
        "": (250.0, 700.0, 2500.0),
        "record_shapes": (50.0, 250.0, 800.0),
        "profile_memory": (0.0, 50.0, 300.0),
        "with_stack": (0.0, 300.0, 1500.0),
    }
    return [Calibrator("torch", later(home, "version"), later(home, "machine_bench"), recording_ns)]


@hookimpl
def perfkit_checks() -> Sequence[checks.FrameworkChecks]:
    from perfkit_core.plugins.checks import FrameworkChecks

    return [FrameworkChecks("torch", ("torch",), tuple, later("perfkit_torch.installation", "running"))]


@hookimpl
def perfkit_compiled_code() -> Sequence[contracts.CompiledCode]:
    from perfkit_core.plugins.contracts import CompiledCode
    from perfkit_torch import compile_logs, compiled_code

    return [CompiledCode("torch", compiled_code.fused_operators, compile_logs.read, compile_logs.beside)]


@hookimpl
def perfkit_operator_names() -> contracts.OperatorNames:
    from perfkit_torch.operator_names import operator_name

    return {"torch": operator_name}


@hookimpl
def perfkit_operator_formulas() -> contracts.OperatorFormulas:
    from perfkit_torch.operator_formulas import operator_formula

    return {"torch": operator_formula}


@hookimpl
def perfkit_range_names() -> contracts.RangeNames:
    from perfkit_torch.nvtx_ranges import range_meaning

    return {"torch": range_meaning}
