"""What perfkit_paddle registers. Imports stay inside: this must be quick, and must not import paddle."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import OperatorNames, Recorder, Source


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    from perfkit_paddle import source

    return source.sources()


@hookimpl
def perfkit_recorders() -> Sequence[Recorder]:
    from perfkit_paddle import demo, record

    return [Recorder("paddle", record.start, demo.demo)]


@hookimpl
def perfkit_operator_names() -> OperatorNames:
    from perfkit_paddle.operators import operator_name

    return {"paddle": operator_name}
