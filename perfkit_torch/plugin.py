"""What perfkit_torch registers. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.plugins import hookimpl
from perfkit_core.plugins.contracts import OperatorNames, Recorder, Source
from perfkit_torch import record, source
from perfkit_torch.operator_names import operator_name


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    return [Source("torch", "Chrome traces of torch.profiler (.json, .json.gz)", source.sniff, source.read)]


@hookimpl
def perfkit_recorders() -> Sequence[Recorder]:
    return [Recorder("torch", record.start, record.demo)]


@hookimpl
def perfkit_operator_names() -> OperatorNames:
    return {"torch": operator_name}
