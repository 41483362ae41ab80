"""Tests of the throughput benchmark with a clock that only the test moves, so that every number is known."""

from __future__ import annotations

import itertools
import json
import logging
import math
import random
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.system.device_events import DeviceClock
from perfkit_core.errors import UsageError
from perfkit_core.recording.throughput.costs import Costs, Rates
from perfkit_core.recording.throughput.loop import Throughput
from tests.support.fake_clock import Clock, Device


class OnDevice(Throughput):
    """A benchmark with a simulated device, which is in use as soon as ``device`` is set."""

    device: Device | None = None

    def _device_clock(self) -> DeviceClock | None:
        return self.device


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throughput(clock: Clock) -> Throughput:
    """Return a benchmark without warm-up."""
    return Throughput(warmup=0, clock=clock)


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers_in(inner)
    elif isinstance(value, (int, float)):
        yield value


def run(clock: Clock, throughput: Throughput, steps: list[tuple[int, int]], samples: int | None = 8) -> None:
    """Run steps of (reading, computing) nanoseconds."""
    with throughput:
        reader = throughput.reader(clock.loader(*(read for read, _ in steps)))
        for (_, compute), _batch in zip(steps, reader, strict=False):
            clock.advance(compute)
            throughput.step(samples)


def test_every_number_worked_out_by_hand() -> None:
    """After one warm-up step, the batches take 40, 100, 50 and 10 ns (200 ns in total), and the reads take 10, 60, 0
    and 10 ns (80 ns in total)."""
    clock = Clock()
    throughput = Throughput(warmup=1, clock=clock)
    run(clock, throughput, [(500, 500), (10, 30), (60, 40), (0, 50), (10, 0)])
    summary = throughput.summary()
    assert (summary.steps, summary.warmup_steps, summary.unfinished_steps) == (4, 1, 0)
    assert (summary.samples, summary.steps_without_samples, summary.unit) == (32, 0, "samples")
    assert summary.batch_cost == Costs(200, 50, min_ns=10, max_ns=100, p50_ns=40, p90_ns=100, p99_ns=100)
    assert summary.reader_cost == Costs(80, 20, min_ns=0, max_ns=60, p50_ns=10, p90_ns=60, p99_ns=60)
    assert summary.reader_ratio == 0.4
    assert summary.ips == Rates(0.16e9, min_per_s=0.08e9, max_per_s=0.8e9, p50_per_s=0.16e9, p90_per_s=0.8e9, p99_per_s=0.8e9)  # fmt: skip # noqa: E501
    assert summary.timed_by == "host clock"


def test_averages_are_total_by_count_and_samples_by_time(clock: Clock, throughput: Throughput) -> None:
    """16 samples in 1 s and 16 samples in 3 s are 8 samples per second. The mean of both rates, 10.67, is not the
    throughput."""
    run(clock, throughput, [(0, 1_000_000_000), (0, 3_000_000_000)], samples=16)
    ips = throughput.summary().ips
    assert ips
    assert ips.avg_per_s == 8


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60), st.integers(0, 5))
def test_statistics_agree_with_numpy(times: list[int], warmup: int) -> None:
    clock = Clock()
    throughput = Throughput(warmup=warmup, clock=clock)
    run(clock, throughput, [(0, time) for time in times])
    cost, measured = throughput.summary().batch_cost, times[warmup:]
    if not measured:
        assert cost is None
        return
    assert cost
    assert cost.total_ns == clock.now - 1_000 - sum(times[:warmup])
    assert (cost.min_ns, cost.max_ns) == (min(measured), max(measured))
    assert abs(cost.avg_ns * len(measured) - cost.total_ns) * 2 <= len(measured)
    expected = [int(np.percentile(measured, percent, method="inverted_cdf")) for percent in (50, 90, 99)]
    assert [cost.p50_ns, cost.p90_ns, cost.p99_ns] == expected


