"""The plugin hooks of perfkit_torch. Each hook and each part of the framework's record imports what it needs when it is
called. Loading the plugin is therefore quick and does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from perfkit_core.base.system.packages import imported, later
from perfkit_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from perfkit_core.plugins import contracts, frameworks


@hookimpl
def perfkit_sources() -> Sequence[contracts.Source]:
    from perfkit_core.plugins.contracts import Source
    from perfkit_torch import ascend, memory_snapshot, source

    return [
        Source("torch", "Chrome traces of torch.profiler (.json, .json.gz)", source.sniff, source.read,
               source.peek, source.stream, source.complete),
        Source("torch-ascend", "recordings of torch_npu (NAME_ascend_pt, .db)", ascend.sniff, ascend.read, ascend.peek,
               files=ascend.files),
        Source("torch-memory", "memory snapshots of torch (.pickle)", memory_snapshot.sniff, memory_snapshot.read),
    ]  # fmt: skip


@hookimpl
def perfkit_frameworks() -> Sequence[frameworks.Framework]:
    from perfkit_core.plugins.frameworks import Framework

    return [
        Framework(
            "torch",
            recorder=imported("perfkit_torch.record", "RECORDER"),
            step_timer=imported("perfkit_torch.throughput", "start"),
            remedies=partial(later("perfkit_core.advice.remedies", "read_remedies"), "perfkit_torch"),
            calibrator=_calibrator,
            operator_names=imported("perfkit_torch.operator_names", "operator_name"),
            operator_formulas=imported("perfkit_torch.operator_names", "operator_formula"),
            range_names=imported("perfkit_torch.nvtx_ranges", "range_meaning"),
            compiled_code=_compiled_code,
            checks=_checks,
        )
    ]


def _calibrator() -> frameworks.Calibrator:
    from perfkit_core.plugins.frameworks import Calibrator

    recording_ns = {  # measured with torch 2.13 on a CPU, for a mix of operators
        "": (250.0, 700.0, 2500.0),
        "record_shapes": (50.0, 250.0, 800.0),
        "profile_memory": (0.0, 50.0, 300.0),
        "with_stack": (0.0, 300.0, 1500.0),
    }
    home = "perfkit_torch.calibration"
    return Calibrator(later(home, "version"), later(home, "machine_bench"), recording_ns)


def _compiled_code() -> frameworks.CompiledCode:
    from perfkit_core.plugins.frameworks import CompiledCode
    from perfkit_torch import compile_logs, compiled_code

    return CompiledCode(compiled_code.fused_operators, compile_logs.read, compile_logs.beside)


def _checks() -> contracts.FrameworkChecks:
    from perfkit_core.plugins.contracts import FrameworkChecks

    return FrameworkChecks(("torch",), tuple, later("perfkit_torch.installation", "running"))
