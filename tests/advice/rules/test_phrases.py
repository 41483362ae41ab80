"""How rules say counts and times: right for one, for many and for large numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfkit_core.advice.advise import advise
from perfkit_core.advice.rules.copies import pageable_copies
from perfkit_core.advice.rules.phrases import counted, millis, number, times, verb
from perfkit_core.loading import load
from tests.support.advised import call, copy, found, op, steps

PLURAL_OF_ONE = re.compile(
    r"(?<![\d.,])1 (times|operators|kernels|copies|results|casts|numbers|rounds|tensors|gradients|chains|stretches)\b"
)
LONG_NUMBER = re.compile(r"(?<![\w.,#:/-])\d{4,}(?:\.\d+)? (?:ms|of)\b|\d+\.\d+ of \d{4,}")
FILES = (
    "torch/dlrm-8xv100/rank0.json", "torch/mi300x-ddp-resnet18-train.json.gz", "torch/resnet-param.json.gz",
    "torch/alexnet-cuda-sync.json.gz", "torch/gpu-user-annotation-steps.json.gz",
    "paddle/cpu-3.3.1/cnn_small/cycle0.json.gz", "paddle/gpu-synthetic/gpu1_by_3.3.1.json.gz",
)  # fmt: skip


def test_one_is_no_plural() -> None:
    assert [counted(one, "copy", "copies") for one in (1, 1.0, 2, 0.5)] == [
        "1 copy", "1 copy", "2 copies", "0.5 copies",
    ]  # fmt: skip
    assert [counted(one, "kernel") for one in (1, 1240)] == ["1 kernel", "1,240 kernels"]
    assert (verb(1, "holds", "hold"), verb(1.5, "holds", "hold")) == ("holds", "hold")
    assert [times(one) for one in (1, 2, 3, 714)] == ["once", "twice", "3 times", "714 times"]


def test_digits_and_thousands() -> None:
    assert [number(one) for one in (3, 2.5, 0.333333, 161, 12345.6)] == ["3", "2.5", "0.333", "161", "12,346"]
    assert [millis(ns) for ns in (43_210, 18_421_000, 176_270_000, 1_685_970_000)] == ["0.0432", "18.4", "176", "1,686"]


@pytest.mark.parametrize(("count", "said"), [(1, "1 copy of pageable"), (2, "2 copies of pageable")])
def test_a_sentence_on_one_copy(count: int, said: str) -> None:
    rows = []
    for i in range(count):
        rows += [op("aten::to", 40 * i, 30), call("cudaMemcpyAsync", 40 * i + 5, 20, i + 1)]
        rows += [copy("HtoD (Pageable -> Device)", 1_000_000, 40 * i + 10, 10, i + 1)]
    (one,) = found(pageable_copies, steps(rows))
    assert one.what.startswith(said)
    assert ("holds up" in one.what) == (count == 1)


@pytest.mark.parametrize("file", FILES)
def test_sentences_on_real_recordings(file: str, traces: Path) -> None:
    result = advise(load(traces / file))
    said = [one.candidate.what for one in (*result.advice, *result.without_saving)]
    assert said
    assert [text for text in said if PLURAL_OF_ONE.search(text) or LONG_NUMBER.search(text)] == []
    if not any(one.steps for one in result.advice):
        assert [text for text in said if " a step" in text or "each step" in text] == []
