"""The view serving: times, gaps and parts of the steps of a server, computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core import load, summarize
from perfkit_core.cli.main import main
from perfkit_core.output.report.headline import serving_sentences
from perfkit_core.trace.model.trace import Trace
from tests.support.server_trace import Server, decode_and_prefill
from tests.support.tables import check_tables


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return decode_and_prefill(tmp_path / "t.json")


def test_steps_of_servers(recording: Path, tmp_path: Path) -> None:
    """A step lasts from the end of the previous device work to the end of its own: 2800 µs, then 3420 and every 600 µs,
    and 6250 µs for the last step. The time of the first step is unknown, since the step before it was not recorded."""

    def read(server: Server) -> Trace:
        return load(server.write(tmp_path / "t.json"))

    on_host, ahead, verifying, keys = Server(), Server(), Server(), Server()
    for start in (0, 100, 250):
        on_host.range("step[DECODE bs=2]", start, 60)
        on_host.operator("aten::mm", start + 10, 20)
    for number in range(4):
        ahead.range("step[DECODE bs=2]", 30 * number, 20)
        ahead.launch("cudaLaunchKernel", 30 * number + 5, [("gemm", 50 + 100 * number, 100)])
    for number in range(7):
        verifying.range("step[TARGET_VERIFY bs=4]" if number % 2 else "step[DECODE bs=4]", 100 * number, 60)
        verifying.launch("cudaLaunchKernel", 100 * number + 5, [("gemm", 100 * number + 10, 20)])
    for number, name in enumerate(("EXTEND bs=2 toks=12 c_sk=20", "EXTEND bs=2 toks=4096", "DECODE bs=16")):
        keys.range(f"step[{name}]", 100 * number, 60)
        keys.operator("aten::mm", 100 * number + 10, 20)
    cases = {
        "decode and prefill": load(recording),
        "without a device, steps end with their range": read(on_host),
        "the host launches the next step while the device works: a step takes 100 µs, without a gap": read(ahead),
        "verification does not say its tokens: time per token counts the three decode steps after the first":
            read(verifying),
        "only the first name says its keys": read(keys),
    }  # fmt: skip
    check_tables("views/serving.txt", {
        heading + label: summarize(trace, "serving", by=by)
        for heading, trace in cases.items() for label, by in (("", ()), (", by step", "step"))
    })  # fmt: skip


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
