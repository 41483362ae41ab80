"""Counts and times in the findings of rules: singular, plural and large numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.rule_input import RuleInput, listed
from perfkit_core.advice.rules.pageable_copies import find as pageable_copies
from perfkit_core.readers.load import load
from tests.support.advised import call, copy, found, op, steps

PLURAL_OF_ONE = re.compile(
    r"(?<![\d.,])1 (times|operators|kernels|copies|results|casts|numbers|rounds|tensors|gradients|chains|stretches)\b"
)
LONG_NUMBER = re.compile(r"(?<![\w.,#:/-])\d{4,}(?:\.\d+)? (?:ms|of)\b|\d+\.\d+ of \d{4,}")
FILES = (
    "torch/dlrm-8xv100/rank0.json", "torch/mi300x-ddp-resnet18-train.json.gz", "torch/resnet-param.json.gz",
    "torch/h100-qwen05b.json.gz", "torch/gpu-user-annotation-steps.json.gz",
    "paddle/cpu-3.3.1/cnn_small/cycle0.json.gz", "paddle/gpu-synthetic/gpu1_by_3.3.1.json.gz",
)  # fmt: skip


def test_an_average_that_is_shown_as_1_takes_the_singular() -> None:
    facts = RuleInput(steps([]))
    shown = [str(facts.plural("one", "many", count)) for count in (1, 1.0, 1.0004, 2, 0.5, 1.5, 714)]
    assert shown == [*["one"] * 3, *["many"] * 4]


def test_listed_names_and_the_number_of_others() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert [str(listed(names[:count])) for count in (1, 2, 3, 5)] == [
        "a",
        "a and b",
        "a, b and c",
        "a, b, c and 2 more",
    ]


@pytest.mark.parametrize(("count", "said"), [(1, "1 copy per step from"), (2, "2 copies per step from")])
def test_singular_and_plural_of_copies(count: int, said: str) -> None:
    rows = []
    for i in range(count):
        rows += [op("aten::to", 40 * i, 30), call("cudaMemcpyAsync", 40 * i + 5, 20, i + 1)]
        rows += [copy("HtoD (Pageable -> Device)", 1_000_000, 40 * i + 10, 10, i + 1)]
    (one,) = found(pageable_copies, steps(rows))
    assert str(one.what).startswith(said)
    assert ("blocks the host" in str(one.what)) == (count == 1)


@pytest.mark.parametrize("file", FILES)
def test_sentences_on_real_recordings(file: str, traces: Path) -> None:
    result = advise(load(traces / file))
    said = [str(one.candidate.what) for one in (*result.advice, *result.without_saving)]
    assert said
    assert [text for text in said if PLURAL_OF_ONE.search(text) or LONG_NUMBER.search(text)] == []
    if not any(one.steps for one in result.advice):
        assert [text for text in said if "per step" in text or "each step" in text] == []
