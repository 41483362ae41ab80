"""Rules 6 and 7: fetched results and synchronised devices. Times in comments are in µs."""

from __future__ import annotations

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.device_sync import find as device_sync
from perfkit_core.advice.rules.host_sync import find as host_sync
from perfkit_core.advice.rules.host_sync import what_if as host_sync_every
from tests.support.advised import BOTH, Rows, call, copy, found, kernel, op, predicted, steps, why_not


def fetching(framework: str, dur: int = 55, kind: str = "DtoH pageable") -> Rows:
    """Return a kernel of 60 µs whose result the host fetches. Fetching takes ``dur``. The copy ends 7 µs before
    fetching ends."""
    end = 20 + dur
    readers = {
        "torch": [op("aten::item", 20, dur), op("aten::_local_scalar_dense", 21, dur - 1)],
        "paddle": [op("GpuMemcpySync:GPU->CPU", 20, dur, kind="operator_detail")],
    }
    version = {"torch": "", "paddle": "_v3020"}[framework]
    return [
        call(f"cudaLaunchKernel{version}", 0, 10, 1),
        kernel("k", 5, 60, 1),
        *readers[framework],
        call(f"cudaMemcpyAsync{version}", 22, end - 5 - 22, 2),
        copy(kind, 4, end - 9, 2, 2),
        call(f"cudaStreamSynchronize{version}", end - 4, 2, kind="sync"),
        op("something else", end, 100 - end),
    ]


@BOTH
def test_a_fetched_result(framework: str) -> None:
    recording = steps(fetching(framework), framework=framework)
    (candidate,) = found(host_sync, recording)
    assert candidate.evidence["copies_per_step"] == 1
    assert candidate.evidence["operators"] == {"torch": ["aten::item"], "paddle": []}[framework]
    assert candidate.evidence["call_ns"] == 55_000
    # the host needs 100 − 55 = 45 µs, the kernel 60 µs
    assert predicted(recording, candidate) == (60_000, 60_000, 60_000)
    # The call waits for 47 µs: from 22 to 70, minus 1 µs between kernel and copy. So the host works for 53 µs, and the
    # operator takes 55 − 47 µs without the wait.
    assert candidate.ceiling_ns == 53_000 + 8_000


@BOTH
def test_fetching_in_every_second_step(framework: str) -> None:
    """Step 0 fetches nothing, so the host reaches step 1 early. The kernels of both steps end at 126, and the host
    finishes 35 µs later. So two steps take 161 µs instead of 200 µs."""
    recording = steps(fetching(framework), count=4, framework=framework)
    prediction = predict(RuleInput(recording), host_sync_every(RuleInput(recording), 2))
    assert prediction.saving_ns == 19_500


@pytest.mark.parametrize("every", [2, 3])
def test_periods_of_short_and_long_steps(every: int) -> None:
    """Only the last step of each period fetches. It ends 35 µs after the last kernel. Kernels of 60 µs follow each
    other 1 µs apart, so a period of N steps takes 5 + 61N − 1 + 35 µs."""
    recording = steps(fetching("torch"), count=7)
    prediction = predict(RuleInput(recording), host_sync_every(RuleInput(recording), every))
    assert prediction.p50_ns == (39 + 61 * every) * 1_000 // every
    assert prediction.saving_ns == 100_000 - prediction.p50_ns


def test_the_period_must_fit_into_the_recording() -> None:
    facts = RuleInput(steps(fetching("torch"), count=3))
    assert host_sync_every(facts, 3).period == 3
    with pytest.raises(NotEvaluableError, match="only 3 consecutive steps were recorded: give 3 or less"):
        host_sync_every(facts, 4)


@BOTH
def test_a_copy_that_is_not_waited_for(framework: str) -> None:
    rows = [row for row in fetching(framework) if not row["name"].startswith("cudaStreamSync")]
    late = [row | {"start_ns": 80_000} if row["kind"] == "memcpy" else row for row in rows]
    assert found(host_sync, steps(late, framework=framework)) == []


def test_the_threshold_of_fetching() -> None:
    recording = steps(fetching("torch"))
    assert found(host_sync, recording, sync_share=0.55) == []
    assert len(found(host_sync, recording, sync_share=0.5499)) == 1


def test_large_results_are_copied_without_waiting() -> None:
    """The copy of 4 MB stays, but the host does not wait for it. So the operator takes only 6 µs."""
    rows = [row | {"bytes": 4_000_000} if row["kind"] == "memcpy" else row for row in fetching("torch")]
    recording = steps(rows)
    (candidate,) = found(host_sync, recording)
    # the host takes 20 + 2 + 1 + 5 − 2 + 25 = 51 µs, the device 62 µs
    assert predicted(recording, candidate) == (62_000, 62_000, 62_000)


def test_without_a_device() -> None:
    assert "no device work" in why_not(host_sync, steps([op("aten::item", 0, 50)]))
    assert "no device work" in why_not(device_sync, steps([op("aten::item", 0, 50)]))


def synchronising(name: str) -> Rows:
    """Return a kernel from 10 to 90, and a host that waits for it from 20 to 95."""
    return [call("launch", 0, 10, 1), kernel("k", 10, 80, 1), call(name, 20, 75, kind="sync")]


@BOTH
def test_a_synchronised_device(framework: str) -> None:
    name = {"torch": "cudaDeviceSynchronize", "paddle": "cudaDeviceSynchronize_v3020"}[framework]
    recording = steps(synchronising(name), framework=framework)
    (candidate,) = found(device_sync, recording)
    # the call in the last step ends the recording and does not count
    assert len(candidate.rows) == 2
    # the host would need 25 µs, but the kernel takes 80 µs
    assert predicted(recording, candidate) == (80_000, 80_000, 80_000)
    assert candidate.ceiling_ns is not None
    assert candidate.ceiling_ns >= 20_000


def test_a_synchronised_stream_does_not_count() -> None:
    assert found(device_sync, steps(synchronising("cudaStreamSynchronize"))) == []


def test_a_synchronisation_that_ends_the_recording() -> None:
    recording = steps(synchronising("cudaDeviceSynchronize"), count=1)
    assert found(device_sync, recording) == []


def test_the_threshold_of_synchronising() -> None:
    """Two of three steps wait for 75 of 100 µs, so the mean is 50 µs per step."""
    recording = steps(synchronising("cudaDeviceSynchronize"))
    assert found(device_sync, recording, sync_share=0.5) == []
    assert len(found(device_sync, recording, sync_share=0.4999)) == 1
