"""The clock that times the steps of a training: which steps count, and what is stored beside a cycle."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_core.recording import step_clock
from perfkit_core.recording.step_clock import Action, FrameSampler, StepClock, TimedSchedule
from perfkit_core.recording.writer import CycleWriter, DetachedCycle
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import STEPS_SUFFIX
from tests.support.advised import op, steps

OFF, WARM_UP, RECORD = Action.OFF, Action.WARM_UP, Action.RECORD


def timed(*actions: Action) -> list[tuple[int, bool]]:
    """Return the number of each timed step, and whether it was recorded. The last action begins an unfinished step."""
    clock = StepClock()
    for number, action in enumerate(actions):
        clock.begins(number, action)
    return [(step.number, step.recorded) for step in clock.times().steps]


def test_steps_in_which_the_profiler_starts_or_stops_do_not_count() -> None:
    # step 0 has no beginning, 3 warms up, 4 starts the profiler, 7 stops it
    actions = [OFF, OFF, OFF, WARM_UP, RECORD, RECORD, RECORD, OFF, OFF, OFF]
    assert timed(*actions) == [(1, False), (2, False), (5, True), (6, True), (8, False)]


def test_the_step_in_which_a_cycle_is_taken_does_not_count() -> None:
    clock = StepClock()
    for number in range(6):
        clock.begins(number, RECORD)
        if number == 3:
            clock.cycle_taken()
    clock.cycle_taken()  # ends the sampling of frames
    assert [step.number for step in clock.times().steps] == [1, 2, 4]


def test_an_interrupted_step_does_not_count() -> None:
    clock = StepClock()
    for number in (0, 1, 2):
        clock.begins(number, OFF)
    clock.interrupted()
    for number in (2, 3, 4):
        clock.begins(number, OFF)
    assert [step.number for step in clock.times().steps] == [1, 2, 3]  # step 2 began again


def test_the_clock_measures_a_step() -> None:
    begin = time.perf_counter_ns()
    clock = StepClock()
    for number in range(4):
        clock.begins(number, OFF)
        if number == 1:
            time.sleep(0.02)
    first, second = clock.times().steps
    assert first.wall_ns >= 20_000_000
    assert 0 < second.wall_ns <= time.perf_counter_ns() - begin - first.wall_ns
    assert first.ran_ns is None or first.ran_ns < first.wall_ns  # a sleeping thread does not run


def test_a_step_in_which_a_recording_was_written_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the writing begins after the step, and ends before it. None: it goes on."""
    idle_since = iter([0, 0, 1, 1, None, 2, 2])
    monkeypatch.setattr(step_clock.background, "idle_since", lambda: next(idle_since))
    assert timed(*[OFF] * 7) == [(2, False), (5, False)]


def test_the_time_of_perfkit_itself_is_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end of a step takes 20 ms in the clock, and 20 ms elsewhere in perfkit."""
    monkeypatch.setattr(step_clock.background, "idle_since", lambda: time.sleep(0.02) or 0)
    clock = StepClock()
    begin = 0
    for number in range(3):
        begin, before = time.perf_counter_ns(), begin
        clock.begins(number, OFF)
        time.sleep(0.02)
        clock.leave_out()
    (step,) = clock.times().steps
    assert 0 < step.wall_ns <= time.perf_counter_ns() - before - 80_000_000


def test_waits_within_perfkit_itself_are_no_waits_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are read at the end of each step, and when perfkit is done. In between, a step has none."""
    clock, waits, ms = StepClock(), iter([0, 50, 51, 90, 92, 99]), 1_000_000
    monkeypatch.setattr(clock._usage, "read", lambda: (time.perf_counter_ns(), 0, next(waits) * ms, 0, 0, 0))
    start_ns = time.perf_counter_ns()
    for number in range(3):
        clock.begins(number, OFF, start_ns + (1 + number) * 1000 * ms)
        clock.leave_out()
    assert [step.waited_ns for step in clock.times().steps] == [2 * ms]


