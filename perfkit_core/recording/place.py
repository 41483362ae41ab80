"""Where does this process stand in a distributed job?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

Variables = tuple[str, str]
"""Names of the environment variables in which a launcher tells a process its rank, and the world size."""

_LAUNCHERS: Final[tuple[Variables, ...]] = (
    ("RANK", "WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in a distributed job; None where the job does not say."""

    rank: int | None
    world_size: int | None


def environment_place(*first: Variables) -> Place:
    """Rank and world size as one launcher's environment variables tell them; those of ``first`` are asked first.

    A launcher that tells both goes before one that tells the rank alone: launchers are run by one another, and the rank
    of one says nothing beside the world size of another.
    """
    told = [Place(_integer(rank), _integer(size)) for rank, size in (*first, *_LAUNCHERS)]
    ranked = [place for place in told if place.rank is not None]
    return next((place for place in ranked if place.world_size is not None), next(iter(ranked), Place(None, None)))


def _integer(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None
