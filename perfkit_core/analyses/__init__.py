"""One question a file. Each file holds a VIEW: a function from a Trace to a table, with its name and description.

A new view needs its file and a line in :data:`VIEWS` (a plugin's view: the hook ``perfkit_analyses``).
"""

from __future__ import annotations

from perfkit_core.analyses import (
    code,
    device,
    distributed,
    fluid,
    graph,
    input_pipeline,
    kernels,
    memcpy,
    memory,
    memory_manipulation,
    model,
    modules,
    operator_kinds,
    operator_tree,
    operators,
    overview,
    partition,
    step_trace,
    steps,
    user_annotations,
)

VIEWS = (
    steps.VIEW,
    partition.VIEW,
    step_trace.VIEW,
    input_pipeline.VIEW,
    overview.VIEW,
    model.VIEW,
    distributed.VIEW,
    operators.VIEW,
    operator_tree.VIEW,
    operator_kinds.VIEW,
    modules.VIEW,
    kernels.VIEW,
    memcpy.VIEW,
    memory_manipulation.VIEW,
    user_annotations.VIEW,
    device.VIEW,
    code.VIEW,
    graph.VIEW,
    *fluid.VIEWS,
    *memory.VIEWS,
)
