"""One question a file. Each file holds a VIEW: a function from a Trace to a table, with its name and description.

A new view needs its file and a line here (a plugin's view: the hook ``perfkit_analyses``). What several views share
lies beside the packages: which events count (``select``), what rows are split by (``grouping``), whose the device work
is (``attribution``), the time that ratios are of (``span``), how tables of ranks merge (``merging``), and small helpers
for tables.
"""

from __future__ import annotations

from perfkit_core.views.code import code
from perfkit_core.views.communication import clocks, collectives, distributed, stragglers
from perfkit_core.views.devices import device, kernels, memcpy
from perfkit_core.views.fluid import fluid_events, fluid_head, fluid_memcpy, fluid_overhead
from perfkit_core.views.memory import (
    memory,
    memory_checks,
    memory_curve,
    memory_leaks,
    memory_peak,
    memory_places,
    memory_steps,
)
from perfkit_core.views.modules import modules
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import families, graph, memory_manipulation, operator_kinds, operator_tree, operators
from perfkit_core.views.steps import input_pipeline, model, overview, partition, ranks, step_trace, steps

VIEWS = (
    steps.VIEW,
    partition.VIEW,
    ranks.VIEW,
    step_trace.VIEW,
    input_pipeline.VIEW,
    overview.VIEW,
    model.VIEW,
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
    fluid_head.VIEW,
    fluid_overhead.VIEW,
    fluid_memcpy.VIEW,
    fluid_events.VIEW,
)