@pytest.mark.parametrize("ran", [0, 1, 10])
def test_without_measured_steps_the_summary_says_so(ran: int) -> None:
    clock = Clock()
    throughput = Throughput(clock=clock)
    run(clock, throughput, [(1, 1)] * ran)
    summary = throughput.summary()
    assert (summary.steps, summary.warmup_steps) == (0, ran)
    assert summary.batch_cost is summary.reader_cost is summary.ips is summary.reader_ratio is None
    assert "No step was measured" in str(summary)
    assert not any(word in str(summary) + json.dumps(summary.to_dict()) for word in ("inf", "nan", "NaN"))
    assert summary.to_pandas().isna().all().all()


def test_a_clock_too_coarse_gives_no_rate_and_no_infinity(clock: Clock, throughput: Throughput) -> None:
    run(clock, throughput, [(0, 0)] * 3)
    summary = throughput.summary()
    assert summary.ips is summary.reader_ratio is None
    assert summary.batch_cost == Costs(*[0] * 7)
    assert all(math.isfinite(number) for number in numbers_in(summary.to_dict()))
    assert throughput.step_info() == "reader_cost: 0.00000 s batch_cost: 0.00000 s"


def test_without_samples_the_rate_counts_steps(clock: Clock, throughput: Throughput) -> None:
    run(clock, throughput, [(0, 500_000_000)] * 4, samples=None)
    summary = throughput.summary()
    assert summary.ips
    assert (summary.samples, summary.unit, summary.ips.avg_per_s) == (None, "steps", 2)
    assert list(summary.to_pandas().columns) == ["reader_cost_ns", "batch_cost_ns", "steps_per_s"]


def test_steps_without_samples_are_left_out_of_the_rate(clock: Clock, throughput: Throughput) -> None:
    with throughput:
        for dur_ns, samples in ((1_000_000_000, 10), (7_000_000_000, None), (1_000_000_000, 20)):
            clock.advance(dur_ns)
            throughput.step(samples)
    summary = throughput.summary()
    assert summary.ips
    assert (summary.samples, summary.steps_without_samples, summary.ips.avg_per_s) == (30, 1, 15)
    assert "1 step left out of the rate, because the number of samples is unknown" in str(summary)


def test_step_info_averages_since_the_last_call(clock: Clock, throughput: Throughput) -> None:
    with throughput:
        assert throughput.step_info() == "no step has finished since the last call"
        infos = []
        for number, _ in enumerate(throughput.reader(clock.loader(*[4_000_000] * 5))):
            clock.advance(6_000_000 + number * 10_000_000)
            throughput.step(30)
            if number in (1, 4):
                infos.append(throughput.step_info("images"))
    assert infos == [
        # steps of 10 and 20 ms
        "reader_cost: 0.00400 s batch_cost: 0.01500 s ips: 2000.000 images/s",
        "reader_cost: 0.00400 s batch_cost: 0.04000 s ips: 750.000 images/s",  # steps of 30, 40 and 50 ms
    ]
    assert throughput.step_info() == "no step has finished since the last call"
    assert "5 steps measured, 150 images" in str(throughput.summary())


def test_time_between_stop_and_start_does_not_count(clock: Clock, throughput: Throughput) -> None:
    reader = throughput.reader([0])
    for _ in range(3):
        throughput.start()
        clock.advance(100)
        throughput.step(1)
        throughput.stop()
        clock.advance(5_000)  # time between stop and start
        list(reader)
    summary = throughput.summary()
    assert summary.batch_cost == Costs(300, *[100] * 6)
    assert summary.reader_cost is None


def test_reads_between_stop_and_start_do_not_count(clock: Clock, throughput: Throughput) -> None:
    """Two steps have reads of 5 ns each. In the pause between the steps, another loop reads for 1000 ns and then
    ends."""

    def evaluation() -> Iterator[int]:
        clock.advance(1_000)
        yield 0
        clock.advance(1_000)

    batches = iter(throughput.reader(clock.loader(5, 5)))
    for _ in range(2):
        throughput.start()
        next(batches)
        throughput.step()
        throughput.stop()
        list(throughput.reader(evaluation()))
    assert throughput.summary().reader_cost == throughput.summary().batch_cost == Costs(10, *[5] * 6)