def test_what_the_thread_used_is_read_only_at_the_ends_of_long_steps() -> None:
    clock = StepClock()
    start_ns, ms = time.perf_counter_ns(), 1_000_000
    for number, at_ms in enumerate([10, 11, 12, 32, 52]):
        clock.begins(number, OFF, start_ns + at_ms * ms)
    steps = clock.times().steps
    assert [step.wall_ns // ms for step in steps] == [1, 20, 20]
    assert [step.process_ns is None for step in steps] == [True, True, False]


def test_the_cpu_utilisation_is_that_of_the_recorded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors are read where steps 2, 4, 6 and 7 begin. Steps 2, 3 and 6 are recorded, in two cycles."""
    readings = iter([(0, 0), (30, 40), (100, 100), (110, 140), (110, 140)])
    monkeypatch.setattr(step_clock, "processor_ticks", lambda: next(readings))
    clock = StepClock()
    for number, action in enumerate([OFF, WARM_UP, RECORD, RECORD, OFF]):
        clock.begins(number, action)
    assert clock.utilisation.cpu["system"] == 0.75
    assert clock.utilisation.cpu["process"] > 0
    clock.cycle_taken()
    assert clock.utilisation.cpu == {}
    for number, action in enumerate([OFF, RECORD, OFF], 5):
        clock.begins(number, action)
    assert clock.utilisation.cpu["system"] == 0.25


def test_the_cpu_time_of_the_process_and_its_threads() -> None:
    """Waiting takes no CPU time, computing does. The bounds are the times that the test and its threads measure, so
    they hold under any load."""
    own_ns, computed, end = [], threading.Event(), threading.Event()

    def compute() -> None:
        while time.thread_time_ns() < 20_000_000:
            pass
        own_ns.append(time.thread_time_ns())
        computed.set()
        end.wait()

    used = []
    for run in (compute, None):
        thread = threading.Thread(target=run or end.wait)
        outer, process = time.perf_counter_ns(), time.process_time_ns()
        processors = step_clock._Processors()
        inner = time.perf_counter_ns()
        thread.start()
        if run:
            computed.wait()
        else:
            time.sleep(0.05)
        least = time.perf_counter_ns() - inner
        used.append(processors.used())
        process, outer = time.process_time_ns() - process, time.perf_counter_ns() - outer
        assert used[-1].cpu["process"] * least <= process
        if sys.platform == "linux":
            share = used[-1].threads[thread.native_id or 0][1]
            assert share * least <= process
            assert not run or share * outer >= own_ns[0]
        assert not run or used[-1].cpu["process"] * outer >= own_ns[0]
    end.set()


def test_only_the_latest_recorded_steps_are_kept() -> None:
    clock = StepClock()
    for number in range(500):
        clock.begins(number, RECORD)
    kept = [step.number for step in clock.times().steps]
    assert kept == list(range(499 - 4 * step_clock._STEPS_KEPT, 499))


@pytest.mark.parametrize("count", [40, 100, 1500, 40_000])
def test_steps_without_the_profiler_are_spread_over_the_time_since_it_ran(count: int) -> None:
    """The last steps of a script may be others than all before: they are few of the steps that are kept."""
    clock = StepClock()
    for number, action in enumerate([RECORD] * 4 + [OFF] * count):
        clock.begins(number, action)
    kept = [step.number for step in clock.times().steps if not step.recorded]
    assert 63 < len(kept) <= 128 or len(kept) == count - 2
    assert kept[0] <= max(5, count // 8)
    assert sum(number > 0.8 * count for number in kept) <= max(count / 4, 32)
    stretches = [number for number in kept if number - 1 not in kept]
    assert all(number + 7 in kept for number in stretches[:-1])


def test_a_sparse_clock_times_few_of_many_steps() -> None:
    """After 64 steps without the profiler, it times every sixteenth. When the profiler starts, nothing is lost."""
    clock = StepClock()
    clock.sparse = True
    for number in range(500):
        clock.begins(number, OFF)
    kept = [step.number for step in clock.times().steps]
    assert kept == [*range(1, 64), *range(64, 497, 16)]
    for number in range(500, 504):
        clock.begins(number, Action.RECORD)
    assert [step.number for step in clock.times().steps if step.recorded] == [501, 502]


def test_a_schedule_passes_on_its_actions() -> None:
    schedule = TimedSchedule(lambda step: "off" if step < 3 else "on", {"off": OFF})
    assert [schedule(step) for step in range(7)] == ["off"] * 3 + ["on"] * 4
    steps_of_clock = [(step.number, step.recorded) for step in schedule.clock.times().steps]
    assert steps_of_clock == [(1, False), (2, False), (4, True), (5, True)]


def cycle() -> Trace:
    return steps([op("add", 0, 10)])


def recorded(folder: Path, after: int) -> tuple[StepClock, CycleWriter[None]]:
    """Record one cycle, and ``after`` steps that follow it."""
    clock = StepClock()
    writer: CycleWriter[None] = CycleWriter(folder, lambda profiler, place: DetachedCycle(cycle, clock=clock))
    for number in range(5):
        clock.begins(number, OFF)
    writer(None)
    writer.flush()  # steps in which the cycle is written do not count
    for number in range(5, 6 + after):
        clock.begins(number, OFF)
    return clock, writer


def test_a_cycle_contains_the_steps_before_it(tmp_path: Path) -> None:
    _, writer = recorded(tmp_path / "run", 0)
    (file,) = writer.written
    assert [step.number for step in load(file).step_clocks["-"].steps] == [1, 2, 3]


def test_steps_after_the_cycle_are_stored_beside_it(tmp_path: Path) -> None:
    _, writer = recorded(tmp_path / "run", step_clock.SAVED_AFTER[0])
    assert writer.flush()
    (beside,) = (tmp_path / "run").glob(f"*{STEPS_SUFFIX}")
    numbers = [step.number for step in load(tmp_path / "run").step_clocks["-"].steps]
    assert numbers == [1, 2, 3, *range(5, 5 + step_clock.SAVED_AFTER[0])]  # the cycle was taken in step 4
    beside.write_text("damaged")
    assert [step.number for step in load(tmp_path / "run").step_clocks["-"].steps] == [1, 2, 3]


def test_flush_stores_the_steps_so_far(tmp_path: Path) -> None:
    _, writer = recorded(tmp_path / "run", 2)
    assert not list((tmp_path / "run").glob(f"*{STEPS_SUFFIX}"))
    assert writer.flush()
    assert [step.number for step in load(tmp_path / "run").step_clocks["-"].steps] == [1, 2, 3, 5, 6]


def test_the_clock_does_not_keep_its_handler(tmp_path: Path) -> None:
    """The clock lives until the process ends. A handler that lives as long would keep its socket open."""
    clock, writer = recorded(tmp_path / "run", 2)
    handler = weakref.ref(writer)
    del writer
    gc.collect()
    assert handler() is None
    clock.save_rest()
    assert [step.number for step in load(tmp_path / "run").step_clocks["-"].steps] == [1, 2, 3, 5, 6]


def of(*times: tuple[int, int], first: int = 0, cpus: int = 2) -> TimedSteps:
    """Return steps of a process that uses one processor: their times, and the parts in which it waits for one."""
    steps = [
        TimedStep(at, False, wall, waited_ns=wait, process_ns=wall - wait) for at, (wall, wait) in enumerate(times)
    ]
    return TimedSteps(tuple(steps), first, cpus)


def typical(timed: TimedSteps, period: int = 1) -> int | None:
    return timed.typical_ns(timed.steps, period)


def test_the_typical_time_of_a_step() -> None:
    assert typical(of((10, 0), (30, 0), (20, 0))) == 20
    assert typical(of((10, 0), (10, 0), (40, 0), (12, 0), (12, 0), (42, 0)), period=3) == 21
    assert typical(of()) is None


def test_time_that_is_lost_to_other_processes_does_not_count() -> None:
    assert typical(of((10, 0), (30, 15), (20, 0))) == 15
    assert typical(of((10, 0), (30, 15), (20, 0), cpus=0)) == 20  # it is unknown how many processors there are
    alone = TimedStep(0, False, 30, waited_ns=15, process_ns=60)  # its own threads use both processors
    assert TimedSteps((alone,), cpus=2).lost_ns(alone) == 0
    some = TimedStep(0, False, 30, waited_ns=15, process_ns=50)
    assert TimedSteps((some,), cpus=2).lost_ns(some) == 10


def numbers(timed: TimedSteps) -> list[int]:
    return [step.number for step in timed.unprofiled()]


def test_the_first_steps_of_a_training_count_only_if_there_are_no_others() -> None:
    assert numbers(of(*[(9, 0)] * 3)) == [0, 1, 2]
    assert numbers(of(*[(9, 0)] * 5)) == [3, 4]
    assert numbers(of(*[(9, 0)] * 5, first=1)) == [4]


@pytest.mark.parametrize(("begin", "expected"), [(5, [3, 4, 7, 8]), (6, [3, 4, 5])])
def test_the_steps_before_the_profiler_are_preferred(begin: int, expected: list[int]) -> None:
    recorded = range(begin, begin + 2)
    steps = tuple(TimedStep(at, at in recorded, 9) for at in range(9))
    assert numbers(TimedSteps(steps)) == expected


@pytest.mark.parametrize("waited", [None, 0, 4])
def test_the_share_of_time_that_is_lost(waited: int | None) -> None:
    step = TimedStep(0, True, 10, waited_ns=waited, process_ns=6)
    assert TimedSteps((step,), cpus=2).preempted == (waited or 0) / 10


def test_python_switches_threads_more_often_while_frames_are_sampled() -> None:
    """Else code that calls no operator for some ms has no samples. An interval that the program sets stays."""
    before = sys.getswitchinterval()
    sampler = FrameSampler()
    sampler.start()
    assert sys.getswitchinterval() < before
    sampler.stop()
    assert sys.getswitchinterval() == before
    sampler.start()
    sys.setswitchinterval(0.002)
    sampler.stop()
    assert sys.getswitchinterval() == 0.002
    sys.setswitchinterval(before)


def test_a_long_sampling_does_not_slow_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switching more often costs nothing if no other thread runs Python code, else up to 9%."""
    before, threads, end = sys.getswitchinterval(), [2], time.monotonic() + 60
    monkeypatch.setattr(threading, "active_count", lambda: threads[0])
    sampler = FrameSampler(thin=True)
    sampler.start()
    for threads[0] in (2, 3, 2):
        while (sys.getswitchinterval() < before) != (threads[0] == 2) and time.monotonic() < end:
            time.sleep(0.001)
        assert (sys.getswitchinterval() < before) == (threads[0] == 2)
    sampler.stop()
    assert sys.getswitchinterval() == before


class Waits:
    """The end of a sampling, after 104 samples. Notes for how long the sampler waits."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return len(self.seconds) == 105

    def is_set(self) -> bool:
        return True


@pytest.mark.parametrize(("thin", "seconds"), [(False, 0.005), (True, 0.02)])
def test_the_rest_of_a_script_is_sampled_less_often(thin: bool, seconds: float) -> None:
    """Each sample takes up to 0.1 ms from the training, whose steps are then timed: 200 a second would be 2%. A short
    script needs them."""
    waits = Waits()
    FrameSampler(thin=thin)._run(threading.get_ident(), waits)  # type: ignore[arg-type]
    assert waits.seconds == [0.005] * 100 + [seconds] * 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_undoes_what_the_sampling_thread_was_doing() -> None:
    """It does not have the thread, but copies of its locked lock, the disabled collector and Python's interval."""
    before, sampler = sys.getswitchinterval(), FrameSampler()
    sampler.start()
    with sampler._lock, sampler._no_collection():
        child = os.fork()
        if not child:
            signal.alarm(60)
            sampler.stop()
            os._exit(gc.isenabled() and sys.getswitchinterval() == before)
    sampler.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on, nothing is collected inside a call")
def test_nothing_is_collected_while_frames_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection calls code of the program, which lets the sampled thread leave the frame being read."""
    collects: list[bool] = []
    frames = sys._current_frames
    monkeypatch.setattr(sys, "_current_frames", lambda: (collects.append(gc.isenabled()), frames())[1])
    sampler = FrameSampler()
    sampler.start()
    while not sampler.sampled()[0]:
        time.sleep(0.001)
    sampler.stop()
    assert gc.isenabled()
    assert not any(collects)
    assert collects
    gc.disable()
    sampler.start()
    sampler.stop()
    collecting = gc.isenabled()
    gc.enable()
    assert not collecting  # as the program has set it
