"""The share of operator time and kernel time that has a family, in all real recordings.

Operator time is the time of the outermost operators. Each nanosecond of it belongs to the innermost operator that runs.
It has the family of this operator, or of the nearest operator above that has a canonical name. Kernel time is the sum
of the device work: kernels, memcpy and memset.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfkit_core as perfkit
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.trace.model.schema import COMMUNICATION, DEVICE_WORK, OPERATOR
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.families import event_families

OPERATORS_AT_LEAST = 0.99
KERNELS_AT_LEAST = 0.98
OF_CONTAINERS = ("control_flow", "compiled_region", "custom_function")


def _innermost_ns(trace: Trace, operators: IntArray) -> dict[int, int]:
    """Return the duration of each operator less the durations of the operators directly inside, by row."""
    parent, dur_ns = trace.ints("parent").tolist(), trace.ints("dur_ns").tolist()
    own = {row: dur_ns[row] for row in operators.tolist()}
    for row in own:
        above = parent[row]
        while above >= 0 and above not in own:
            above = parent[above]
        if above >= 0:
            own[above] -= dur_ns[row]
    return own


def _shares(trace: Trace) -> tuple[int, float, float, int, float]:
    """Return five values: the operator time; its share with a family; its share with a family of containers; the kernel
    time; and its share with a family."""
    codes = event_families(trace)
    operators = np.flatnonzero(trace.host & trace.rows("kind", OPERATOR, COMMUNICATION))
    own = _innermost_ns(trace, operators)
    total = sum(own.values())
    known = sum(ns for row, ns in own.items() if codes.codes[row] >= 0)
    held = {codes.values.index(name) for name in OF_CONTAINERS}
    inside = sum(ns for row, ns in own.items() if int(codes.codes[row]) in held)
    work = trace.rows("kind", *DEVICE_WORK)
    dur_ns = trace.ints("dur_ns")
    kernels = int(dur_ns[work].sum())
    of_kernels = int(dur_ns[work & (codes.codes >= 0)].sum())
    return total, known / max(total, 1), inside / max(total, 1), kernels, of_kernels / max(kernels, 1)


def _check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    total, share, contained, kernels, of_kernels = _shares(perfkit.load(file))
    with capsys.disabled():
        print(
            f"\n{'/'.join(file.parts[-2:]):58} operators {total / 1e6:10.2f} ms {share:7.2%} "
            f"({contained:6.2%} only run others)  kernels {kernels / 1e6:10.2f} ms {of_kernels:7.2%}",
            end="",
        )
    assert total == 0 or share >= OPERATORS_AT_LEAST
    assert kernels == 0 or of_kernels >= KERNELS_AT_LEAST


def test_nearly_all_time_of_torch_events_has_a_family(torch_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _check(torch_file, capsys)


def test_nearly_all_time_of_paddle_events_has_a_family(paddle_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _check(paddle_file, capsys)


def test_all_recordings_are_looked_at(traces: Path) -> None:
    """Without this test, an empty folder would pass."""
    assert len(list((traces / "torch").rglob("*.json*"))) > 30
    assert len(list((traces / "paddle").rglob("*.pb*"))) > 20