def test_the_steps_leave_no_gap_between_them() -> None:
    """The clock advances each time it is read, so the time that the benchmark itself takes is part of the batches."""
    clock = itertools.count()
    throughput = Throughput(warmup=0, clock=lambda: next(clock))
    with throughput:
        for _ in throughput.reader(range(5)):
            throughput.step()
    log = throughput._log
    assert log.last_ns == sum(log.batch_ns)


def test_waits_without_a_batch_belong_to_their_step(clock: Clock, throughput: Throughput) -> None:
    """In each of two epochs, creating the iterator of the loader takes 7 ns, each batch 2 ns, reaching the end 3 ns,
    and computing 10 ns."""

    class Loader:
        def __iter__(self) -> Iterator[int]:
            clock.advance(7)
            return self.batches()

        def batches(self) -> Iterator[int]:
            for number in range(2):
                clock.advance(2)
                yield number
            clock.advance(3)

    reader = throughput.reader(Loader())
    with throughput:
        for _epoch in range(2):
            for _ in reader:
                clock.advance(10)
                throughput.step()
    batches = [9 + 10, 2 + 10, 3 + 9 + 10, 2 + 10]
    assert throughput.summary().batch_cost == Costs(sum(batches), 16, 12, 22, 12, 22, 22)
    assert throughput.summary().reader_cost == Costs(9 + 2 + 12 + 2, 6, 2, 12, 2, 12, 12)


def test_several_batches_a_step_and_steps_without_any() -> None:
    clock = Clock()
    throughput = Throughput(warmup=1, clock=clock)
    with throughput:
        batches = iter(throughput.reader(clock.loader(*[5] * 6)))
        for reads in (1, 3, 0, 2):
            for _ in range(reads):
                next(batches)
            clock.advance(1)
            throughput.step()
    assert throughput.summary().reader_cost == Costs(25, 8, min_ns=0, max_ns=15, p50_ns=10, p90_ns=15, p99_ns=15)


def test_a_reader_behaves_like_its_loader() -> None:
    class Loader(list[int]):
        sampler = "a sampler"

    reader = Throughput().reader(Loader([3, 4]))
    assert (len(reader), reader.sampler) == (2, "a sampler")
    assert [list(reader), list(reader)] == [[3, 4], [3, 4]]
    with pytest.raises(AttributeError):
        _ = reader.nothing_of_that_name


def test_a_reader_in_a_reader_counts_once(clock: Clock, throughput: Throughput) -> None:
    with throughput:
        for _ in throughput.reader(throughput.reader(clock.loader(5, 5))):
            throughput.step()
    assert throughput.summary().reader_cost == Costs(10, *[5] * 6)


def test_an_error_of_the_loader_is_the_users(throughput: Throughput) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    def train(loader: Iterable[int]) -> None:
        with throughput:
            for _ in throughput.reader(loader):
                throughput.step()

    with pytest.raises(OSError, match="disk"):
        train(broken())
    assert throughput.summary().steps == 1
    train([1])
    assert throughput.summary().steps == 2


def test_reads_of_another_thread_do_not_count(
    clock: Clock, throughput: Throughput, caplog: pytest.LogCaptureFixture
) -> None:
    with throughput:
        reader = throughput.reader(clock.loader(5, 5))
        thread = threading.Thread(target=lambda: list(reader))
        thread.start()
        thread.join()
        throughput.step()
    assert throughput.summary().reader_cost is None
    assert "is not iterated on the thread of the loop" in caplog.text


