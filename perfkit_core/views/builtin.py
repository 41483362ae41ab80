"""All built-in views. A recording, which needs a few functions of this package, does not import them."""

from __future__ import annotations

from perfkit_core.views import code, data_quality, fluid_overhead, fluid_tables, modules
from perfkit_core.views.communication import (
    clocks,
    collectives,
    distributed,
    imbalance,
    pipeline,
    point_to_point,
    stragglers,
)
from perfkit_core.views.devices import device, kernels, model_flops, roofline
from perfkit_core.views.memory import memory, memory_blocks, memory_categories, memory_pools
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
from perfkit_core.views.steps import input_pipeline, overview, partition, serving, step_phases, steps

VIEWS = (
    steps.VIEW, partition.VIEW, partition.RANKS_VIEW, steps.TRACE_VIEW, input_pipeline.VIEW, serving.VIEW,
    overview.VIEW, step_phases.VIEW, distributed.VIEW, collectives.VIEW, stragglers.VIEW, imbalance.VIEW,
    point_to_point.VIEW, pipeline.VIEW, clocks.VIEW, operators.VIEW, operator_tree.VIEW, operator_kinds.VIEW,
    families.VIEW, user_annotations.VIEW, memory_manipulation.VIEW, modules.VIEW, code.VIEW, graph.VIEW,
    kernels.VIEW, kernels.TASKS_VIEW, compiled.VIEW, kernels.MEMCPY_VIEW, device.VIEW, roofline.VIEW,
    roofline.GEMM_VIEW, model_flops.VIEW, memory.VIEW, memory_pools.PLACES_VIEW, memory_categories.VIEW,
    memory_blocks.PEAK_VIEW, memory_pools.CURVE_VIEW, memory_pools.STEPS_VIEW, memory_blocks.LEAKS_VIEW,
    memory_pools.CHECKS_VIEW, data_quality.FINDINGS_VIEW, data_quality.ACCOUNT_VIEW, fluid_tables.HEAD_VIEW,
    fluid_overhead.VIEW, fluid_tables.MEMCPY_VIEW, fluid_tables.VIEW,
)  # fmt: skip
