"""Where does this process stand in a distributed job?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_RANK_VARIABLES: Final = ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_WORLD_VARIABLES: Final = ("WORLD_SIZE", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in a distributed job; None where the job does not say."""

    rank: int | None
    world_size: int | None


def environment_place() -> Place:
    """Rank and world size from the launcher's environment variables."""
    return Place(_first_integer(_RANK_VARIABLES), _first_integer(_WORLD_VARIABLES))


def _first_integer(variables: Iterable[str]) -> int | None:
    for name in variables:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None
