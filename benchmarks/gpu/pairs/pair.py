"""What a pair is, how its saving is measured, and how it is recorded.

Both trainings run in one process and take turns, in blocks of steps. Before and after a block, the device is
synchronised. The recordings are made afterwards, because a profiler may slow down later steps of its process.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmarks.advice.pairs import Pair, Side
from benchmarks.advice.truth import Truth
from benchmarks.gpu.training import Place, Training, record
from perfkit_core.base.system.machine import this_machine
from perfkit_core.measure.verify import runs

STEPS = 12
"""Number of recorded steps of each side."""
BLOCK_S, ROUNDS = 0.15, 4
"""Time of a block, and the number of rounds. A round has two blocks of each side."""
LEAST, LEAD, WARMUP = 4, 2, 10
"""Least steps of a block, steps before the timed steps of a block, and steps before the first block."""
SIDES: tuple[Side, ...] = ("base", "change")


@dataclass(frozen=True, slots=True)
class DevicePair:
    """A training and its fix, as in :class:`benchmarks.advice.pairs.Pair`.

    - ``program``: makes the training; its first argument says whether with the fix
    - ``lead``: steps before the timed steps of a block. Workers of a loader have made some batches before a block.
    - ``every``: a block has a multiple of this number of steps, such as the steps of an epoch
    - ``steps``: number of recorded steps
    - ``options``: options of the profiler
    """

    program: Callable[[bool, Place], Training]
    model: str
    waste: str
    fix: str
    rule: str
    about: str = ""
    lead: int = LEAD
    every: int = 1
    steps: int = STEPS
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.program.__name__.replace("_", "-")

    @property
    def described(self) -> Pair:
        return Pair(f"torch/gpu-{self.name}", self.model, self.waste, self.fix, self.rule, "report", self.about)

    @property
    def hash(self) -> str:
        file = sys.modules[self.program.__module__].__file__ or ""
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


def measure_pair(pair: DevicePair, place: Place, folder: Path) -> dict[str, Any]:
    """Measure the step times of both sides, and record them below the folder."""
    torch.manual_seed(0)
    load = os.getloadavg()[0]
    trainings: dict[Side, Training] = {side: pair.program(side == "change", place) for side in SIDES}
    steps: dict[Side, int] = {}
    for side, training in trainings.items():
        _block(training, place, WARMUP)
        one_s = _block(training, place, LEAST) / LEAST
        wanted = max(place.size(1, 0) * BLOCK_S / one_s, LEAST)
        steps[side] = -(-int(wanted) // pair.every) * pair.every
    times: dict[Side, list[float]] = {"base": [], "change": []}
    for order in runs.order(place.size(ROUNDS, 1)):
        for side in order:
            _block(trainings[side], place, pair.lead)
            times[side].append(_block(trainings[side], place, steps[side]) / steps[side] * 1e3)
    found = {side: record(trainings[side], folder / side, place.size(pair.steps, 3), **pair.options) for side in SIDES}
    machine = this_machine()
    truth = Truth(
        program=pair.described.program, hash=pair.hash,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), cpu=machine.cpu, cpus=len(machine.cpus),
        version=str(torch.__version__), load=load, base_ms=tuple(times["base"]), change_ms=tuple(times["change"]),
    )  # fmt: skip
    return {
        "events": sum(one["events"] for one in found.values()), "steps": found["base"]["steps"], "device": place.name,
        "block_steps": steps, "truth": msgspec.to_builtins(truth), "pair": msgspec.to_builtins(pair.described),
    }  # fmt: skip


def _block(training: Training, place: Place, steps: int) -> float:
    """Run some steps, and return their time in s."""
    place.module.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        next(training)
    place.module.synchronize()
    return time.perf_counter() - start
