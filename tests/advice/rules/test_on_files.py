"""Candidates of rules on copies and waits in real recordings, compared with numbers that are computed from the
files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.device_sync import find as device_sync
from perfkit_core.advice.rules.fill_then_copy import find as filled_on_host
from perfkit_core.advice.rules.host_sync import find as host_sync
from perfkit_core.advice.rules.pageable_copies import find as pageable_copies
from perfkit_core.advice.rules.tiny_ops_on_device import find as tiny_operators
from perfkit_core.advice.rules.waiting_operator import find as waiting_operator
from perfkit_core.readers.load import load
from tests.support.advised import found

Event = dict[str, Any]


def events(path: Path) -> list[Event]:
    """Return the complete events of a Chrome trace."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [event for event in json.loads(text)["traceEvents"] if event.get("ph") == "X"]


def named(every: list[Event], word: str) -> list[Event]:
    return [event for event in every if word in event["name"]]


@pytest.mark.parametrize("workers", [0, 4])
def test_pageable_batches_of_resnet50(traces: Path, workers: int) -> None:
    path = traces / f"torch/pairs/resnet50-workers{workers}.json.gz"
    every = events(path)
    copies = named(every, "Memcpy HtoD (Pageable -> Device)")
    steps = [event for event in every if event["name"].startswith("ProfilerStep#")]
    assert (len(copies), len(steps)) == (12, 6)
    (candidate,) = found(pageable_copies, load(path))
    assert candidate.evidence["copies_per_step"] == len(copies) / len(steps)
    assert candidate.evidence["bytes_per_step"] == sum(copy["args"]["bytes"] for copy in copies) / len(steps)


@pytest.mark.parametrize("rank", range(8))
def test_waits_of_dlrm(traces: Path, rank: int) -> None:
    """The step has two copies to the host in ``aten::to``. The evidence equals the sum of their times."""
    path = traces / f"torch/dlrm-8xv100/rank{rank}.json"
    every = events(path)
    copies = named(every, "Memcpy DtoH (Device -> Pageable)")
    by_correlation = {event["args"].get("correlation"): event for event in named(every, "cudaMemcpyAsync")}
    calls = [by_correlation[copy["args"]["correlation"]] for copy in copies]
    casts = [event for event in every if event["name"] == "aten::to"]
    around = [next(cast for cast in casts if inside(call, cast)) for call in calls]
    (candidate,) = found(host_sync, load(path), sync_share=0)
    assert candidate.evidence["copies_per_step"] == len(copies) == 2
    assert candidate.evidence["call_ns"] == sum(round(cast["dur"] * 1000) for cast in around)
    assert sum(call["dur"] for call in calls) * 1000 - candidate.evidence["waiting_ns"] < 100_000


def inside(event: Event, other: Event) -> bool:
    begins = other["ts"] <= event["ts"] and event["ts"] + event["dur"] <= other["ts"] + other["dur"]
    return bool(begins and event["tid"] == other["tid"])


def test_a_bool_that_is_fetched(traces: Path) -> None:
    """The program contains ``if x.sum() > 0``: two operators, each with one kernel of one block, followed by
    is_nonzero."""
    recording = load(traces / "torch/event-sync.json.gz")
    (candidate,) = found(tiny_operators, recording)
    assert candidate.evidence["operators"] == ["aten::gt", "aten::sum"]
    assert candidate.evidence["copies_per_step"] == 1


def test_batches_drawn_on_the_host(traces: Path) -> None:
    """Each step calls ``torch.randn(...)`` twice, and the next operator copies the result."""
    path = traces / "torch/mi250-minitoy-train.json.gz"
    drawn = [event for event in events(path) if event["name"] == "aten::randn"]
    (candidate,) = found(filled_on_host, load(path))
    assert candidate.evidence["operators"] == ["aten::randn"]
    assert candidate.evidence["copies_per_step"] == len(drawn) == 2


@pytest.mark.parametrize("name", ["h100-qwen05b", "mi300x-qwen05b"])
def test_a_harness_that_synchronises_the_device_around_the_step(traces: Path, name: str) -> None:
    """One of the two calls lies in the step, but before its launches. The other call ends the recording."""
    path = traces / f"torch/{name}.json.gz"
    assert len(named(events(path), "DeviceSynchronize")) == 2
    assert found(device_sync, load(path)) == []


def test_small_operators_wait_for_the_launch_queue(traces: Path) -> None:
    """aten::mul of an optimizer takes 8 µs, or up to 2 ms while earlier convolutions occupy the device."""
    path = traces / "torch/v100-ns-resolution.json.gz"
    times = [event["dur"] for event in events(path) if event["name"] == "aten::mul"]
    facts = RuleInput(load(path))
    (candidate,) = waiting_operator(facts)
    assert candidate.evidence["operator"] == "aten::mul"
    assert candidate.evidence["longest_ns"] <= round(max(times) * 1000)
    assert candidate.evidence["shortest_ns"] >= 1_000
    assert candidate.method == "none"
