"""Rules 1 and 2: operators on few numbers, and host tensors in compiled code. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.measure.calibration.bench import Calibration, Measurement
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, copy, kernel, op, steps
from tests.support.rule_cases import Cases, check_rule

MADE = {"torch": "aten::fill_", "paddle": "full dygraph"}
LESS = {"torch": "aten::lt", "paddle": "less_than dygraph"}
SCALAR = [[1], [1]]


def control_flow(framework: str, made: bool = True, shapes: Any = SCALAR, dtypes: Any = None, grid: Any = ()) -> Rows:
    """Return operators that make a number (0 to 10), compare it (10 to 20) and fetch the result (20 to 60), and 40 µs
    of other work."""
    less = op(LESS[framework], 10, 10, shapes, dtypes)
    reads = {
        "torch": op("aten::item", 20, 40),
        "paddle": op("GpuMemcpySync:GPU->CPU", 20, 40, kind="operator_detail"),
    }
    rows = [less, call("launch", 12, 4, 2), kernel("less", 15, 2, 2, grid), reads[framework]]
    rows += [call("cudaMemcpyAsync", 25, 25, 3), copy("DtoH pageable", 1, 45, 1, 3), op("others", 60, 40)]
    if made:
        rows += [
            op(MADE[framework], 0, 10, shapes and shapes[:1]),
            call("launch", 2, 4, 1),
            kernel("fill", 5, 2, 1, grid),
        ]
    return rows


def test_tiny_ops_on_device() -> None:
    """Two operators take 2.5, 7 or 26 µs on the host, reading the number takes 0.5, 1 or 2 µs, and other work 40 µs."""

    def cases(framework: str) -> Cases:
        def case(rows: Rows | None = None, **options: Any) -> Trace:
            return steps(rows or control_flow(framework, **options), framework=framework)

        half = {"torch": ["c10::Half", "c10::Half"], "paddle": ["float16", "float16"]}[framework]
        random = {"torch": "aten::rand", "paddle": "uniform dygraph"}[framework]
        every = control_flow(framework)
        drawn = [row | {"name": random} if row["name"] == LESS[framework] else row for row in every]
        large = [row | {"bytes": 513} if row["kind"] == "memcpy" else row for row in every]
        return {
            "a number that is made, compared and fetched": case(),
            "the device may have computed the number, so only the best case saves the copy": case(made=False),
            "64 elements": case(shapes=[[64], [64]]),
            "8 × 8 elements": case(shapes=[[8, 8], []]),
            "65 elements": case(shapes=[[65], [65]]),
            "the threshold": (case(), {"tiny_elements": 0}),
            "without shapes, kernels of one block": case(shapes=None, grid=(1, 1, 1)),
            "without shapes, kernels of two blocks": case(shapes=None, grid=(2, 1, 1)),
            "without shapes and blocks": case(shapes=None),
            "half precision": case(dtypes=half),
            "random numbers": case(drawn),
            "a result of 513 bytes": case(large),
            "without a device": case([op("aten::item", 0, 50)]),
        }

    check_rule("tiny-ops-on-device", cases)


def test_host_times_of_tiny_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other comparisons of one number in the recording take 3 µs on the host. The calibration says that both operators
    take 5 µs, and is not used for recordings of other devices."""
    rows = [row for row in control_flow("torch") if row["name"] != "others"]
    rows += [op("aten::lt", 60 + 3 * number, 3, SCALAR) for number in range(3)]
    made = tuple(Measurement(f"host_{name}_1", 5_000, 5_000, 5_000, 9) for name in ("fill", "compare"))
    measured = {"H200": Calibration("fw", "1", "cpu", 2, "H200", 2, "today", made)}
    monkeypatch.setattr(
        "perfkit_core.measure.calibration.calibrate.newest", lambda framework, device: measured.get(device)
    )
    cases = {"comparisons on the host in the same recording": steps([*rows, op("others", 69, 31)])}
    for title, model in (("a calibrated device", "H200"), ("another device", "V100")):
        cases[title] = steps(control_flow("torch")).with_meta(devices=(Device("cuda:0", model),))
    check_rule("tiny-ops-on-device", cases, "-host-times")


REGION = {"torch": "CompiledFunction", "paddle": "run_program dygraph"}


def captured(name: str, count: int = 8) -> Rows:
    """Return a compiled region of 60 µs and 40 µs of other work. The region has a copy (from 10 to 30) and a wait for
    the copy (from 30 to 35)."""
    return [
        op(name, 0, 60),
        call("cudaMemcpyAsync", 10, 20, 1),
        copy("HtoD pageable", count, 25, 1, 1),
        call("cudaStreamSynchronize", 30, 5, kind="sync"),
        op("others", 60, 40),
    ]


def test_host_tensor_in_graph() -> None:
    """Without both calls, 75 µs remain. At worst, the copy stays without the wait, and its call takes 15 µs."""

    def cases(framework: str) -> Cases:
        other = {"torch": "aten::add", "paddle": "add dygraph"}[framework]
        return {
            "a number copied into compiled code": steps(captured(REGION[framework]), framework=framework),
            "outside of compiled code": steps(captured(other), framework=framework),
            "512 bytes": steps(captured(REGION[framework], 512), framework=framework),
            "513 bytes": steps(captured(REGION[framework], 513), framework=framework),
            "without a device": steps([op("aten::item", 0, 50)], framework=framework),
        }

    check_rule("host-tensor-in-graph", cases)
