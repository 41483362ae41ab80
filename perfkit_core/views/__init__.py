"""The built-in views. Each file declares one in ``VIEW``: its table, its columns, and its merge over ranks.

To add a built-in view, write its file and list it below. Plugins use the hook ``perfkit_views``. Shared modules:

- ``select``: the events that a request selects; ranks and threads; the time of the steps,
- ``grouping``: the key columns that ``--by`` adds, including Python stacks,
- ``attribution``: the host event to which device work belongs; how the frameworks' own tables count,
- ``tables``: tables made of arrays,
- ``merging``: the merge of the tables of several ranks."""

from __future__ import annotations

from perfkit_core.views import account, code, findings, fluid_events, fluid_memcpy, fluid_overhead, modules
from perfkit_core.views.communication import (
    clocks,
    collectives,
    distributed,
    imbalance,
    pipeline,
    point_to_point,
    stragglers,
)
from perfkit_core.views.devices import device, kernels, memcpy
from perfkit_core.views.hardware import gemm, model_flops, roofline
from perfkit_core.views.memory import (
    memory,
    memory_categories,
    memory_checks,
    memory_curve,
    memory_leaks,
    memory_peak,
    memory_places,
    memory_steps,
)
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import (
    compiled,
    families,
    graph,
    memory_manipulation,
    operator_kinds,
    operator_tree,
    operators,
)
from perfkit_core.views.steps import input_pipeline, overview, partition, ranks, serving, step_phases, step_trace, steps

_FILES = (
    steps, partition, ranks, step_trace, input_pipeline, serving, overview, step_phases, distributed, collectives,
    stragglers, imbalance, point_to_point, pipeline, clocks, operators, operator_tree, operator_kinds, families,
    user_annotations, memory_manipulation, modules, code, graph, kernels, compiled, memcpy, device, roofline, gemm,
    model_flops, memory, memory_places, memory_categories, memory_peak, memory_curve, memory_steps, memory_leaks,
    memory_checks, findings, account,
)  # fmt: skip
VIEWS = (
    *(file.VIEW for file in _FILES),
    *(fluid_events.HEAD_VIEW, fluid_overhead.VIEW, fluid_memcpy.VIEW, fluid_events.VIEW),
)
