"""How often ``compare`` reports a difference between equal runs, and how often it misses a change of 5 %.

The median steps of the shared machine are those of real equal runs: different runs of one side of a program in
``advice/measured.jsonl``. Quiet machines are simulated by normal deviations. The steps around a median are drawn from
one of the recordings in ``tests/data/examples``; quiet machines use the recordings whose steps differ by less than 3 %.
All random numbers are seeded, so the benchmark repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.advice.truth import known
from benchmarks.results import Check, Section, Table, at_most
from perfkit_core.compare.noise import assumed, of_measured
from perfkit_core.compare.statistics import FASTER, SLOWER, samples_of, step_statistics
from perfkit_core.measure.calibration.equal_runs import DEVICE, HOST, EqualRuns, Kind, pooled
from perfkit_core.readers.load import load

STEPS: Final = 20
CHANGE: Final = 0.05
COMPARISONS: Final = 1000
RECORDINGS: Final = Path(__file__).parents[1] / "tests" / "data" / "examples"
QUIET: Final = 0.03
"""Steps of a quiet machine differ by less than this: 1.4826 times the median absolute deviation."""
_MEASURED_STEPS: Final = 50
_OTHERS: Final = 10
_RUNS: Final = 8
Runs = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Runs]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine. ``draw`` returns the median steps in ns of different equal runs of a random program."""

    name: str
    kind: Kind
    quiet: bool
    draw: Draw


@cache
def _sides() -> list[Runs]:
    return [np.array(side) * 1e6 for truth in known().values() for side in (truth.base_ms, truth.change_ms)]


def _shared(draw: np.random.Generator, count: int) -> Runs:
    enough = [side for side in _sides() if len(side) >= count]
    side = enough[draw.integers(len(enough))]
    return side[draw.permutation(len(side))[:count]]


def _quiet(ratio: float) -> Draw:
    return lambda draw, count: 50e6 * np.exp(draw.normal(0, ratio, count))


MACHINES: Final = (
    Machine("shared, host-bound: real runs of 129 programs", HOST, False, _shared),
    Machine("quiet, host-bound: processes differ by 1 %", HOST, True, _quiet(0.01)),
    Machine("quiet, device-bound: processes differ by 0.5 %", DEVICE, True, _quiet(0.005)),
)


@cache
def _recorded(quiet: bool) -> list[Runs]:
    """Return the steps of each recording, relative to their median."""
    steps = [samples_of(load(path)).step_ns for path in sorted(RECORDINGS.glob("*.parquet"))]
    relative = [times / np.median(times) for times in steps]
    return [times for times in relative if not quiet or 1.4826 * np.median(np.abs(times - 1)) < QUIET]


def _captures(draw: np.random.Generator, machine: Machine, medians: Runs) -> list[npt.NDArray[np.int64]]:
    recordings = _recorded(machine.quiet)
    steps = recordings[draw.integers(len(recordings))]
    return [(median * draw.choice(steps, STEPS)).astype(np.int64) for median in medians]


def _record(machine: Machine, medians: Runs) -> EqualRuns:
    times = tuple(map(round, medians.tolist()))
    return EqualRuns(date="", command="", hostname="", cpu="", framework="", kind=machine.kind, steps=_MEASURED_STEPS,
                     median_ns=times)  # fmt: skip


def _verdict(draw: np.random.Generator, machine: Machine, method: str, change: float) -> str:
    captures = 3 if method == "three captures a side" else 1
    own = method == "one capture, noise of the program measured"
    medians = machine.draw(draw, 6 if own else 2 * captures)
    steps = _captures(draw, machine, medians[: 2 * captures])
    base, other = steps[:captures], [(times * (1 + change)).astype(np.int64) for times in steps[captures:]]
    total = min(int(times.sum()) for times in steps)
    if own or method == "one capture, noise of other programs measured":
        count = 4 if machine.draw is _shared else _RUNS
        records = [_record(machine, medians[2:])] if own else [
            _record(machine, machine.draw(draw, count)) for _ in range(_OTHERS)
        ]  # fmt: skip
        measured = pooled(records, total)
        assert measured is not None
        between = of_measured(measured)
    else:
        between = assumed(total, None if machine.kind == HOST else 1.0)
    return step_statistics(base, other, between=between.ratio).verdict


METHODS: Final = (
    "one capture, noise assumed",
    "one capture, noise of other programs measured",
    "one capture, noise of the program measured",
    "three captures a side",
)


def rates(machine: Machine, method: str, comparisons: int) -> tuple[float, float]:
    """Return the share of equal runs that are told apart, and the share of longer steps that are not told."""
    draw = np.random.default_rng(1)
    equal = [_verdict(draw, machine, method, 0.0) for _ in range(comparisons)]
    longer = [_verdict(draw, machine, method, CHANGE) for _ in range(comparisons)]
    return float(np.mean(np.isin(equal, (FASTER, SLOWER)))), float(np.mean(np.array(longer) != SLOWER))


def section(comparisons: int, progress: Callable[[str], None]) -> Section:
    """Measure both rates for each machine and method."""
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    for machine in MACHINES:
        for method in METHODS:
            progress(f"{machine.name}: {method}")
            alarms, missed = rates(machine, method, comparisons)
            rows.append((machine.name, method, f"{alarms:.1%}", f"{missed:.0%}"))
            checks.append(at_most(f"false alarms: {machine.name}, {method}", 5, alarms * 100, "%"))
            if machine.quiet and method == METHODS[-1]:
                checks.append(at_most(f"missed changes of 5 %: {machine.name}, {method}", 20, missed * 100, "%"))
    columns = ("machine", "recorded", "equal runs told apart", "changes of 5 % missed")
    return Section(
        "False alarms of compare", str(__doc__), (Table("Error rates", columns, tuple(rows)),), tuple(checks)
    )
