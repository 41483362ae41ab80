"""Steps in which kernels are loaded, because they are launched for the first time, are no steady steps."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.advice.engine import rule_input
from perfkit_core.output.report.summary import choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.assembly.first_launches import COLD, ONLY_COLD, cold_steps, loading_calls
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.tables import view_rows

US = 1000


def training(*cold: int, steps: int = 3, busy: bool = False, name: str = "cudaLaunchKernel") -> Trace:
    """Return steps of 20 launches of 5 µs. In the ``cold`` steps, the first launch of a kernel takes 800 µs. If
    ``busy``, a kernel runs meanwhile, as if the queue were full."""
    rows: list[dict[str, Any]] = []
    at, number = 0, 0
    for step in range(steps):
        begin = at
        for call in range(20):
            number += 1
            first = call == 3 and step in cold
            took = 800 * US if first else 5 * US
            kernel = f"new{step}" if first else f"k{call % 3}"
            rows.append(host(name, "runtime", at, took, correlation=number))
            if not (busy and first):
                rows.append(device(kernel, "kernel", at + took, 2 * US, correlation=number))
            else:
                rows.append(device("before", "kernel", at, took))
                rows.append(device(kernel, "kernel", at + took, 2 * US, correlation=number))
            at += took + 10 * US
        rows.append(host("step", "step", begin, at - begin, step=step))
        at += 10
    return trace(rows)


def codes(found: Trace) -> list[str]:
    return [finding.code for finding in found.quality if finding.code in (COLD, ONLY_COLD)]


def test_a_cold_step_is_not_counted() -> None:
    found = training(0)
    steps = found.host & found.rows("kind", "step")
    assert cold_steps(found)[steps].tolist() == [True, False, False]
    assert codes(found) == [COLD]
    (note,) = (finding.message for finding in found.quality if finding.code == COLD)
    # 800 of 1095 µs: 19 × 5 µs and 20 × 10 µs are the rest
    assert note.startswith("step 0 is not steady: for 800 µs of it (73.1%), calls load kernels")
    whole = [row[1] for row in view_rows("causes", found, "depth total_ns") if not row[0]]
    assert sum(whole) == 2 * 300 * US
    by_step = view_rows("causes", found, "depth step total_ns", by=("step",))
    assert sum(row[2] for row in by_step if row[:2] == (0, 0)) == 1095 * US, "each step can still be looked at"
    assert rule_input(found, None, get_plugins()).steps.number.tolist() == [1, 2]


def test_if_all_steps_are_cold_the_start_limits_them() -> None:
    found = training(0, 1, steps=2)
    assert codes(found) == [ONLY_COLD]
    (warning,) = (finding for finding in found.quality if finding.code == ONLY_COLD)
    assert not warning.note
    report = summary_report(found, choose_views(["causes"]), ViewRequest(), brief=True)
    assert str(report.headline[0]).startswith("Start-up-bound: ")
    rows = view_rows("causes", found, "depth cause total_ns")
    assert (1, "loading of kernels", 1600 * US) in rows


@pytest.mark.parametrize(
    "found",
    [
        training(), training(0, 1, 2, busy=True), training(0, 1, 2, name="cudaMemcpyAsync"),
        trace([host("mm", "operator", 0, 9)]),
    ],
    ids=["warm", "queue", "copy", "host"],
)  # fmt: skip
def test_other_steps_are_not_cold(found: Trace) -> None:
    assert not cold_steps(found).any()
    assert not codes(found)


def test_a_repeated_slow_launch_loads_nothing() -> None:
    rows = [host("step", "step", 0, 4000 * US, step=0)]
    for number, took in enumerate([5, 900, 5, 5]):
        rows += [host("cudaLaunchKernel", "runtime", number * 1000 * US, took * US, correlation=number)]
        rows += [device("k", "kernel", (number * 1000 + took) * US, US, correlation=number)]
    assert not loading_calls(trace(rows)).any()


def test_modules_that_are_loaded_without_steps() -> None:
    found = trace([host("cuModuleLoadData", "runtime", 0, 900 * US), host("mm", "operator", 900 * US, 100 * US)])
    assert codes(found) == [ONLY_COLD]
