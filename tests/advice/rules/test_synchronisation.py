"""Rules 6 and 7. Times in the comments are µs."""

from __future__ import annotations

import pytest

from perfkit_core.advice.facts import Facts, NotEvaluableError
from perfkit_core.advice.predict import predict
from perfkit_core.advice.rules.device_sync import find as device_sync
from perfkit_core.advice.rules.host_sync import find as host_sync
from perfkit_core.advice.rules.host_sync import what_if as host_sync_every
from tests.support.advised import BOTH, Rows, call, copy, found, kernel, op, predicted, steps, why_not


def fetching(framework: str, dur: int = 55, kind: str = "DtoH pageable") -> Rows:
    """A kernel from 5 to 65; from 20 on the host fetches its result, which takes it ``dur``: the copy ends 7 before."""
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
    # the host needs 100 − 55 = 45, the device 60 for its kernel
    assert predicted(recording, candidate) == (60_000, 60_000, 60_000)
    # the call waits from 22 to 70 but for the 1 from the kernel's end to the copy: 47. The host works 53, the device
    # 62, and the calls themselves take 55 − 47
    assert candidate.ceiling_ns == 53_000 + 8_000


@BOTH
def test_once_in_some_steps(framework: str) -> None:
    """Of four steps, numbers 0 and 2 fetch nothing, so that the host is 45 into the run when number 1 begins: its
    kernel follows the one before, 1 later, from 66 to 126, and the host goes on as it did behind the end of the kernel,
    35 later at 161. So two steps take 161 in place of 200."""
    recording = steps(fetching(framework), count=4, framework=framework)
    prediction = predict(Facts(recording), host_sync_every(Facts(recording), 2))
    assert prediction.saving_ns == 19_500


@pytest.mark.parametrize("every", [2, 3])
def test_short_and_long_steps_are_counted_together(every: int) -> None:
    """A kernel of 60 from 5 to 65, fetched until 75; then the host works until 100. A step that does not fetch is 45
    long, and the one that does ends 10 + 25 behind the last kernel, which follow each other 1 apart: 5 + 61N − 1 + 35
    for N steps, and 7 steps hold two periods or three."""
    recording = steps(fetching("torch"), count=7)
    prediction = predict(Facts(recording), host_sync_every(Facts(recording), every))
    assert prediction.p50_ns == (39 + 61 * every) * 1_000 // every
    assert prediction.saving_ns == 100_000 - prediction.p50_ns


def test_as_many_steps_as_are_asked_about() -> None:
    facts = Facts(steps(fetching("torch"), count=3))
    assert host_sync_every(facts, 3).period == 3
    with pytest.raises(NotEvaluableError, match="only 3 consecutive steps were recorded: give 3 or less"):
        host_sync_every(facts, 4)


@BOTH
def test_a_copy_that_is_not_waited_for(framework: str) -> None:
    rows = [row for row in fetching(framework) if not row["name"].startswith("cudaStreamSync")]
    late = [row | {"start_ns": 80_000} if row["kind"] == "memcpy" else row for row in rows]
    assert found(host_sync, steps(late, framework=framework)) == []


def test_as_much_as_the_threshold() -> None:
    recording = steps(fetching("torch"))
    assert found(host_sync, recording, sync_share=0.55) == []
    assert len(found(host_sync, recording, sync_share=0.5499)) == 1


def test_what_is_large_is_copied_but_not_waited_for() -> None:
    """4 MB: the operator stays (8 of its own: 2 before its call, 1 from the kernel's end to the copy, 5 behind it, less
    the 2 of the synchronisation); the device needs 60 + 2."""
    rows = [row | {"bytes": 4_000_000} if row["kind"] == "memcpy" else row for row in fetching("torch")]
    recording = steps(rows)
    (candidate,) = found(host_sync, recording)
    # host: 20 + 2 + 1 + 5 − 2 + 25 = 51, device 62
    assert predicted(recording, candidate) == (62_000, 62_000, 62_000)


def test_without_a_device() -> None:
    assert "no device work" in why_not(host_sync, steps([op("aten::item", 0, 50)]))
    assert "no device work" in why_not(device_sync, steps([op("aten::item", 0, 50)]))


def synchronising(name: str) -> Rows:
    """A kernel from 10 to 90, the host waits for it from 20 to 95."""
    return [call("launch", 0, 10, 1), kernel("k", 10, 80, 1), call(name, 20, 75, kind="sync")]


@BOTH
def test_a_synchronised_device(framework: str) -> None:
    name = {"torch": "cudaDeviceSynchronize", "paddle": "cudaDeviceSynchronize_v3020"}[framework]
    recording = steps(synchronising(name), framework=framework)
    (candidate,) = found(device_sync, recording)
    # the call of the last step ends the recording and does not count
    assert len(candidate.rows) == 2
    # the host would need 25, the kernel takes 80
    assert predicted(recording, candidate) == (80_000, 80_000, 80_000)
    assert candidate.ceiling_ns is not None
    assert candidate.ceiling_ns >= 20_000


def test_a_synchronised_stream_is_another_matter() -> None:
    assert found(device_sync, steps(synchronising("cudaStreamSynchronize"))) == []


def test_one_that_ends_the_recording() -> None:
    recording = steps(synchronising("cudaDeviceSynchronize"), count=1)
    assert found(device_sync, recording) == []


def test_as_long_as_the_threshold() -> None:
    """Two of three steps wait 75 of 100: 50 a step."""
    recording = steps(synchronising("cudaDeviceSynchronize"))
    assert found(device_sync, recording, sync_share=0.5) == []
    assert len(found(device_sync, recording, sync_share=0.4999)) == 1
