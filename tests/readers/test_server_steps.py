"""The ranges of inference servers become steps, and their names say what a step computes."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfkit_core import UsageError, load, summarize
from perfkit_core.testing import traces as promises
from perfkit_core.trace.assembly.server_steps import serving_steps
from perfkit_core.trace.model.serving_step import ServingStep
from perfkit_core.trace.model.trace import Trace
from perfkit_torch.server_ranges import serving_step
from tests.support.events import host, trace
from tests.support.server_trace import Server, decode_and_prefill


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("execute_context_2(14721)_generation_0(0)", ServingStep("prefill", 2, 2, 0, 14721, 14721, 0)),
        ("execute_context_0(0)_generation_64(64)", ServingStep("decode", 64, 0, 64, 64, 0, 64)),
        (
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)",
            ServingStep("mixed", 5, 2, 3, 6147, 6144, 3, 7144, 6144),
        ),
        ("step[EXTEND bs=2 toks=4096]", ServingStep("prefill", 2, 2, 0, 4096, 4096, 0, None, 0)),
        (
            "step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]",
            ServingStep("prefill", 2, 2, 0, 12, 12, 0, 20, 0),
        ),
        ("step[DECODE bs=16]", ServingStep("decode", 16, 0, 16, 16, 0, 16, 0)),
        (
            "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]",
            ServingStep("decode", 64, 0, 64, 128, 0, 128, 0, 131072),
        ),
        (
            "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
            ServingStep("mixed", 2, 1, 1, 6, 5, 1, 8, 12),
        ),
        ("step[MIXED bs=2]", ServingStep("mixed", 2)),
        ("step[TARGET_VERIFY bs=4]", ServingStep("decode", 4, 0, 4, None, 0, None, 0)),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", ServingStep("prefill", 2, 2, 0, 14721, 14721, 0, None, 0)),
        ("decode[bs=117/128 tok=117 d=117]", ServingStep("decode", 117, 0, 117, 117, 0, 117, 0)),
        ("decode[bs=128 tok=384 p=2 d=126 sk=258048]", ServingStep("mixed", 128, 2, 126, 384)),
        (
            "[Executor] _forward_step 7: 2 ctx reqs, 4096 ctx tokens, 14 gen reqs",
            ServingStep("mixed", 16, 2, 14, 4110, 4096, 14),
        ),
        ("[Executor] _forward_step 8: 0 ctx reqs, 14 gen reqs", ServingStep("decode", 14, 0, 14, 14, 0, 14)),
        ("denoise_step_3", ServingStep("denoise")),
        ("Denoising_Step_3", ServingStep("denoise")),
        ("execute_diffusion_1_512x512", ServingStep("denoise", 1)),
        ("capture_32_FULL", ServingStep("capture", 32)),
        ("step[EXTEND toks=5]", ServingStep("prefill", None, None, 0, 5, 5, 0, None, 0)),
        ("prefill[bs= tok=5]", ServingStep("prefill", None, None, 0, 5, 5, 0, None, 0)),
        ("decode[bs= tok=3]", ServingStep("decode", None, 0, None, 3, 0, 3, 0)),
        ("step[DECODE g_sk=7]", ServingStep("decode", None, 0, None, None, 0, None, 0, 7)),
        ("step[MIXED bs=3 c=1 c_sq=5]", ServingStep("mixed", None, 1, None, None, 5)),
    ],
)
def test_what_a_name_says(name: str, step: ServingStep) -> None:
    assert serving_step(name) == step


@pytest.mark.parametrize(
    "name", ["execute_model", "step[IDLE bs=0]", "step[0]", "prefill", "decode[x]", "ProfilerStep#3", "capture_x", ""]
)
def test_other_names_say_nothing(name: str) -> None:
    assert serving_step(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "execute_context_0(0)_generation_0(0)", "step[DECODE bs=0]", "step[EXTEND bs=0 toks=0]", "step[MIXED bs=0]",
        "decode[bs=0/8 tok=0 d=0]", "[Executor] _forward_step 8: 0 ctx reqs, 0 gen reqs",
    ],
)  # fmt: skip
def test_a_range_of_no_requests_is_no_step(name: str) -> None:
    """vLLM runs such a dummy batch on a data-parallel rank that waits for the others."""
    assert serving_step(name) is None


LONG = "9" * 5000


@pytest.mark.parametrize(
    "name",
    [
        f"capture_{LONG}_FULL", f"execute_context_0(0)_generation_{LONG}(5)", f"step[DECODE bs={LONG}]",
        f"step[EXTEND bs=2 toks={LONG}]", f"prefill[bs={LONG} tok=5]", f"execute_diffusion_{LONG}_5x5",
        f"[Executor] _forward_step 7: {LONG} ctx reqs, 1 gen reqs", "execute_context_0(0)_generation_1(99999999999999)",
    ],
)  # fmt: skip
def test_long_numbers_are_no_counts(tmp_path: Path, name: str) -> None:
    """A name in a trace may be hostile: it gives no number that exceeds 64 bits."""
    server = Server()
    server.range(name, 0, 10)
    server.operator("aten::mm", 1, 2)
    steps = serving_steps(load(server.write(tmp_path / "t.json")))[1]
    assert all(step.requests in (None, 2) and step.tokens in (None, 5) for step in steps)


@pytest.mark.parametrize(
    ("number", "steps"), [("5", 1), ("-5", 0), ("1.5", 0), ("9" * 16, 0), ("9" * 25, 0), ("9" * 5000, 0)]
)
def test_other_numbers_in_arguments_are_no_counts(number: str, steps: int) -> None:
    """A recording can contain the key that perfkit adds."""
    args = f'{{"perfkit.serving":{{"kind":"decode","requests":{number}}}}}'
    rows = [host("a", "step", 0, 10, args=args), host("aten::mm", "operator", 2, 3)]
    assert len(serving_steps(trace(rows))[1]) == steps


def numbers(trace: Trace) -> list[tuple[str, int]]:
    rows, steps = serving_steps(trace)
    return [(step.kind, int(trace.ints("step")[row])) for row, step in zip(rows.tolist(), steps, strict=True)]


def test_outer_ranges_are_steps(tmp_path: Path) -> None:
    server = Server()
    server.range("execute_context_1(5)_generation_0(0)", 0, 100)
    server.range("step[EXTEND bs=1 toks=5]", 10, 80)
    server.range("execute_context_0(0)_generation_1(1)", 200, 50)
    server.operator("aten::mm", 20, 5)
    server.operator("aten::add", 210, 5)
    trace = load(server.write(tmp_path / "t.json"))
    assert numbers(trace) == [("prefill", 0), ("decode", 1)]
    by_name = dict(zip(trace.column("name").to_pylist(), trace.column("step").to_pylist(), strict=True))
    assert (by_name["aten::mm"], by_name["aten::add"]) == (0, 1)
    kinds = dict(zip(trace.column("name").to_pylist(), trace.column("kind").to_pylist(), strict=True))
    assert kinds["step[EXTEND bs=1 toks=5]"] == "annotation"
    promises.check_trace(trace)


def test_steps_of_the_profiler_stay_the_steps(tmp_path: Path) -> None:
    """A step of the profiler with one range takes its description. One with two ranges has none."""
    server = Server()
    for number in range(3):
        server.range(f"ProfilerStep#{number + 5}", 100 * number, 90)
        server.operator("aten::mm", 100 * number + 20, 5)
    server.range("step[DECODE bs=4]", 10, 60)
    server.range("step[DECODE bs=4]", 110, 20)
    server.range("step[DECODE bs=4]", 140, 20)
    server.range("step[EXTEND bs=1 toks=9]", 210, 60)
    trace = load(server.write(tmp_path / "t.json"))
    assert numbers(trace) == [("decode", 5), ("prefill", 7)]
    assert sorted(trace.column("kind").to_pylist()).count("step") == 3


def test_an_unfinished_range_is_no_step(tmp_path: Path) -> None:
    server = Server()
    server.range("step[DECODE bs=4]", 10, 60)
    server.operator("aten::mm", 20, 5)
    server.events.append(
        {"ph": "X", "cat": "user_annotation", "name": "step[DECODE bs=4]", "ts": 100, "dur": 5, "pid": 1, "tid": 1,
         "args": {"finished": False}}
    )  # fmt: skip
    assert numbers(load(server.write(tmp_path / "t.json"))) == [("decode", 0)]


def test_the_scanner_reads_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = decode_and_prefill(tmp_path / "t.json")
    scanned = load(path)
    monkeypatch.setattr("perfkit_torch.dialect.TorchDialect.scan_rules", None)
    assert load(path).events.equals(scanned.events)


def test_only_steps_of_one_kind(tmp_path: Path) -> None:
    path = decode_and_prefill(tmp_path / "t.json")
    trace = load(path, step_kind="decode")
    assert numbers(trace) == [("decode", number) for number in range(1, 5)]
    whole = summarize(load(path), "serving", by="step")
    kept = summarize(trace, "serving", by="step")
    # the times before a step do not depend on the chosen kind
    assert kept["step_ns"].tolist() == whole.loc[whole["kind"] == "decode", "step_ns"].tolist()
    promises.check_trace(trace)
    with pytest.raises(UsageError, match="no step of the kind denoise was recorded"):
        load(path, step_kind="denoise")


NAME = re.compile(
    r"execute_(?P<tokens>\d+)_context_(?P<context>\d+)\(sq\d+sk(?P<context_keys>\d+)sqsq\d+sqsk\d+\)"
    r"_generation_(?P<generation>\d+)\(sq\d+sk(?P<generation_keys>\d+)sqsq\d+sqsk\d+\)"
)
REAL = {"vllm-decode-graph": "decode", "sglang-qwen3-8b-prefill-decode": "prefill"}


def of_file(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        events: list[dict[str, Any]] = json.load(file, parse_float=Decimal)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def ns(value: Any) -> int:
    return int(Decimal(value) * 1000)


@pytest.mark.parametrize(("name", "kind"), REAL.items())
def test_steps_of_real_servers(traces: Path, name: str, kind: str) -> None:
    """The numbers of the range are read from its name here, and times are added up from the file."""
    path = traces / "serving" / f"{name}.json.gz"
    events = of_file(path)
    ranges = [(event, match) for event in events if (match := NAME.fullmatch(event["name"]))]
    table = summarize(load(path), "serving", by="step")
    assert len(table) == len(ranges) == 1
    (event, match), row = ranges[0], table.iloc[0]
    told = {key: int(value) for key, value in match.groupdict().items()}
    assert row["kind"] == kind
    assert row["tokens"] == told["tokens"]
    assert row["requests"] == told["context"] + told["generation"]
    assert (row["context_keys"], row["generation_keys"]) == (told["context_keys"], told["generation_keys"])
    assert row["dur_ns"] == ns(event["dur"])
    begin, end = event["ts"], event["ts"] + event["dur"]
    calls = [one for one in events if one["cat"] == "cuda_runtime" and begin <= one["ts"] < end]
    launches = {one["args"]["correlation"] for one in calls}
    work = [one for one in events if one["cat"] in ("kernel", "gpu_memcpy") and one["args"]["correlation"] in launches]
    assert row["device_ns"] == sum(ns(one["dur"]) for one in work)
    busy, until = 0, 0
    for one in sorted(work, key=lambda one: one["ts"]):
        first, last = ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])
        busy += max(0, last - max(first, until))
        until = max(until, last)
    assert row["busy_ns"] == busy
    graphs = {one["args"]["correlation"] for one in events if one["name"] == "hipGraphLaunch"}
    assert row["graph_ns"] == sum(ns(one["dur"]) for one in work if one["args"]["correlation"] in graphs)
    if kind == "prefill":  # in this file, Tensile kernels are the only matrix products
        assert row["matmul_ns"] == sum(ns(one["dur"]) for one in work if one["name"].startswith("Cijk_"))
    parts = ["attention_ns", "matmul_ns", "mixture_of_experts_ns", "communication_ns", "other_ns"]
    assert row[parts].sum() == row["device_ns"]