@pytest.mark.parametrize("mistake", ["step", "stop", "start"])
def test_a_wrong_call_logs_once_and_does_nothing(
    clock: Clock, throughput: Throughput, mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    if mistake == "start":
        throughput.start()
        clock.advance(10)
    for _ in range(3):
        getattr(throughput, mistake)()
    assert len(caplog.records) == 1
    assert (caplog.records[0].name, caplog.records[0].levelno) == ("perfkit", logging.WARNING)
    assert mistake + "()" in caplog.text
    assert throughput.summary().steps == 0
    throughput.step()
    assert throughput.summary().batch_cost == (Costs(*[10] * 7) if mistake == "start" else None)


class Tensor:
    """A tensor whose value can only be read by waiting for a device."""

    def __index__(self) -> int:
        raise AssertionError("the tensor was read")

    __int__ = __index__


@pytest.mark.parametrize("samples", [Tensor(), 2.5, -1, 2**63, "8", [8]])
def test_samples_that_are_no_count_are_unknown_and_never_raise(
    throughput: Throughput, samples: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with throughput:
        throughput.step(samples)
        throughput.step(samples)
    assert throughput.summary().steps == 2
    assert throughput.summary().samples is None
    assert caplog.text.count("num_samples") == 1


def test_other_integers_are_counts(throughput: Throughput, caplog: pytest.LogCaptureFixture) -> None:
    with throughput:
        for samples in (np.int32(3), np.uint64(4), True, 0):
            throughput.step(samples)  # type: ignore[arg-type]
    assert throughput.summary().samples == 8
    assert not caplog.records


@pytest.mark.parametrize("warmup", [-1, 1.5, None])
def test_warmup_is_a_number_of_steps(warmup: Any) -> None:
    with pytest.raises(UsageError, match="number of steps"):
        Throughput(warmup=warmup)


def test_the_summary_is_frozen_and_has_three_forms(clock: Clock, throughput: Throughput) -> None:
    run(clock, throughput, [(1_000_000, 2_000_000), (2_000_000, 4_000_000)], samples=9)
    summary = throughput.summary()
    with pytest.raises(AttributeError):
        summary.steps = 3  # type: ignore[misc]
    table = summary.to_pandas()
    assert list(table.index) == ["avg", "min", "max", "p50", "p90", "p99"]
    assert table["batch_cost_ns"].tolist() == [4_500_000, 3_000_000, 6_000_000, 3_000_000, 6_000_000, 6_000_000]
    assert table["reader_cost_ns"].tolist() == [1_500_000, 1_000_000, 2_000_000, 1_000_000, 2_000_000, 2_000_000]
    assert table["samples_per_s"].tolist() == [2000, 1500, 3000, 1500, 3000, 3000]
    assert isinstance(table["batch_cost_ns"].dtype, pd.Int64Dtype)
    assert json.loads(json.dumps(summary.to_dict()))["batch_cost"]["avg_ns"] == 4_500_000
    assert "2 steps measured, 18 samples; 0 steps of warm-up left out" in str(summary)
    assert "waiting for input: 33.3% of the batch cost" in str(summary)
    assert "4.50 " in str(summary)


def on_device(steps: int = 0) -> tuple[OnDevice, Device, Clock]:
    """Return a running benchmark whose device has reached the start at 1000 ns. Steps take 1 ns on the host."""
    clock, device = Clock(), Device()
    throughput = OnDevice(warmup=0, clock=clock)
    throughput.device = device
    throughput.start()
    device.reach(1_000)
    for _ in range(steps):
        clock.advance(1)
        throughput.step(10)
    return throughput, device, clock


def test_steps_on_a_device_are_timed_by_what_has_finished() -> None:
    """Three steps are launched within 3 ns, and the device finishes them at 1100, 1300 and 1600 ns."""
    throughput, device, _ = on_device(steps=3)
    assert throughput.summary().steps == 0
    assert throughput.summary().unfinished_steps == 3
    device.reach(1_100, 1_300)
    summary = throughput.summary()
    assert (summary.steps, summary.unfinished_steps, summary.samples) == (2, 1, 20)
    assert summary.batch_cost == Costs(300, 150, 100, 200, 100, 200, 200)
    assert "1 step left out, because the device has not finished yet" in str(summary)
    throughput.step(10)
    device.on_wait = [1_600, 2_000]
    assert device.waited == []  # neither step() nor summary() waits
    throughput.stop()
    assert device.waited == [4]
    assert throughput.summary().batch_cost == Costs(1_000, 250, 100, 400, 200, 400, 400)
    assert throughput.summary().timed_by == "fake device"


def test_step_info_on_a_device_counts_finished_steps() -> None:
    throughput, device, _ = on_device(steps=2)
    assert throughput.step_info() == "no step has finished since the last call"
    device.reach(500_001_000)
    assert throughput.step_info("images") == "batch_cost: 0.50000 s ips: 20.000 images/s"
    device.reach(750_001_000)
    assert throughput.step_info() == "batch_cost: 0.25000 s ips: 40.000 images/s"


def test_marks_are_collected_in_the_loop_and_not_hoarded() -> None:
    throughput, device, _ = on_device()
    for number in range(50):
        device.reach(1_100 + 100 * number)  # the device finishes each step before the host ends it
        throughput.step()
        assert not throughput._timing._device._marks  # type: ignore[union-attr]
    assert throughput.summary().batch_cost == Costs(5_000, *[100] * 6)


def test_a_pause_on_a_device_counts_as_nothing() -> None:
    throughput, device, _ = on_device(steps=1)
    device.on_wait = [1_050]
    throughput.stop()
    throughput.start()
    throughput.step()
    device.reach(9_000, 9_070)
    assert throughput.summary().batch_cost == Costs(120, 60, 50, 70, 50, 70, 70)


def test_a_pause_while_steps_are_still_running_counts_as_nothing() -> None:
    throughput, device, _ = on_device(steps=1)
    throughput.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert device.waited == []  # after an interrupt, nothing waits for the device
    throughput.start()
    throughput.step()
    device.reach(1_050, 9_000, 9_070)
    assert throughput.summary().batch_cost == Costs(120, 60, 50, 70, 50, 70, 70)


def test_a_device_first_used_in_the_first_step_is_found() -> None:
    clock, device = Clock(), Device()
    throughput = OnDevice(warmup=0, clock=clock)
    with throughput:
        clock.advance(77)
        throughput.device = device  # the model moves to the device
        throughput.step()
        throughput.step()
        device.reach(5_000, 5_500)
    assert throughput.summary().batch_cost == Costs(577, 289, 77, 500, 77, 500, 500)
    assert throughput.summary().timed_by == "fake device"


def test_a_device_first_used_after_the_first_step_is_ignored() -> None:
    """Steps must not be timed by two clocks, so the host clock times all of them."""
    clock = Clock()
    throughput = OnDevice(warmup=0, clock=clock)
    with throughput:
        throughput.step()
        throughput.device = Device()
        throughput.step()
    throughput.start()
    throughput.step()
    assert throughput.device.put == 0
    assert throughput.summary().timed_by == "host clock"


def test_a_device_that_fails_leaves_the_host_clock(caplog: pytest.LogCaptureFixture) -> None:
    throughput, device, clock = on_device(steps=2)
    device.broken = True
    for _ in range(2):
        clock.advance(1)
        throughput.step(10)
    throughput.stop()
    assert caplog.text.count("the device is lost") == 1
    assert throughput.summary().batch_cost == Costs(4, *[1] * 6)
    assert throughput.summary().timed_by == "host clock"


def test_a_million_steps_take_the_memory_that_is_promised() -> None:
    throughput = Throughput(clock=Clock())
    with throughput:
        for _ in throughput.reader(range(10_000)):
            throughput.step(1)
    log = throughput._log
    arrays = (log.batch_ns, log.samples, log.reads, log.read_ns)
    assert sum(a.itemsize * len(a) for a in arrays) == 32 * 10_000
    assert len(log.other_wait_ns) == 2


def test_order_of_the_steps_changes_no_statistic() -> None:
    steps = [(random.Random(7).randrange(100) + n, 50 + n) for n in range(200)]
    found = []
    for order in (steps, steps[::-1]):
        clock = Clock()
        throughput = Throughput(warmup=0, clock=clock)
        run(clock, throughput, order)
        found.append(throughput.summary())
    assert found[0] == found[1]
