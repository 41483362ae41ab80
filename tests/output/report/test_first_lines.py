"""The first three lines of a summary say what limits a real recording, where, and what part of the step that is. The
figures are those of an independent program that reads the raw events (``account/expected.jsonl`` beside the traces)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from perfkit_core.base.language.messages import english
from perfkit_core.output.report.summary import choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load

EXPECTED: Final = [  # recording, word of the verdict, word of the account, what is named with its share
    ("torch-judged/h100-owlv2", "Input-bound", "host", "zoom_shift> (43.6%"),
    ("torch/mi250-minitoy-train", "Start-up-bound", "host", "hipLaunchKernel (70.4%)"),
    ("torch/mi300x-vit", "Launch-bound", "host", "modeling_vit.py:407 (forward)"),
    # the device takes 19.0 ms for a step of 16.0 ms, so its work counts by launch: 35.2 of 56.5 ms are all-reduces
    ("torch/mi300x-resnet-act-checkpoint-steps", "Communication-bound", "", "all_reduce (62.3%, in train"),
    ("torch/pairs/resnet50-workers0", "Device-bound", "", "_SingleProcessDataLoaderIter.__next__ (21.6%)"),
    ("torch/pairs/resnet50-workers4", "Device-bound", "", "aten::cudnn_convolution_backward_weight (16.5%)"),
    ("torch/a100-nccl-process-groups", "Launch-bound", "host", "inside operators (59.5%)"),
    ("torch/h100-vit", "Launch-bound", "host", "Python code (25.6%, in transformers/models/vit/modeling_vit.py:443"),
    ("torch/h100-qwen05b", "Device-bound", "compute", "aten::"),
    ("torch/h100-bert-small", "Host-bound", "host", "modeling_bert.py"),
    ("torch-judged/v100-test", "Device-bound", "compute", "CompiledFunctionBackward (22.8%, in"),
    ("torch-judged/zero-durations", "Cannot tell what limits it", "", "at least 35.7%"),
]


@pytest.fixture(scope="module")
def accounts(traces: Path) -> dict[str, Any]:
    rows = map(json.loads, (traces.parent / "account" / "expected.jsonl").read_text().splitlines())
    return {row["file"]: row for row in rows if "total_ns" in row}


@pytest.mark.parametrize(("name", "limit", "word", "named"), EXPECTED)
def test_the_first_lines(traces: Path, accounts: dict[str, Any], name: str, limit: str, word: str, named: str) -> None:
    file = traces / f"{name}.json.gz"
    report = summary_report(load(file), choose_views(["causes"]), ViewRequest(), brief=True)
    lines = [english(line) for line in report.headline[:3]]
    assert lines[0].startswith(f"{limit}: ")
    assert named in " ".join(lines)
    if word:
        account = accounts[file.name]
        share = re.search(r"([\d.]+)% of the step time", lines[0])
        assert share
        # perfkit leaves out a last step of mi250-minitoy-train, which has no work, and says apart what ran before
        before = re.search(r"for ([\d.]+)% of the step time, devices run work from before", " ".join(lines))
        expected = 100 * account[word] / account["total_ns"] - (float(before[1]) if before else 0)
        assert float(share[1]) == pytest.approx(expected, abs=0.6)


@pytest.mark.parametrize(("name", "busy"), [("mi300x-deepseek-decode", 90.6), ("vllm-decode-graph", 99.4)])
def test_what_limits_a_server_that_replays_graphs(traces: Path, name: str, busy: float) -> None:
    """The host takes a fifth of the time in which the device does the work of the step: raw 8.01 of 8.83 ms."""
    report = summary_report(
        load(traces / "serving" / f"{name}.json.gz"), choose_views(["causes"]), ViewRequest(), brief=True
    )
    lines = [english(line) for line in report.headline]
    assert lines[0].startswith("Serving, decode: ")
    assert lines[1].startswith(f"Device-bound: devices compute for {busy}% of a step's time on the devices (")
