"""The built-in views. The file of a view declares it (``VIEW``): its table, its columns, and how it merges over ranks.

A new view needs its file and a line here (in a plugin: the hook ``perfkit_analyses``). Shared modules:

- ``select``: counted events, ranks, threads, and the denominators of ratios,
- ``grouping``: the key columns of ``--by``, including Python stacks,
- ``attribution``: owners of device work, and the rules of the frameworks' own tables,
- ``tables``: tables made of arrays, and the merge of the tables of several ranks.
"""

from __future__ import annotations

from perfkit_core.views import code, fluid_events, fluid_memcpy, fluid_overhead, modules
from perfkit_core.views.communication import clocks, collectives, distributed, stragglers
from perfkit_core.views.devices import device, kernels, memcpy
from perfkit_core.views.memory import (
    memory,
    memory_checks,
    memory_curve,
    memory_leaks,
    memory_peak,
    memory_places,
    memory_steps,
)
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import families, graph, memory_manipulation, operator_kinds, operator_tree, operators
from perfkit_core.views.steps import input_pipeline, overview, partition, ranks, step_phases, step_trace, steps

VIEWS = (
    steps.VIEW,
    partition.VIEW,
    ranks.VIEW,
    step_trace.VIEW,
    input_pipeline.VIEW,
    overview.VIEW,
    step_phases.VIEW,
    distributed.VIEW,
    collectives.VIEW,
    stragglers.VIEW,
    clocks.VIEW,
    operators.VIEW,
    operator_tree.VIEW,
    operator_kinds.VIEW,
    families.VIEW,
    user_annotations.VIEW,
    memory_manipulation.VIEW,
    modules.VIEW,
    code.VIEW,
    graph.VIEW,
    kernels.VIEW,
    memcpy.VIEW,
    device.VIEW,
    memory.VIEW,
    memory_places.VIEW,
    memory_peak.VIEW,
    memory_curve.VIEW,
    memory_steps.VIEW,
    memory_leaks.VIEW,
    memory_checks.VIEW,
    fluid_events.HEAD_VIEW,
    fluid_overhead.VIEW,
    fluid_memcpy.VIEW,
    fluid_events.VIEW,
)
