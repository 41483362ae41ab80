"""Rules 6 and 7: fetched results and synchronised devices. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

import itertools

import pytest

from perfkit_core.advice.predict import predict, step_ns
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.host_sync import what_if as host_sync_every
from perfkit_core.replay.transforms import Case
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import BOTH, Rows, call, copy, kernel, op, steps
from tests.support.events import host, trace
from tests.support.rule_cases import Cases, check_rule


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


def test_host_sync() -> None:
    """Without the wait, the host needs 45 µs, and the kernel 60 µs. The call waits for 47 µs: from 22 to 70, minus 1 µs
    between kernel and copy. So at most 100 − 53 µs of the host and the 8 µs of the operator are saved."""

    def cases(framework: str) -> Cases:
        rows = fetching(framework)
        recording = steps(rows, framework=framework)
        unwaited = [row for row in rows if not row["name"].startswith("cudaStreamSync")]
        late = [row | {"start_ns": 80_000} if row["kind"] == "memcpy" else row for row in unwaited]
        large = [row | {"bytes": 4_000_000} if row["kind"] == "memcpy" else row for row in rows]
        return {
            "a fetched number": recording,
            "a copy that is not waited for": steps(late, framework=framework),
            "a copy of 4 MB stays, and the host does not wait for it": steps(large, framework=framework),
            "the threshold": (recording, {"sync_share": 0.55}),
            "just below the threshold": (recording, {"sync_share": 0.5499}),
            "without a device": steps([op("aten::item", 0, 50)], framework=framework),
        }

    check_rule("host-sync", cases)


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


def test_changing_nothing_keeps_the_step_time() -> None:
    """Three steps take 100 ns and one takes 400 ns, so that periods of two steps take longer than two usual steps."""
    bounds = [0, 100, 200, 600, 700]
    spans = [(number, at, end - at) for number, (at, end) in enumerate(itertools.pairwise(bounds))]
    rows = [row for number, at, dur in spans for row in (
        host("step", "step", at, dur, step=number), host("aten::mm", "operator", at, dur - 1),
    )]  # fmt: skip
    assert [step_ns(RuleInput(trace(rows)), (), Case.LIKELY, period) for period in (1, 2)] == [100, 100]


def test_the_period_must_fit_into_the_recording() -> None:
    facts = RuleInput(steps(fetching("torch"), count=3))
    assert host_sync_every(facts, 3).period == 3
    with pytest.raises(NotEvaluableError, match="only 3 consecutive steps were recorded: give 3 or less"):
        host_sync_every(facts, 4)


def synchronising(name: str) -> Rows:
    """Return a kernel from 10 to 90, and a host that waits for it from 20 to 95."""
    return [call("launch", 0, 10, 1), kernel("k", 10, 80, 1), call(name, 20, 75, kind="sync")]


def test_device_sync() -> None:
    """The host would need 25 µs, but the kernel takes 80 µs. A call that ends the recording does not count, so two of
    three steps wait for 75 of 100 µs: 50 µs per step."""

    def cases(framework: str) -> Cases:
        def case(name: str, count: int = 3) -> Trace:
            return steps(synchronising(name), count=count, framework=framework)

        name = {"torch": "cudaDeviceSynchronize", "paddle": "cudaDeviceSynchronize_v3020"}[framework]
        return {
            "a synchronised device": case(name),
            "a synchronised stream": case("cudaStreamSynchronize"),
            "a call that ends the recording": case(name, 1),
            "the threshold": (case(name), {"sync_share": 0.5}),
            "just below the threshold": (case(name), {"sync_share": 0.4999}),
            "without a device": steps([op("aten::item", 0, 50)], framework=framework),
        }

    check_rule("device-sync", cases)
