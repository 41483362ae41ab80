"""The fixture ``perf``, and the recording of a marked test."""

from __future__ import annotations

import contextlib
import functools
import re
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
import pytest

from perfkit_core.compare.gate.conditions import CANNOT_TELL, FAILED
from perfkit_core.errors import PerfkitError, UsageError
from perfkit_core.integrations.pytest_plugin import baselines, budget, terminal
from perfkit_core.integrations.pytest_plugin.budget import Budget
from perfkit_core.integrations.pytest_plugin.hooks import MARK, PERF
from perfkit_core.integrations.pytest_plugin.section import Section, recorder
from perfkit_core.measure.calibration import equal_runs
from perfkit_core.plugins.frameworks import Recorder
from perfkit_core.trace.storage.store import SUFFIX, write_trace

P = ParamSpec("P")
R = TypeVar("R")
_LONGEST: Final = 100
"""Maximum number of characters of a test's name in the name of a file."""


def _short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Let the errors of perfkit leave ``function`` without its frames: pytest shows the line of the test."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except PerfkitError as error:
            raise error.with_traceback(None) from None

    return called


class _Block:
    """The ``with`` block of a section. A generator would add its frames to tracebacks."""

    def __init__(self, begin: Callable[[], CheckedSection]) -> None:
        self._begin = begin

    @_short_traceback
    def __enter__(self) -> CheckedSection:
        self._section = self._begin()
        return self._section

    @_short_traceback
    def __exit__(self, *_: object) -> None:
        self._section.end()


class Perf:
    """Records sections of a test. If the test has the mark, its limits apply to each section."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._options = item.config.option
        self._results: list[tuple[str, budget.Result]] = []
        self._baselines: dict[str, dict[str, baselines.Baseline]] = {}
        self.sections: list[CheckedSection] = []

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the marks of the test, its class and its module. The closest mark takes precedence."""
        marks = list(self._item.iter_markers(MARK))
        if any(mark.args for mark in marks):
            raise UsageError("the limits need names", f"example: @pytest.mark.{MARK}(operators=120)")
        return {name: value for mark in reversed(marks) for name, value in mark.kwargs.items()}

    def record(
        self, label: str = "", *, framework: str | None = None, memory: bool = False, stacks: bool = False
    ) -> contextlib.AbstractContextManager[CheckedSection]:
        """Record the ``with`` block. Its numbers are known after the block.

        - ``label``: name of the section, for tests with several sections.
        - ``framework``: the framework to record if several are imported.
        - ``memory``: record memory, for ``peak_bytes``. ``stacks``: record Python stacks, if the framework can.

        Raises UsageError, and CaptureError if another profiler runs."""
        return _Block(functools.partial(self.begin, label, framework, memory, stacks))

    @_short_traceback
    def repeat(
        self,
        function: Callable[[], object],
        *,
        rounds: int | None = None,
        warmup: int = budget.WARMUP,
        label: str = "",
        **options: Any,
    ) -> CheckedSection:
        """Call ``function`` repeatedly without the profiler and time the calls, then record one more call.

        ``warmup`` calls come before the timed calls. By default, there are at least 20 timed calls, which take at least
        half a second. If a device is used, its events time the calls. ``options`` are those of :meth:`record`. Raises
        what :meth:`record` raises."""
        __tracebackhide__ = True
        if rounds is not None:
            rounds = budget.whole_number("rounds", rounds)
        warmup = budget.whole_number("warmup", warmup)
        times = self.timed(function, rounds, warmup, options.get("framework"))
        with self.record(label, **options) as section:
            function()
        section.times_ns = times
        return section

    def begin(
        self, label: str = "", framework: str | None = None, memory: bool = False, stacks: bool = False
    ) -> CheckedSection:
        limits = budget.parsed(self.arguments)
        if label in [section.label for section in self.sections]:
            hint = 'give each section a label of its own: perf.record("forward")'
            raise UsageError(f"two sections of the test have the label {label!r}", hint)
        memory, stacks = memory or limits.memory, stacks or bool(limits.forbid)
        section = CheckedSection(self, label, *self._recorder(framework), memory, stacks)
        self.sections.append(section)
        return section

    def timed(
        self, function: Callable[[], object], rounds: int | None, warmup: int, framework: str | None = None
    ) -> tuple[int, ...]:
        """Return the durations of ``rounds`` calls in ns, after ``warmup`` calls. If ``rounds`` is None, there are
        enough calls to know the noise."""
        __tracebackhide__ = True
        for _ in range(warmup):
            function()
        if rounds == 0:
            return ()
        timer = self._recorder(framework)[1].timer
        if timer is None:
            raise UsageError("this framework cannot be timed", "leave step_time out")
        clock, calls, end_ns = timer(), 0, time.perf_counter_ns() + equal_runs.MOMENT_NS
        clock.updated()
        while calls < (rounds or budget.ROUNDS) or (rounds is None and time.perf_counter_ns() < end_ns):
            function()
            clock.updated()
            calls += 1
        return tuple(map(int, clock.times()[0]))

    def _recorder(self, framework: str | None) -> tuple[str, Recorder]:
        return recorder(framework or self.arguments.get("framework"), getattr(self._item, "module", None))

    def check(self, section: CheckedSection, limits: Budget) -> None:
        """Compare a section with limits, or with its baseline if there are none. Fail the test if it exceeds one."""
        path, key = baselines.file_of(self._item.path), self._key(section)
        update = self._options.perf_update
        if update:
            self._baselines.setdefault(key, {})[section.device_kinds] = baselines.of_section(section)
        results = list(budget.results(section, limits))
        if limits.of_baseline and not update:
            try:
                results = list(baselines.results(section, key, path))
            except UsageError:
                self._results.append((key, budget.Result("baseline", "-", "-", FAILED, "no baseline is stored")))
                raise
        if self._options.perf_strict:
            results = [replace(result, result=FAILED) if result.result == CANNOT_TELL else result for result in results]
        self._results += [(key, result) for result in results]
        failed = [result for result in results if result.result == FAILED]
        if failed:
            table = None if update else baselines.differences(section, key, path)
            pytest.fail(terminal.failure(key, failed, section, table), pytrace=False)

    def store(self, section: CheckedSection) -> None:
        """Write the recording of a section into the folder of ``--perf-runs``, if the option is given."""
        if self._options.perf_runs:
            name = file_name(f"{self._item.nodeid.partition('::')[0]}::{self._key(section)}")
            path = Path(self._options.perf_runs, name)
            try:
                write_trace(section.trace, path)
            except OSError as error:
                raise UsageError(f"{path}: cannot be written ({error})", "give --perf-runs another folder") from None

    def _key(self, section: Section) -> str:
        name = self._item.nodeid.partition("::")[2]
        return f"{name} / {section.label}" if section.label else name

    def results(self, passed: bool) -> dict[str, Any]:
        """Return the results as plain data. Baselines of a test that failed are left out."""
        return {
            "results": [[key, msgspec.to_builtins(result)] for key, result in self._results],
            "file": str(baselines.file_of(self._item.path)),
            "baselines": msgspec.to_builtins(self._baselines) if passed else {},
        }


