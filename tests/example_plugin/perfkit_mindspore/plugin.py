"""The plugin hooks of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfkit_core.plugins.contracts import Exporter, OperatorNames, Remedy, Rule, Source, View
from perfkit_core.plugins.hookspecs import hookimpl
from perfkit_mindspore import conversions, layers, source
from perfkit_mindspore.names import operator_name


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    return [
        Source("mindspore", "timelines of MindSpore's profiler (timeline_display_*.json)", source.sniff, source.read)
    ]


@hookimpl
def perfkit_operator_names() -> OperatorNames:
    return {"mindspore": operator_name}


@hookimpl
def perfkit_views() -> Sequence[View]:
    return [layers.VIEW]


@hookimpl
def perfkit_exporters() -> Sequence[Exporter]:
    return [layers.EXPORTER]


@hookimpl
def perfkit_rules() -> Sequence[Rule]:
    return [conversions.RULE]


@hookimpl
def perfkit_remedies() -> Mapping[str, Sequence[Remedy]]:
    return {"mindspore": [conversions.REMEDY]}
