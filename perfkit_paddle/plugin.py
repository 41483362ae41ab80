"""What perfkit_paddle registers. Imports stay inside: this must be quick, and must not import paddle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import Calibrator, OperatorNames, Recorder, Remedy, Source
from perfkit_core.plugins.later import later


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    from perfkit_paddle import source

    return source.sources()


@hookimpl
def perfkit_recorders() -> Sequence[Recorder]:
    from perfkit_paddle import demo, record

    return [Recorder("paddle", record.start, demo.demo)]


@hookimpl
def perfkit_step_timers() -> Mapping[str, Callable[[], Any]]:
    return {"paddle": later("perfkit_paddle.step_times", "start")}


@hookimpl
def perfkit_remedies() -> Mapping[str, Sequence[Remedy]]:
    from perfkit_core.advice.remedies import read_remedies

    return {"paddle": read_remedies("perfkit_paddle")}


@hookimpl
def perfkit_calibrations() -> Sequence[Calibrator]:
    home = "perfkit_paddle.calibration"
    return [Calibrator("paddle", later(home, "version"), later(home, "bench"))]


@hookimpl
def perfkit_operator_names() -> OperatorNames:
    from perfkit_paddle.operators import operator_name

    return {"paddle": operator_name}
