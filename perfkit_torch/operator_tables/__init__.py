"""Which names of aten and prims compute the same? One table a topic: see :mod:`perfkit_core.operators.table_text`.

Not listed is what :mod:`perfkit_torch.operator_names` takes off first: a leading underscore, ``special_``, ``linalg_``,
``_copy`` of functional views, names of back ends, and gradients.
"""

from __future__ import annotations

from typing import Final

from perfkit_core.operators.table_text import read_table
from perfkit_torch.operator_tables import elementwise, layers, movement, others

TABLE: Final = read_table(layers.TEXT + elementwise.TEXT + movement.TEXT + others.TEXT)
"""Name without namespace, overload and trailing underscore → canonical name."""
