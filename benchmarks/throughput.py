"""Measure the time that ``Throughput`` takes per step: ``python benchmarks/throughput.py [--steps N] [--rounds N]``

The number is the ns per step of a loop over a list, minus the ns per step of an empty loop. perfkit's ``Throughput`` is
measured with and without a reader, for each installed framework. Paddle's ``timer_only`` timer is measured with the
calls of Paddle's DataLoader. Device events are not measured, because they need a device. The loops alternate in every
round, and the numbers are medians.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

Loop = Callable[[list[int]], None]


def empty(batches: list[int]) -> None:
    for _ in batches:
        pass


def torch_step(batches: list[int]) -> None:
    import perfkit_torch

    with perfkit_torch.Throughput() as throughput:
        for _ in batches:
            throughput.step(32)


def torch_reader(batches: list[int]) -> None:
    import perfkit_torch

    with perfkit_torch.Throughput() as throughput:
        for _ in throughput.reader(batches):
            throughput.step(32)


def paddle_reader(batches: list[int]) -> None:
    import perfkit_paddle

    with perfkit_paddle.Throughput() as throughput:
        for _ in throughput.reader(batches):
            throughput.step(32)


def paddle_loader(batches: list[int]) -> None:
    """Yield batches, and call Paddle's benchmark hooks as Paddle's DataLoader does."""
    from paddle.profiler.timer import benchmark

    import perfkit_paddle

    native = benchmark()
    with perfkit_paddle.Throughput() as throughput:
        for _ in batches:
            native.before_reader()
            native.after_reader()
            throughput.step(32)


def native_timer(batches: list[int]) -> None:
    """Use Paddle's own timer, with the calls that Paddle's DataLoader makes."""
    from paddle.profiler import Profiler
    from paddle.profiler.timer import benchmark

    native = benchmark()
    with redirect_stdout(StringIO()), Profiler(timer_only=True) as profiler:
        for _ in batches:
            native.before_reader()
            native.after_reader()
            profiler.step(32)


LOOPS: dict[str, tuple[Loop, str]] = {
    "perfkit_torch: step()": (torch_step, "torch"),
    "perfkit_torch: reader() and step()": (torch_reader, "torch"),
    "perfkit_paddle: reader() and step()": (paddle_reader, "paddle"),
    "perfkit_paddle: Paddle's loader and step()": (paddle_loader, "paddle"),
    "Paddle's timer_only: its loader and step()": (native_timer, "paddle"),
}


def ns_per_step(loop: Loop, batches: list[int]) -> float:
    start = time.perf_counter_ns()
    loop(batches)
    return (time.perf_counter_ns() - start) / len(batches)


def measure(steps: int, rounds: int) -> dict[str, float]:
    """Return the median ns per step of each loop by its name. The first loop is "empty loop"."""
    loops: dict[str, Loop] = {"empty loop": empty}
    loops |= {name: loop for name, (loop, needs) in LOOPS.items() if importlib.util.find_spec(needs)}
    batches = list(range(steps))
    for loop in loops.values():
        loop(batches[:20])  # imports
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            times[name].append(ns_per_step(loop, batches))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = measure(options.steps, options.rounds)
    nothing = found.pop("empty loop")
    native = found.get("Paddle's timer_only: its loader and step()")
    print(f"{'':<44}{'ns per step':>10}{'of native':>11}   (minus the empty loop of {nothing:.0f} ns)")
    for name, value in found.items():
        ratio = f"{(value - nothing) / (native - nothing):.2f}" if native else "-"
        print(f"{name:<44}{value - nothing:>10.0f}{ratio:>11}")


if __name__ == "__main__":
    main()
