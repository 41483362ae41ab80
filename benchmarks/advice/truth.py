"""Measure what the fix of each pair saves, and record both sides of the pair.

The truth is the mean step time of unprofiled processes. Base and change run in turn, each time as a new process, in an
order that a drift of the machine affects alike. The recordings are made in between by other processes. Nothing else may
run on the machine meanwhile."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.advice.pairs import HERE, Pair, Side
from perfkit_core.base.system.machine import this_machine
from perfkit_core.measure.verify import runs
from perfkit_core.measure.verify.runs import Metric
from perfkit_core.measure.verify.statistics import Measured, measured

TRUTHS = HERE / "measured.jsonl"
METRIC = Metric("step_ms: ([0-9.]+)")
SECONDS = 300.0
"""Longest time of a run."""
_DISTRIBUTIONS = {"torch": "torch", "paddle": "paddlepaddle"}


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement of a pair: step times in ms, one for each process."""

    program: str
    hash: str
    date: str
    cpu: str
    cpus: int
    version: str
    load: float  # average number of other processes that could run, before the measurement
    base_ms: tuple[float, ...]
    change_ms: tuple[float, ...]

    @property
    def measured(self) -> Measured:
        return measured(self.base_ms, self.change_ms)


def known() -> dict[str, Truth]:
    """Return the last measurement of each program."""
    if not TRUTHS.exists():
        return {}
    lines = TRUTHS.read_bytes().splitlines()
    return {truth.program: truth for truth in (msgspec.json.decode(line, type=Truth) for line in lines if line)}


def measure(pair: Pair, rounds: int, folder: Path, say: Callable[[str], None]) -> Truth:
    """Measure a pair in ``rounds`` rounds of four runs, and record its sides into ``folder``. Append the result to the
    file of measurements. Raises CaptureError if a run fails."""
    machine, load = this_machine(), os.getloadavg()[0]
    times: dict[Side, list[float]] = {"base": [], "change": []}
    for number, order in enumerate(runs.order(rounds)):
        if number < len(times):  # the first two rounds begin with a recording
            record(pair, tuple(times)[number], folder, say)
        for side in order:
            value = runs.run_once(pair.command(side), METRIC, SECONDS).value
            times[side].append(value)
            say(f"{pair.program}: {side} {value:.2f} ms")
    truth = Truth(
        program=pair.program, hash=pair.hash, date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        cpu=machine.cpu, cpus=len(machine.cpus), version=version(_DISTRIBUTIONS[pair.framework]), load=load,
        base_ms=tuple(times["base"]), change_ms=tuple(times["change"]),
    )  # fmt: skip
    with TRUTHS.open("ab") as file:
        file.write(msgspec.json.encode(truth) + b"\n")
    return truth


def recording(pair: Pair, side: Side, folder: Path) -> Path:
    return folder / pair.program / side


def record(pair: Pair, side: Side, folder: Path, say: Callable[[str], None]) -> Path:
    """Record a side of a pair, in place of an earlier recording. Raises CaptureError if the run fails."""
    place = recording(pair, side, folder)
    shutil.rmtree(place, ignore_errors=True)
    say(f"{pair.program}: recording {side}")
    runs.run(pair.command(side, place), os.environ, SECONDS)
    return place
