"""The plugin hooks of perfkit_paddle. Each hook and each part of the framework's record imports what it needs when it
is called. Loading the plugin is therefore quick and does not import paddle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit_core.base.system.packages import imported, later
from perfkit_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from perfkit_core.plugins import contracts, frameworks

_JSON_HEADER: Final = re.compile(rb'"schemaVersion"\s*:\s*"\d+\.\d+\.\d+".*"span_ind(?:ex|x)"', re.DOTALL)
_JSON_EVENT: Final = re.compile(rb'"cat"\s*:\s*"(?:ProfileStep|PythonUserDefined)"\s*,\s*"cname"')
_PB_HEADER: Final = re.compile(rb"\x0a[\x01-\x10](\d+(?:\.\d+)+)(?:[\x10\x1a\x22\x2a]|\Z)")


def sniff_json(path: Path, head: bytes) -> int:
    """Return how well the reader suits the file: 2 for Paddle's Chrome JSON, else 0."""
    match = _JSON_HEADER.search(head) or _JSON_EVENT.search(head)
    return 2 if match and head.lstrip()[:1] == b"{" else 0


def sniff_pb(path: Path, head: bytes) -> int:
    """Return 2 if the file begins as Paddle's protobuf files do, with a version; else 0. The reader that returns the
    largest number for a file reads it."""
    match = _PB_HEADER.match(head)
    return 2 if match and head[1] == len(match[1]) else 0


@hookimpl
def perfkit_sources() -> Sequence[contracts.Source]:
    from perfkit_core.plugins.contracts import Source

    json, pb = "perfkit_paddle.json_source", "perfkit_paddle.pb_source"
    return [
        Source("paddle-json", "Chrome-trace JSON of paddle.profiler (rounded times)", sniff_json,
               later(json, "read_json"), stream=later(json, "stream"), complete=later(json, "complete")),
        Source("paddle-pb", "protobuf of paddle.profiler (exact times and tree)", sniff_pb,
               later(pb, "read_pb"), stream=later(pb, "stream"), complete=later(pb, "complete")),
    ]  # fmt: skip


@hookimpl
def perfkit_frameworks() -> Sequence[frameworks.Framework]:
    from perfkit_core.plugins.frameworks import Framework, NativeTables

    return [
        Framework(
            "paddle",
            recorder=imported("perfkit_paddle.record", "RECORDER"),
            step_timer=imported("perfkit_paddle.throughput", "start"),
            remedies=partial(later("perfkit_core.advice.remedies", "read_remedies"), "perfkit_paddle"),
            calibrator=_calibrator,
            operator_names=imported("perfkit_paddle.operator_names", "operator_name"),
            operator_formulas=imported("perfkit_paddle.operator_names", "operator_formula"),
            range_names=imported("perfkit_paddle.nvtx_ranges", "range_meaning"),
            native_tables=lambda: NativeTables(operators=("Operator",), totals_only=True),
            compiled_code=_compiled_code,
            checks=_checks,
        )
    ]


def _calibrator() -> frameworks.Calibrator:
    from perfkit_core.plugins.frameworks import Calibrator

    recording_ns = {  # measured with Paddle 3.3.1 on a CPU, for a mix of operators
        "": (50.0, 500.0, 2500.0),
        "record_shapes": (100.0, 500.0, 1200.0),
        "profile_memory": (50.0, 250.0, 600.0),
    }
    home = "perfkit_paddle.calibration"
    return Calibrator(later(home, "version"), later(home, "machine_bench"), recording_ns)


def _compiled_code() -> frameworks.CompiledCode:
    from perfkit_core.plugins.frameworks import CompiledCode
    from perfkit_paddle.operator_names import fused_operators

    return CompiledCode(fused_operators)


def _checks() -> contracts.FrameworkChecks:
    from perfkit_core.plugins.contracts import FrameworkChecks
    from perfkit_paddle.wheels import DISTRIBUTIONS, mismatches

    return FrameworkChecks(DISTRIBUTIONS, mismatches, later("perfkit_paddle.installation", "running"))
