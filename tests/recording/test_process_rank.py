"""Rank and world size come from the same launcher, even if several launchers have set their variables."""

from __future__ import annotations

import pytest

from perfkit_core.recording.environment import ProcessRank, environment_rank

NAMES = {
    "torch": ("RANK", "WORLD_SIZE"),
    "paddle": ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    "mpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
}


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({}, ProcessRank(None, None)),
        ({"slurm": ("2", "4")}, ProcessRank(2, 4)),
        ({"torch": ("0", "1"), "paddle": ("3", "8")}, ProcessRank(0, 1)),
        ({"torch": ("", "1"), "mpi": ("5", "8")}, ProcessRank(5, 8)),
        ({"torch": ("1", ""), "slurm": ("0", "4")}, ProcessRank(0, 4)),
        ({"torch": ("1", ""), "slurm": ("", "4")}, ProcessRank(1, None)),
        ({"torch": ("x", "2"), "paddle": ("3", "")}, ProcessRank(3, None)),
        ({"torch": ("", "2")}, ProcessRank(None, None)),
    ],
)
def test_rank_and_world_size_are_of_one_launcher(
    told: dict[str, tuple[str, str]], place: ProcessRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_only(told, monkeypatch)
    assert environment_rank() == place


def test_the_first_launcher_is_preferred_if_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    set_only({"torch": ("0", "1"), "paddle": ("3", "8")}, monkeypatch)
    assert environment_rank(NAMES["paddle"]) == ProcessRank(3, 8)
    monkeypatch.delenv("PADDLE_TRAINERS_NUM")
    assert environment_rank(NAMES["paddle"]) == ProcessRank(0, 1)


def set_only(told: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set these environment variables. An empty value unsets the variable."""
    for launcher, names in NAMES.items():
        for name, value in zip(names, told.get(launcher, ("", "")), strict=True):
            monkeypatch.delenv(name, raising=False)
            if value:
                monkeypatch.setenv(name, value)
