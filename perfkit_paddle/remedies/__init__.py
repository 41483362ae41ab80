"""What to write in Paddle against each rule's findings: one file a family of rules, code that runs as it stands."""

from __future__ import annotations

from typing import Final

from perfkit_core.plugins.contracts import Remedy
from perfkit_paddle.remedies import (
    arithmetic,
    copies,
    input_pipeline,
    launches,
    memory,
    optimizer,
    precision,
    ranks,
    run,
    waits,
)

REMEDIES: Final[tuple[Remedy, ...]] = (
    *copies.REMEDIES,
    *waits.REMEDIES,
    *input_pipeline.REMEDIES,
    *memory.REMEDIES,
    *launches.REMEDIES,
    *optimizer.REMEDIES,
    *precision.REMEDIES,
    *arithmetic.REMEDIES,
    *run.REMEDIES,
    *ranks.REMEDIES,
)
