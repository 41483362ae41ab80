"""Rules 1 and 2: operators on few numbers, and host tensors in compiled code. Times in comments are in µs."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.advice.rules.host_tensor_in_graph import find as host_tensors
from perfkit_core.advice.rules.tiny_ops_on_device import find as tiny_operators
from perfkit_core.measure.calibration.bench import SOURCE, Calibration, Measurement
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, copy, found, kernel, op, predicted, steps, why_not

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


@BOTH
def test_control_flow_on_the_device(framework: str) -> None:
    recording = steps(control_flow(framework), framework=framework)
    (candidate,) = found(tiny_operators, recording)
    assert candidate.direction == "to host"
    assert candidate.evidence["operators_per_step"] == 2
    assert candidate.evidence["copies_saved_per_step"] == 1
    assert candidate.evidence["operators_ns"] == 20_000
    # two operators of 2.5, 7 or 26 µs on the host, reading the number in 0.5, 1 or 2 µs, and 40 µs of other work
    assert predicted(recording, candidate) == (45_500, 55_000, 94_000)


@BOTH
def test_a_number_that_the_device_computed(framework: str) -> None:
    """No operator in the step makes the number, so the device may have computed it. Only the best case saves the copy
    to the host."""
    recording = steps(control_flow(framework, made=False), framework=framework)
    (candidate,) = found(tiny_operators, recording)
    assert candidate.evidence["copies_saved_per_step"] == 0
    assert predicted(recording, candidate) == (52_500, 97_000, 116_000)


@BOTH
def test_without_shapes_the_blocks_of_kernels_count(framework: str) -> None:
    one = steps(control_flow(framework, shapes=None, grid=(1, 1, 1)), framework=framework)
    assert len(found(tiny_operators, one)) == 1
    two = steps(control_flow(framework, shapes=None, grid=(2, 1, 1)), framework=framework)
    assert found(tiny_operators, two) == []
    assert "record_shapes=True" in why_not(
        tiny_operators, steps(control_flow(framework, shapes=None), framework=framework)
    )


@BOTH
def test_one_element_more(framework: str) -> None:
    assert len(found(tiny_operators, steps(control_flow(framework, shapes=[[64], [64]]), framework=framework))) == 1
    assert len(found(tiny_operators, steps(control_flow(framework, shapes=[[8, 8], []]), framework=framework))) == 1
    assert found(tiny_operators, steps(control_flow(framework, shapes=[[65], [65]]), framework=framework)) == []
    assert found(tiny_operators, steps(control_flow(framework), framework=framework), tiny_elements=0) == []


@BOTH
def test_half_precision_and_random_numbers_stay_on_the_device(framework: str) -> None:
    half = {"torch": ["c10::Half", "c10::Half"], "paddle": ["float16", "float16"]}[framework]
    assert found(tiny_operators, steps(control_flow(framework, dtypes=half), framework=framework)) == []
    random = {"torch": "aten::rand", "paddle": "uniform dygraph"}[framework]
    drawn = [row | {"name": random} if row["name"] == LESS[framework] else row for row in control_flow(framework)]
    assert found(tiny_operators, steps(drawn, framework=framework)) == []


def test_a_large_result_is_no_control_flow() -> None:
    rows = [row | {"bytes": 513} if row["kind"] == "memcpy" else row for row in control_flow("torch")]
    assert found(tiny_operators, steps(rows)) == []


def test_host_times_of_the_same_recording() -> None:
    """Elsewhere in the same steps, comparisons of one number take 3 µs on the host. The moved comparison is assumed to
    take as long. The time of the fill comes from other recordings."""
    rows = [row for row in control_flow("torch") if row["name"] != "others"]
    rows += [op("aten::lt", 60 + 3 * number, 3, SCALAR) for number in range(3)]
    recording = steps([*rows, op("others", 69, 31)])
    (candidate,) = found(tiny_operators, recording)
    assert predicted(recording, candidate)[1] == 51_000


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


@BOTH
def test_a_number_copied_into_compiled_code(framework: str) -> None:
    recording = steps(captured(REGION[framework]), framework=framework)
    (candidate,) = found(host_tensors, recording)
    assert candidate.evidence["region"] == REGION[framework]
    assert candidate.evidence["copies_ns"] == 25_000
    # 75 µs remain without both calls. In the worst case, the copy stays without the wait, and its call takes 15 µs.
    assert predicted(recording, candidate) == (75_000, 75_000, 90_000)


@BOTH
def test_outside_of_compiled_code(framework: str) -> None:
    other = {"torch": "aten::add", "paddle": "add dygraph"}[framework]
    assert found(host_tensors, steps(captured(other), framework=framework)) == []


@BOTH
def test_a_large_tensor_is_no_number(framework: str) -> None:
    assert len(found(host_tensors, steps(captured(REGION[framework], 512), framework=framework))) == 1
    assert found(host_tensors, steps(captured(REGION[framework], 513), framework=framework)) == []


def test_without_a_device() -> None:
    assert "no device work" in why_not(tiny_operators, steps([op("aten::item", 0, 50)]))
    assert "no device work" in why_not(host_tensors, steps([op("aten::item", 0, 50)]))


def calibration(p50: float) -> Calibration:
    made = tuple(Measurement(f"host_{name}_1", p50, p50, p50, 9) for name in ("fill", "compare"))
    return Calibration("fw", "1", "cpu", 2, "H200", 2, "today", made)


def of_device(recording: Trace, model: str) -> Trace:
    return recording.with_meta(devices=(Device("cuda:0", model),))


def test_host_times_of_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both operators take 5 µs on the host according to the calibration, so the step takes 5 + 5 + 1 + 40 µs. The
    calibration is not used for recordings of other devices."""
    measured = {"H200": calibration(5_000)}
    monkeypatch.setattr(
        "perfkit_core.measure.calibration.calibrate.newest", lambda framework, device: measured.get(device)
    )
    here = of_device(steps(control_flow("torch")), "H200")
    (candidate,) = found(tiny_operators, here)
    assert predicted(here, candidate)[1] == 51_000
    assert {one.source for one in candidate.assumptions} == {SOURCE}
    elsewhere = of_device(steps(control_flow("torch")), "V100")
    (candidate,) = found(tiny_operators, elsewhere)
    assert predicted(elsewhere, candidate)[1] == 55_000