class CheckedSection(Section):
    """A section of a test, which can be checked."""

    def __init__(self, perf: Perf, *recording: Any) -> None:
        super().__init__(*recording)
        self._perf = perf

    def end(self) -> None:
        super().end()
        self._perf.store(self)

    @_short_traceback
    def check(self, **limits: Any) -> None:
        """Fail the test if the section exceeds a limit. The arguments are those of the mark. Without arguments, the
        limits are the counts of the baseline. Raises UsageError."""
        __tracebackhide__ = True
        self._perf.check(self, budget.parsed(limits))


def file_name(key: str) -> str:
    """Return a file name that contains letters, digits and a few other characters. It is unique for the key."""
    name = re.sub(r"[^\w.]+", "-", key, flags=re.ASCII).strip("-.")[:_LONGEST]
    return f"{name}-{zlib.crc32(key.encode()):08x}{SUFFIX}"


def run(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run the call phase of a test that has the mark or takes the fixture. Check what was recorded."""
    with _failing():
        perf = item.stash.setdefault(PERF, Perf(item))
        limits = budget.parsed(perf.arguments)
        marked, section = item.get_closest_marker(MARK) is not None, None
        if "perf" not in getattr(item, "fixturenames", ()):
            times = perf.timed(item.runtest, limits.rounds, limits.warmup)
            section = perf.begin()
            section.times_ns = times
    try:
        result = yield
    finally:
        if section is not None:
            with _failing():
                section.end()
    with _failing():
        if marked and not perf.sections:
            hint = "call perf.record() or perf.repeat(), or leave perf out: the mark then records the whole test"
            raise UsageError("the test takes the fixture perf, but recorded nothing", hint)
        for checked in perf.sections if marked else ():
            perf.check(checked, limits)
    return result


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except PerfkitError as error:
        raise pytest.fail.Exception(f"{MARK}: {error}", pytrace=False) from None
