"""Advice on recordings of an H100, compared with step times that were measured without a profiler
(benchmarks/gpu/measured.jsonl)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.predict import base
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.transfers import elements, transfers
from perfkit_core.readers.load import load
from tests.support.events import host
from tests.support.events import trace as made
from tests.support.paths import DATA, ROOT

PAIRS = DATA / "gpu-pairs"


def measured_ms(pair: str, side: str) -> float:
    rows = map(json.loads, (ROOT / "benchmarks" / "gpu" / "measured.jsonl").read_text().splitlines())
    (times,) = (row["truth"][f"{side}_ms"] for row in rows if row["pair"]["program"] == f"torch/gpu-{pair}")
    return float(np.median(times))


def test_the_device_limits_steps_in_which_the_host_runs_ahead() -> None:
    """The host needs 1.07 ms for a step. The device needs 11.6 ms, and so does a long training."""
    facts = RuleInput(load(PAIRS / "odd-vocabulary"))
    trace = facts.trace
    work = ~trace.host & trace.rows("kind", "kernel", "memset", "memcpy") & (trace.ints("step") >= 0)
    kernels_ns = int(trace.ints("dur_ns")[work].sum())
    assert np.median(facts.steps.recorded_ns) < 1_100_000
    assert facts.step_ns == pytest.approx(measured_ms("odd-vocabulary", "base") * 1e6, rel=0.01)
    assert facts.busy_ns == pytest.approx(kernels_ns / len(facts.steps), rel=0.01)
    found = base(facts)
    assert found is not None
    assert found.step_ns == pytest.approx(facts.step_ns, abs=1)
    (one,) = (one for one in advise(trace, outcomes=[]).advice if one.rule == "unaligned-matmul")
    p = one.prediction
    assert p.base_ns == pytest.approx(facts.step_ns, abs=1)
    assert (p.saving_ns or 0) > 0.1 * p.base_ns
    assert "low-device-utilisation" not in {one.rule for one in advise(trace, outcomes=[]).advice}


def test_bytes_of_copies_that_the_profiler_does_not_know() -> None:
    """The profiler of torch 2.11 gives 0 bytes for each copy. The hidden state has 1024 × 2048 numbers of 4 bytes, and
    is copied to the host and back in each step."""
    trace = load(PAIRS / "round-trip")
    assert set(trace.ints("bytes")[trace.rows("kind", "memcpy")].tolist()) == {0}
    (one,) = (one for one in advise(trace, outcomes=[]).advice if one.rule == "ping-pong-copies")
    assert one.candidate.evidence["bytes_per_step"] == 2 * 1024 * 2048 * 4
    assert one.candidate.evidence["round_trips_per_step"] == 1
    measured = 1 - measured_ms("round-trip", "change") / measured_ms("round-trip", "base")
    assert 0.4 * measured < (one.prediction.saving_ratio or 0) < measured
    batches = transfers(RuleInput(load(PAIRS / "pageable-batches")))
    assert set(batches.bytes.tolist()) == {128 * 3 * 224 * 224 * 4}


def test_a_list_of_tensors_without_shapes_is_not_tiny() -> None:
    """Older profilers give the shape [] for a list of tensors, as for a single number."""
    list_of_tensors = host("aten::_foreach_add_", "operator", 0, 10, dtypes='["TensorList","TensorList","Scalar"]')
    number = host("aten::add", "operator", 10, 10, dtypes='["float","float","Scalar"]', shapes="[[],[],[]]")
    nested = list_of_tensors | {"start_ns": 20, "shapes": "[[[2,3],[4,5]],[[2,3],[4,5]],[]]"}
    found = made([list_of_tensors | {"shapes": "[[],[],[]]"}, number, nested])
    assert elements(found, np.arange(3)).tolist() == [-1, 1, 20]
