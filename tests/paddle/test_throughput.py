"""Throughput in Paddle: Paddle's timer and perfkit's timer get the same times, and every number that Paddle
prints is compared."""

from __future__ import annotations

import copy
import random
import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import perfkit_paddle
from perfkit_core.recording.throughput.costs import SKIPPED, Costs
from perfkit_core.recording.throughput.loop import Throughput
from tests.support.fake_clock import Clock

TICK_NS = 1_953_125
"""2⁻⁹ s in ns. Paddle subtracts seconds as floats, which is exact for multiples of this duration."""


@pytest.fixture
def timer(paddle: Any) -> Any:
    import paddle.profiler.timer

    return paddle.profiler.timer


@pytest.fixture
def clock(timer: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return one clock that Paddle's timer reads in seconds and perfkit's timer in ns."""
    clock = Clock()
    clock.now = 0
    monkeypatch.setattr(timer, "timeit", SimpleNamespace(default_timer=lambda: clock.now / 1e9))
    return clock


def loader(paddle: Any, batches: int) -> Any:
    class Numbers(paddle.io.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return batches * 4

        def __getitem__(self, index: int) -> Any:
            return float(index)

    return paddle.io.DataLoader(Numbers(), batch_size=4)


@pytest.fixture
def slow_loader(paddle: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a DataLoader of Paddle whose batches take a given number of ticks to read."""
    from paddle.io.dataloader import dataloader_iter

    restore, costs = dataloader_iter._restore_batch, iter(())

    def slow(*args: Any) -> Any:
        clock.advance(next(costs) * TICK_NS)
        return restore(*args)

    def make(ticks: list[int]) -> Any:
        nonlocal costs
        costs = iter(ticks)
        return loader(paddle, len(ticks))

    monkeypatch.setattr(dataloader_iter, "_restore_batch", slow)
    return make


def compare(native: Any, ours: Any) -> int:
    """Return how many numbers are equal in every bit. Raises AssertionError at the first difference."""
    assert native.keys() == ours.keys()
    count = 0
    for key, value in native.items():
        if isinstance(value, dict):
            count += compare(value, ours[key])
            continue
        assert value == ours[key], key
        count += 1
    return count


def driven(timer: Any, steps: list[tuple[list[int], int, int | None]]) -> tuple[Any, Throughput]:
    """Give the same steps to Paddle's Event and perfkit's timer, and return both. A step has reads, a time in ns and
    samples."""
    clock = Clock()
    event, throughput = timer.Event(), Throughput(clock=clock)
    with throughput:
        for reads, compute, samples in steps:
            for _ in throughput.reader(clock.loader(*reads)):
                pass
            clock.advance(compute)
            throughput.step(samples)
            for read in filter(None, reads):  # Paddle's hook ignores reads without a duration
                event.record_reader(read / 1e9)
            event.record_batch((sum(reads) + compute) / 1e9, samples)
    return event, throughput


def random_steps(count: int, kind: str, seed: int) -> list[tuple[list[int], int, int | None]]:
    chance = random.Random(seed)
    steps = []
    for number in range(count):
        reads = [chance.choice((0, chance.randrange(10**7))) for _ in range(chance.choice((0, 1, 1, 1, 3)))]
        compute = chance.randrange(1, 10**8)
        if kind == "slower":
            reads, compute = [1_000], 10**6 * (number + 1)
        missing = kind == "steps" or (kind == "mixed" and number == count // 2)
        steps.append((reads, compute, None if missing else chance.randrange(1, 512)))
    return steps


@pytest.mark.parametrize("kind", ["samples", "steps", "mixed", "slower"])
def test_native_numbers_equal_paddles_timer_bit_for_bit(timer: Any, kind: str) -> None:
    compared = infinite = 0
    for seed, count in enumerate([*range(30), *range(50, 300, 10)]):
        event, throughput = driven(timer, random_steps(count, kind, seed))
        native, ours = event.get_summary(), throughput.summary(native=True).to_dict()
        compared += compare(native, ours)
        infinite += "inf" in repr(native)
        assert bool(native) == (count > SKIPPED)
        assert (throughput.summary().steps, "inf" in str(throughput.summary())) == (max(0, count - SKIPPED), False)
    print(f"{kind}: {compared} numbers equal, {infinite} summaries with inf")
    assert compared == 44 * 10
    assert infinite == 44 or kind != "slower"  # if every batch is slower than the previous one, Paddle finds no minimum


def test_paddles_average_of_eleven_steps_is_twice_the_right_one(timer: Any) -> None:
    """Paddle divides N - 9 = 2 batches by N - 10 = 1."""
    event, throughput = driven(timer, [([], 1_000_000, 4)] * 11)
    native = event.get_summary()["batch_summary"]["avg"]
    assert native == throughput.summary(native=True).batch.avg == 0.002  # type: ignore[union-attr]
    assert throughput.summary().batch_cost == Costs(*[1_000_000] * 7)


def loop(paddle: Any, clock: Clock, data: Any, samples: int | None) -> tuple[Any, Throughput, list[tuple[str, str]]]:
    """Run one loop with Paddle's Profiler(timer_only=True) and perfkit's timer. Return Paddle's event, perfkit's timer,
    and both lines of step_info."""
    throughput, lines = perfkit_paddle.Throughput(clock=clock), []
    with paddle.profiler.Profiler(timer_only=True) as profiler, throughput:
        for number, _ in enumerate(data):
            clock.advance((3 + number * 7 % 5) * TICK_NS)
            profiler.step(samples)
            throughput.step(samples)
            if number % 6 == 5:
                lines.append((profiler.step_info("images"), throughput.step_info("images")))
        event = copy.copy(paddle.profiler.timer.benchmark().current_event)
    return event.get_summary(), throughput, lines


def printed(text: str) -> dict[str, list[str]]:
    rows = re.findall(r"\| +(\w+) +\| +(\S+) +\| +(\S+) +\| +(\S+) +\|", text)
    return {name: cells for name, *cells in rows if name in ("reader_cost", "batch_cost", "ips")}


@pytest.mark.parametrize("samples", [4, None])
def test_live_with_paddles_loader_and_profiler(
    paddle: Any, clock: Clock, slow_loader: Any, samples: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    reads = [1 + number * 3 % 4 for number in range(25)]
    native, throughput, lines = loop(paddle, clock, slow_loader(reads), samples)
    table = printed(capsys.readouterr().out)
    ours = throughput.summary(native=True)
    assert compare(native, ours.to_dict()) == 10
    assert [theirs.strip() for theirs, _ in lines] == [line for _, line in lines]
    assert len(lines) == 4
    rows = {"reader_cost": ours.reader, "batch_cost": ours.batch, "ips": ours.ips}
    shown = {name: [f"{n:.5f}" for n in (row.avg, row.max, row.min)] for name, row in rows.items() if row}
    assert table == shown
    compute = [3 + number * 7 % 5 for number in range(25)]
    summary = throughput.summary()
    assert summary.reader_cost
    assert summary.batch_cost
    assert summary.reader_cost.total_ns == sum(reads[10:]) * TICK_NS
    assert summary.batch_cost.total_ns == (sum(reads[10:]) + sum(compute[10:])) * TICK_NS
    print(f"10 numbers of get_summary, {sum(map(len, table.values()))} printed ones, {len(lines)} lines of step_info")


def test_a_reader_around_paddles_loader_counts_once(paddle: Any, clock: Clock, slow_loader: Any) -> None:
    throughput = perfkit_paddle.Throughput(warmup=0, clock=clock)
    with throughput:
        for _ in throughput.reader(slow_loader([2, 2, 2])):
            throughput.step()
    assert throughput.summary().reader_cost == Costs(6 * TICK_NS, *[2 * TICK_NS] * 6)


def test_batches_read_by_another_thread_are_not_waits(paddle: Any, clock: Clock, slow_loader: Any) -> None:
    throughput = perfkit_paddle.Throughput(warmup=0, clock=clock)
    data = slow_loader([2, 2])
    with throughput:
        thread = threading.Thread(target=lambda: list(data))
        thread.start()
        thread.join()
        throughput.step()
    assert throughput.summary().batch_cost == Costs(*[4 * TICK_NS] * 7)
    assert throughput.summary().reader_cost is None


def test_several_benchmarks_in_parallel_remove_their_hooks(paddle: Any, timer: Any) -> None:
    before = list(timer.benchmark().hooks)
    outer, inner = perfkit_paddle.Throughput(warmup=0), perfkit_paddle.Throughput(warmup=0)
    with outer:
        for _ in loader(paddle, 3):
            outer.step(4)
            with inner:
                for _ in loader(paddle, 2):
                    inner.step(4)
        assert len(outer._log.read_ns) == 3 + 3 * 2
        outer.step(4)
    assert list(timer.benchmark().hooks) == before
    for _ in loader(paddle, 2):  # after the end, no hook times the loader
        pass
    assert len(inner._log.read_ns) == 6
    assert (outer.summary().samples, inner.summary().samples) == (16, 24)


def test_a_real_training(paddle: Any) -> None:
    model = paddle.nn.Linear(1, 1)
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    throughput = perfkit_paddle.Throughput(warmup=2)
    with throughput:
        for batch in loader(paddle, 8):
            model(batch.astype("float32").reshape([-1, 1])).mean().backward()
            optimizer.step()
            throughput.step(len(batch))
    summary = throughput.summary()
    assert (summary.steps, summary.samples, summary.timed_by) == (6, 24, "host clock")
    assert summary.reader_cost
    assert summary.batch_cost
    assert 0 < summary.reader_cost.total_ns < summary.batch_cost.total_ns


def test_paddle_without_hooks_is_timed_without_its_loader(
    paddle: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, timer: Any
) -> None:
    monkeypatch.setattr(timer, "benchmark", lambda: SimpleNamespace())
    throughput = perfkit_paddle.Throughput(warmup=0)
    with throughput:
        for _ in throughput.reader(loader(paddle, 2)):
            throughput.step()
    assert caplog.text.count("the data loader of the framework is not timed") == 1
    assert throughput.summary().steps == 2
