"""Which of Paddle's operators compute the same? One table a topic: see :mod:`perfkit_core.operators.table_text`.

Not listed is what :mod:`perfkit_paddle.operators` takes off first, and a name that is canonical itself.
"""

from __future__ import annotations

from typing import Final

from perfkit_core.operators.table_text import read_table
from perfkit_paddle.operator_tables import elementwise, layers, movement, others

TABLE: Final = read_table(layers.TEXT + elementwise.TEXT + movement.TEXT + others.TEXT)
"""Paddle's name, without prefix and suffix → canonical name, for those that differ."""
