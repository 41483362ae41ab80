"""The hooks of perfkit that Paddle's adapter implements. Importing this needs no Paddle."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import OperatorNames, Recorder, Source
from perfkit_paddle import demo, operators, record, source
from perfkit_paddle.meta import FRAMEWORK


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    return source.sources()


@hookimpl
def perfkit_recorders() -> Sequence[Recorder]:
    return [Recorder(FRAMEWORK, record.start, demo.demo)]


@hookimpl
def perfkit_operator_names() -> OperatorNames:
    return {FRAMEWORK: operators.operator_name}
