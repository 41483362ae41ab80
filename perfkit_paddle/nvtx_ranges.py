"""The NVTX ranges that Paddle writes: after ``core.nvprof_enable_record_event()``, each event of its profiler is also a
range. The text is the name of the event, without its type. The name shows the type of most events."""

from __future__ import annotations

import re
from typing import Final

from perfkit_core.plugins.frameworks import RangeMeaning
from perfkit_paddle.names import label

_TYPES: Final = re.compile(
    "|".join(
        f"(?P<{kind}>{pattern})"
        for kind, pattern in (
            ("OperatorInner", r"Local_\w*GradNode\w*|.+ (?:infer_meta|infer_shape|node_creation|compute|prepare_data)"),
            ("Operator", r".+ dygraph|(?:pd_op|cinn_op|onednn_op|custom_op|pd_kernel)\.\w+|\w*GradNode\w*"),
            ("DygraphKernelLaunch", r".+ kernel launch"),
            ("UserDefined", r".+ pybind_(?:imperative|patch)_func"),
            ("ProfileStep", r"ProfileStep#\d{1,18}"),
            ("Dataloader", r"_DataLoaderIter\w+"),
            ("Backward", r"Gradient Backward"),
            ("Optimization", r"Optimization Step"),
        )
    )
)
"""Names that only Paddle writes. The group is the type of the event (``TracerEventType``)."""


def range_meaning(text: str) -> RangeMeaning | None:
    """Return the event of a range that Paddle wrote, or None if the text does not show this."""
    match = _TYPES.fullmatch(text)
    if match is None or match.lastgroup is None:
        return None
    meaning = label(match.lastgroup, text)
    return RangeMeaning(text, meaning.kind, meaning.phase, meaning.step)
