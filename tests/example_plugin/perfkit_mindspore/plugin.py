"""The plugin hooks of this package."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.plugins.contracts import Exporter, Rule, Source, View
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.plugins.hookspecs import hookimpl
from perfkit_mindspore import conversions, layers, source
from perfkit_mindspore.names import operator_name


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    return [
        Source("mindspore", "timelines of MindSpore's profiler (timeline_display_*.json)", source.sniff, source.read)
    ]


@hookimpl
def perfkit_frameworks() -> Sequence[Framework]:
    return [
        Framework("mindspore", operator_names=lambda: operator_name, remedies=lambda: [conversions.REMEDY]),
    ]


@hookimpl
def perfkit_views() -> Sequence[View]:
    return [layers.VIEW]


@hookimpl
def perfkit_exporters() -> Sequence[Exporter]:
    return [layers.EXPORTER]


@hookimpl
def perfkit_rules() -> Sequence[Rule]:
    return [conversions.RULE]
