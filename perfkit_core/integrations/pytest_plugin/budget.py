"""Budgets: the arguments of the mark ``perf_budget`` and of ``section.check``, and whether a section keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from perfkit_core.base.algorithms import arrays
from perfkit_core.base.language import units
from perfkit_core.compare import noise, statistics
from perfkit_core.compare.gate import conditions
from perfkit_core.compare.gate.conditions import CANNOT_TELL, FAILED, PASSED, WITHIN_NOISE
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.integrations.pytest_plugin.section import COUNTS, Section

ROUNDS: Final = 20
"""Least number of timed calls, unless the test gives a number. They go on for :data:`equal_runs.MOMENT_NS`, because
shorter measurements have more noise."""
WARMUP: Final = 1
"""Default number of calls before the timed calls."""
_OTHER_ARGUMENTS: Final = ("forbid", "step_time", "noise", "rounds", "warmup", "memory", "framework")


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a section, and how to record it.

    - ``limits``: count → largest value.
    - ``forbid``: patterns of operators that may not be called.
    - ``step_time``: the condition on the median time of the calls.
    - ``noise``: the relative standard deviation of times between equal runs. None if it was not given.
    - ``rounds``, ``warmup``: numbers of timed calls, and of calls before them. None: as many as needed."""

    limits: Mapping[str, int] = field(default_factory=dict)
    forbid: tuple[str, ...] = ()
    step_time: conditions.Condition | None = None
    noise: float | None = None
    rounds: int | None = 0
    warmup: int = 0
    memory: bool = False
    framework: str | None = None

    @property
    def of_baseline(self) -> bool:
        """Whether the limits are the counts of the baseline, because none was given."""
        return not (self.limits or self.forbid or self.step_time)


@dataclass(frozen=True, slots=True)
class Result:
    """Whether a section keeps one limit. ``lines`` explain the result. Texts are shown as they are."""

    number: str
    limit: str
    measured: str
    result: str
    note: str = ""
    lines: tuple[str, ...] = ()


def parsed(arguments: Mapping[str, Any]) -> Budget:
    """Parse the arguments of the mark. Raises UsageError."""
    for name in arguments:
        if name not in (*COUNTS, *_OTHER_ARGUMENTS):
            raise UsageError(f"unknown argument {name!r}", spelled_like(name, (*COUNTS, *_OTHER_ARGUMENTS)))
    limits = {name: whole_number(name, arguments[name]) for name in COUNTS if name in arguments}
    step_time, share = arguments.get("step_time"), arguments.get("noise")
    condition = None
    if step_time is not None:
        limit = _quantity("step_time", step_time, units.TIMES)
        condition = conditions.parsed(f"{conditions.STEP_TIME} > {round(limit)} ns")
    if share is not None:
        share = _quantity("noise", share, units.SHARES)
    rounds = whole_number("rounds", arguments["rounds"]) if "rounds" in arguments else None if condition else 0
    if condition and rounds == 0:
        raise UsageError("rounds=0 times no calls, but step_time limits their time", "leave rounds or step_time out")
    warmup = whole_number("warmup", arguments.get("warmup", 0 if rounds == 0 else WARMUP))
    memory = bool(arguments.get("memory")) or "peak_bytes" in limits
    forbid = arguments.get("forbid", ())
    patterns = (forbid,) if isinstance(forbid, str) else forbid
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(pattern, str) for pattern in patterns):
        raise UsageError(f"forbid={forbid!r} is not a pattern or a list of patterns", 'example: forbid="aten::item"')
    for pattern in patterns:
        arrays.matches([""], pattern)
    return Budget(limits, tuple(patterns), condition, share, rounds, warmup, memory, arguments.get("framework"))


def _quantity(name: str, value: Any, family: units.Family) -> float:
    try:
        return units.parse_quantity(str(value), family, needs_unit=True)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", error.hint) from None


def whole_number(name: str, value: Any) -> int:
    """Return the value of an argument that is a number. Raises UsageError."""
    if name == "peak_bytes" and isinstance(value, str):
        value = round(_quantity(name, value, units.SIZES))
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{name}={value!r} is not a number of {name}", "give a whole number, 0 or more")
    return value


def results(section: Section, budget: Budget) -> Iterator[Result]:
    """Yield the result of each limit. Raises UsageError for a limit that does not fit the recording."""
    for name, limit in budget.limits.items():
        yield of_count(section, name, limit)
    for pattern in budget.forbid:
        callers = section.callers(pattern)
        lines = tuple(
            f"{name} called {units.counted(calls, 'time')}, {'at ' + line if line else 'line not recorded'}"
            for (name, line), calls in callers.items()
        )
        calls = sum(callers.values())
        yield Result(f"forbid {pattern}", "0", str(calls), FAILED if calls else PASSED, lines=lines)
    if budget.step_time is not None:
        yield _of_time(section, budget.step_time, budget.noise)


def of_count(section: Section, name: str, limit: int, note: str = "") -> Result:
    """Return whether a count keeps a limit. An unknown count keeps no limit and exceeds none."""
    count = section.counts[name]
    shown, measured = _shown(name, limit), "-" if count is None else _shown(name, count)
    if count is None:
        if name == "peak_bytes":
            raise UsageError("the memory was not recorded", "use perf.record(memory=True)")
        return Result(name, shown, measured, CANNOT_TELL, f"{section.framework} used no device")
    return Result(name, shown, measured, FAILED if count > limit else PASSED, note)


def _shown(name: str, count: int) -> str:
    return f"{count:,} bytes" if name == "peak_bytes" else str(count)


def _of_time(section: Section, condition: conditions.Condition, share: float | None) -> Result:
    limit, samples = units.format_quantity(condition.limit, units.TIMES), [np.array(section.times_ns, np.int64)]
    if not len(section.times_ns):
        raise UsageError("step_time needs repeated calls, because a single one cannot show the noise",
                         "use perf.repeat(function), or leave the fixture perf out")  # fmt: skip
    between = noise.between_runs([section.trace], sum(section.times_ns)).ratio if share is None else share
    times = statistics.step_statistics(samples, samples, between=between)
    outcome = conditions.evaluate(condition, times)
    note = f"median of {units.counted(len(section.times_ns), 'call')}"
    if times.noise is not None:
        note += f", noise {units.format_duration(round(times.noise / 2**0.5))}"
    result = "slower, but within noise" if outcome.result == WITHIN_NOISE else outcome.result
    return Result(conditions.STEP_TIME, limit, units.format_quantity(times.other, units.TIMES), result, note)
