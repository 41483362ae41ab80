"""The view serving: times, gaps and parts of the steps of a server, computed by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit_core import load, summarize
from perfkit_core.cli.main import main
from perfkit_core.output.report.headline import serving_sentences
from tests.support.server_trace import Server, decode_and_prefill


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return decode_and_prefill(tmp_path / "t.json")


def test_each_step_lasts_until_the_end_of_its_device_work(recording: Path) -> None:
    """A step lasts from the end of the previous device work to the end of its own. Ends: 2800 µs, then 3420 and every
    600 µs, and 6250 µs for the last step."""
    table = summarize(load(recording), "serving", by="step")
    assert table["kind"].tolist() == ["prefill", *["decode"] * 4, "mixed"]
    assert table["step_ns"].tolist() == [pd.NA, 620_000, 600_000, 600_000, 600_000, 1_030_000]
    assert table["gap_ns"].tolist() == [pd.NA, 520_000, 500_000, 500_000, 500_000, 330_000]
    assert table["busy_ns"].tolist() == [2_500_000, *[100_000] * 4, 700_000]
    assert table["graph_ns"].tolist() == [0, *[100_000] * 4, 0]
    assert table["requests"].tolist() == [2, 8, 8, 8, 8, 9]
    assert table["tokens"].tolist() == [4096, 8, 8, 8, 8, 520]


def test_the_numbers_of_each_kind_of_step(recording: Path) -> None:
    table = summarize(load(recording), "serving").set_index("kind")
    decode = table.loc["decode"]
    assert (decode["steps"], decode["requests"], decode["tokens"]) == (4, 8.0, 32)
    assert decode["step_ns"] == 605_000  # (620 + 3 * 600) / 4 µs
    assert decode["token_ns"] == 75_625
    assert decode["tokens_per_s"] == pytest.approx(32 / 2.42e-3)
    assert decode["gap_ns"] == 505_000
    assert decode["gap_ratio"] == pytest.approx(2020 / 2420)
    assert decode["busy_ratio"] == pytest.approx(400 / 2420)
    parts = {
        "attention": 0.2,
        "matmul": 0.6,
        "mixture_of_experts": 0.0,
        "communication": 0.1,
        "other": 0.1,
        "graph": 1.0,
    }
    assert {name: decode[f"{name}_ratio"] for name in parts} == pytest.approx(parts)
    prefill = table.loc["prefill"]
    assert pd.isna(prefill["step_ns"])  # the step before it was not recorded
    assert prefill["busy_token_ns"] == 610  # 2500 µs / 4096


def test_steps_without_a_device_end_with_their_range(tmp_path: Path) -> None:
    server = Server()
    for start in (0, 100, 250):
        server.range("step[DECODE bs=2]", start, 60)
        server.operator("aten::mm", start + 10, 20)
    table = summarize(load(server.write(tmp_path / "t.json")), "serving", by="step")
    assert table["step_ns"].tolist() == [pd.NA, 100_000, 150_000]
    assert table["gap_ns"].tolist() == [pd.NA, 40_000, 90_000]
    assert table["busy_ns"].isna().all()


def test_a_pipelined_server_has_no_gap(tmp_path: Path) -> None:
    """The host launches the next step while the device works: the range is short, and the step takes 100 µs."""
    server = Server()
    for number in range(4):
        server.range("step[DECODE bs=2]", 30 * number, 20)
        server.launch("cudaLaunchKernel", 30 * number + 5, [("gemm", 50 + 100 * number, 100)])
    table = summarize(load(server.write(tmp_path / "t.json")), "serving", by="step")
    assert table["step_ns"].tolist() == [pd.NA, 100_000, 100_000, 100_000]
    assert table["gap_ns"].tolist() == [pd.NA, 0, 0, 0]


def test_time_per_token_counts_steps_with_known_tokens(tmp_path: Path) -> None:
    """The name of a verification step does not say its tokens. Steps of 100 µs, each busy for 20 µs: 25 and 5 µs per
    token of the three decode steps after the first."""
    server = Server()
    for number in range(7):
        server.range("step[TARGET_VERIFY bs=4]" if number % 2 else "step[DECODE bs=4]", 100 * number, 60)
        server.launch("cudaLaunchKernel", 100 * number + 5, [("gemm", 100 * number + 10, 20)])
    row = summarize(load(server.write(tmp_path / "t.json")), "serving").iloc[0]
    assert (row["kind"], row["steps"], row["tokens"], row["step_ns"]) == ("decode", 7, 16, 100_000)
    assert (row["token_ns"], row["busy_token_ns"]) == (25_000, 5_000)
    assert row["tokens_per_s"] == pytest.approx(40_000)


def test_keys_are_unknown_if_the_name_does_not_say_them(tmp_path: Path) -> None:
    """The name of the first step has the keys of 2 prompts, and those of the others have none, which is not 0."""
    server = Server()
    for number, name in enumerate(("EXTEND bs=2 toks=12 c_sk=20", "EXTEND bs=2 toks=4096", "DECODE bs=16")):
        server.range(f"step[{name}]", 100 * number, 60)
        server.operator("aten::mm", 100 * number + 10, 20)
    trace = load(server.write(tmp_path / "t.json"))
    assert summarize(trace, "serving", by="step")["keys"].tolist() == [20, pd.NA, pd.NA]
    keys = summarize(trace, "serving").set_index("kind")["keys"]
    assert keys["prefill"] == 10
    assert pd.isna(keys["decode"])


@pytest.mark.parametrize(
    "name",
    ["step[MIXED bs=3 toks=70]", "step[MIXED bs=3 c=1 c_sq=5 c_sk=8]", "denoise_step_3", "decode[bs=8/16 tok=24 p=1]"],
)
def test_keys_are_unknown_if_the_groups_are(name: str, tmp_path: Path) -> None:
    server = Server()
    server.range(name, 0, 60)
    server.operator("aten::mm", 10, 20)
    trace = load(server.write(tmp_path / "t.json"))
    assert summarize(trace, "serving", by="step")["keys"].isna().all()
    assert summarize(trace, "serving")["keys"].isna().all()


def test_device_time_of_steps_is_unknown_without_launches(tmp_path: Path) -> None:
    server = Server()
    for start in (0, 100):
        server.range("step[DECODE bs=2]", start, 60)
        server.operator("aten::mm", start + 5, 10)
        server.launch("cudaLaunchKernel", start + 10, [("gemm", start + 20, 30)])
    columns = ["busy_ns", "device_ns", "other_ns", "graph_ns", "gap_ns"]
    recorded = summarize(load(server.write(tmp_path / "a.json")), "serving", by="step")[columns]
    assert recorded.iloc[1].tolist() == [30_000, 30_000, 0, 0, 70_000]
    server.events = [event for event in server.events if event["name"] != "cudaLaunchKernel"]
    assert summarize(load(server.write(tmp_path / "b.json")), "serving", by="step")[columns].isna().all(axis=None)


def test_a_training_has_no_rows(tmp_path: Path) -> None:
    server = Server()
    server.range("ProfilerStep#1", 0, 50)
    server.operator("aten::mm", 10, 20)
    assert summarize(load(server.write(tmp_path / "t.json")), "serving").empty


def test_ranks_are_merged(recording: Path, tmp_path: Path) -> None:
    """Two ranks: counts add up, averages stay, and each rank has its own first step."""
    text = recording.read_text()
    paths = []
    for rank in range(2):
        path = tmp_path / f"rank{rank}.json"
        info = f'"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "traceEvents"'
        path.write_text(text.replace('"traceEvents"', info, 1))
        paths.append(path)
    one, both = (summarize(load(each), "serving").set_index("kind") for each in (paths[:1], paths))
    assert both.loc["decode", "steps"] == 2 * one.loc["decode", "steps"]
    assert both.loc["decode", "step_ns"] == one.loc["decode", "step_ns"]
    assert summarize(load(paths), "serving", by="rank")["rank"].tolist() == [0, 1, 0, 1, 0, 1]


def test_the_first_look(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = summarize(load(recording), "serving")
    texts = [str(each) for each in serving_sentences(table)]
    assert len(texts) == 3
    assert main(["summary", str(recording)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    decode = "Serving, decode: 4 steps with 8 requests on average. A step takes 605 µs on average (13,223 tokens/s)."
    assert decode in shown
    assert "busy for 16.5% of the step time. For 83.5% it waits for the next step to start." in shown
    prefill = (
        "Serving, prefill: 1 step with 2 requests. A step has 2.50 ms of device work (at most 1,638,400 tokens/s)."
    )
    assert prefill in shown
    assert "Launch-bound" not in shown


def test_the_command_counts_only_steps_of_a_kind(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["summary", str(recording), "--step-kind", "decode", "--view", "kernels", "--format", "csv"]
    assert main(arguments) == 0
    rows = capsys.readouterr().out
    assert "flash_fwd_kernel" not in rows
    assert "flash_fwd_splitkv" in rows
    assert main(["summary", str(recording), "--step-kind", "denoise"]) == 2
    assert "recorded kinds: prefill, decode, mixed" in capsys.readouterr().err
