"""The first look of summary, compare and advise fits one screen of a terminal, for every real trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.support.terminal import in_terminal, plain

LINES, COLUMNS = 45, 100
SOURCES = [
    *(f"torch/{name}.json.gz" for name in (
        "a100-nccl-process-groups", "alexnet-cuda-sync", "b200-eager-rank0of8", "compile-triton", "cpu-only-rank34",
        "cupti-counters", "event-sync", "event-sync-multi-stream", "gpu-user-annotation-steps", "h100-bert-small",
        "h100-qwen05b", "h100-vit", "mi210-gpu-only", "mi250-minitoy-train", "mi300x-bert-small",
        "mi300x-ddp-resnet18-train", "mi300x-qwen05b", "mi300x-resnet-act-checkpoint-steps", "mi300x-vit",
        "mtia-inference", "pairs/resnet50-workers0", "pairs/resnet50-workers4", "resnet-param", "sampled-rank0",
        "sampled-rank1", "triton-example", "v100-ns-resolution",
    )),
    "torch/dlrm-8xv100",
    *(f"paddle/cpu-3.3.1/{name}/cycle0.json.gz" for name in (
        "amp_custom", "cnn_small", "cnn_small_flags", "mlp_medium", "mlp_medium_mem", "repeat3", "static_cond_guard",
        "static_pir", "to_static",
    )),
    "paddle/gpu-synthetic/gpu1.pb",
    "paddle/gpu-synthetic/gpu1_by_3.3.1.json.gz",
    *(f"serving/{name}.json.gz" for name in (
        "sglang-qwen3-8b-prefill-decode", "vllm-decode-graph", "vllm-decode-graph.capture",
    )),
]  # fmt: skip


def screen(patch: pytest.MonkeyPatch, *arguments: object) -> list[str]:
    lines = plain(in_terminal(patch, arguments, COLUMNS)).splitlines()
    assert len(lines) <= LINES, "\n".join(lines)
    assert max(map(cell_len, lines)) <= COLUMNS, max(lines, key=cell_len)
    return lines


@pytest.mark.parametrize("source", SOURCES)
def test_the_first_look_fits_a_screen(traces: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(traces)
    path = Path(source)
    lines = screen(monkeypatch, "summary", path)
    assert lines[-1].startswith("next: perfkit advise ")
    if not any("no-device-events" in line for line in lines):
        title = next(at for at, line in enumerate(lines) if line.startswith("Operators "))
        assert re.match(r"Name +Self device \(", lines[title + 1])
    assert any(line.startswith("next: perfkit ") for line in screen(monkeypatch, "advise", path)[-3:])


@pytest.mark.parametrize("source", SOURCES[1::2])
def test_the_first_look_of_a_comparison_fits_a_screen(
    traces: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(traces)
    # servers that computed different kinds of steps cannot be compared
    other = source if source.startswith("serving/") else SOURCES[SOURCES.index(source) - 1]
    lines = screen(monkeypatch, "compare", Path(other), Path(source))
    assert any(line.startswith("next: perfkit compare ") for line in lines[-3:])


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_tables_fit_narrow_and_wide_terminals(traces: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.chdir(traces / "torch")
    arguments = ("summary", "h100-bert-small.json.gz", "--view", "operators,kernels,partition,model,memcpy")
    text = plain(in_terminal(monkeypatch, arguments, columns))
    assert max(map(cell_len, text.splitlines())) <= columns
    head = next(line for line in text.splitlines() if line.startswith("Name"))
    assert "Self device" in head
    assert ("Self device memory" in head) == (columns == 200), "sizes are worth less than times"
    assert "Max device" not in head, "extremes are worth least"


def test_a_pipe_has_no_colours_and_at_most_120_columns(traces: Path, perfkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # of the terminal in which the command runs
    trace = traces / "torch" / "h100-bert-small.json.gz"
    out = perfkit("summary", trace, "--view", "operators").out
    assert "\x1b" not in out
    assert 100 < max(map(cell_len, out.splitlines())) <= 120
    assert {"\x1b[1m", "\x1b[36m"} <= set(re.findall(r"\x1b\[\d+m", in_terminal(monkeypatch, ("summary", trace))))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in in_terminal(monkeypatch, ("summary", trace))
