"""The rules on decode steps of an inference server: decode-gap, decode-without-graph and small-decode-batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core import load
from perfkit_core.advice.advice import Advices
from perfkit_core.advice.engine import advise
from perfkit_core.base.language.messages import english
from tests.support.server_trace import Server, decode_and_prefill

RULES = ("decode-gap", "decode-without-graph", "small-decode-batch")


def advice(path: Path, **thresholds: float) -> Advices:
    return advise(load(path), thresholds=thresholds, outcomes=())


def found(advices: Advices) -> dict[str, dict[str, object]]:
    return {one.rule: dict(one.candidate.evidence) for one in advices.advice if one.rule in RULES}


def test_gaps_between_decode_steps(tmp_path: Path) -> None:
    """Gaps of 520 and 3 × 500 µs before steps of 620 and 3 × 600 µs. The prefill step and the mixed step do not count,
    and the steps replay graphs."""
    advices = advice(decode_and_prefill(tmp_path / "t.json"), decode_requests=4)
    evidence = found(advices)
    assert set(evidence) == {"decode-gap"}
    assert evidence["decode-gap"] == {
        "gap_ns": 505_000, "gap_ratio": pytest.approx(2020 / 2420), "decode_step_ns": 605_000, "steps": 4,
        "busy_ns": 100_000,
    }  # fmt: skip
    (one,) = (one for one in advices.advice if one.rule == "decode-gap")
    assert one.prediction.method == "none"
    assert one.candidate.ceiling_ns == 505_000
    assert one.remedy is not None
    assert "--async-scheduling" in english(one.remedy.note)


def test_short_gaps_are_no_advice(tmp_path: Path) -> None:
    assert "decode-gap" not in found(advice(decode_and_prefill(tmp_path / "t.json"), decode_gap_share=0.9))


def test_few_requests(tmp_path: Path) -> None:
    """Steps of 605 µs with 8 requests: 32 requests in the same time would save three quarters of the time a token."""
    evidence = found(advice(decode_and_prefill(tmp_path / "t.json"), decode_requests=32))["small-decode-batch"]
    assert evidence == {"requests": 8.0, "decode_step_ns": 605_000, "steps": 4, "token_ns": 75_625}
    (one,) = (
        one for one in advice(decode_and_prefill(tmp_path / "t.json"), decode_requests=32).advice
        if one.rule == "small-decode-batch"
    )  # fmt: skip
    assert one.candidate.ceiling_ns == round(605_000 * 0.75)


def launching(path: Path, graph: bool) -> Path:
    """Decode steps of 600 µs, in which the device is idle for 90 µs after each of five kernels of 10 µs."""
    server = Server()
    for number in range(6):
        start = 600 * number
        server.range("step[DECODE bs=64]", start, 590)
        for kernel in range(5):
            at = start + 20 + 100 * kernel
            server.launch("cudaGraphLaunch" if graph else "cudaLaunchKernel", at, [("gemm", at + 10, 10)])
    return server.write(path)


def test_decode_steps_without_a_graph(tmp_path: Path) -> None:
    """From the end of a step's work to the end of the next: 600 µs. The gap before a step is 190 µs, the work takes
    50 µs, so the device waits for 360 µs within a step."""
    evidence = found(advice(launching(tmp_path / "t.json", graph=False)))["decode-without-graph"]
    assert evidence["decode_step_ns"] == 600_000
    assert evidence["idle_ns"] == 360_000
    assert evidence["graph_ratio"] == 0
    assert "decode-without-graph" not in found(advice(launching(tmp_path / "u.json", graph=True)))


def test_rules_for_trainings_are_silent_on_a_server(tmp_path: Path) -> None:
    rules = {one.rule for one in advice(launching(tmp_path / "t.json", graph=False)).advice}
    assert rules.isdisjoint({"low-device-utilisation", "host-gap", "launch-bound"})


def test_a_training_gets_no_advice_on_decoding(tmp_path: Path) -> None:
    server = Server()
    for number in range(4):
        server.range(f"ProfilerStep#{number}", 600 * number, 500)
        server.launch("cudaLaunchKernel", 600 * number + 10, [("gemm", 600 * number + 20, 10)])
    assert found(advice(server.write(tmp_path / "t.json"))) == {}
