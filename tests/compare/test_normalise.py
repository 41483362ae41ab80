"""Tests of times for equal work (per sample, token and FLOP), and of devices with their peak rates."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit_core.compare import comparison
from perfkit_core.compare.pair import (
    FLOP,
    SAMPLE,
    TOKEN,
    CompareOptions,
    Work,
    batch_of_shapes,
    normalised,
    pair,
    work,
    work_table,
)
from perfkit_core.compare.statistics import StepSamples
from perfkit_core.errors import UsageError
from perfkit_core.plugins.flops.peaks import peaks_of
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.small_trace import small_trace

MS = 1_000_000


def of(*step_ms: float) -> list[StepSamples]:
    return [StepSamples(np.arange(len(step_ms)), (np.array(step_ms) * MS).astype(np.int64))]


def test_per_sample_by_hand() -> None:
    """100 ms for 32 samples is 3.125 ms per sample, and 150 ms for 64 samples is 2.34375 ms per sample. The steps are
    slower, but the samples are faster."""
    base, other = (Work(SAMPLE, Fraction(n), "given") for n in (32, 64))
    found = normalised(SAMPLE, base, other, (of(*[100] * 8), of(*[150] * 8)), 0.02)
    s = found.statistics
    assert (s.base, s.other, s.difference) == (3_125_000, 2_343_750, -781_250)
    assert s.verdict == "faster"
    assert found.per_s == (320.0, pytest.approx(64 / 0.15))
    (row,) = work_table(found).to_dict("records")
    assert (row["per"], row["base_amount"], row["other_amount"], row["difference_ns"]) == ("sample", 32, 64, -781_250)


def test_tokens_are_counted_in_thousands() -> None:
    """1 ms for 3 tokens is 333,333,333 ns for 1000 tokens."""
    amount = Work(TOKEN, Fraction(3), "given")
    found = normalised(TOKEN, amount, amount, (of(1, 1), of(1, 1)))
    assert (found.statistics.base, found.statistics.difference) == (333_333_333, 0)


def test_work_is_given_recorded_or_inferred_from_shapes() -> None:
    trace = small_trace().with_meta(extra={"batch_size": "48"})
    assert work(trace, SAMPLE, 7) == Work(SAMPLE, Fraction(7), "given")
    assert work(trace, SAMPLE) == Work(SAMPLE, Fraction(48), "recorded")
    assert work(small_trace(), SAMPLE) is None
    with pytest.raises(
        UsageError, match="the number of tokens per step is unknown; give the numbers with --tokens A,B"
    ):
        pair([trace], [trace], CompareOptions(TOKEN))


def test_flops_are_those_of_the_outermost_operators() -> None:
    """matmul has 24 FLOPs, which include the 5 FLOPs of the add inside it. Each of the two steps has 24 FLOPs."""
    trace = small_trace()
    names = trace.codes("name")
    flops = np.select([names.rows("fw::matmul"), names.rows("fw::add")], [24, 5], -1)
    assert work(trace.with_ints(flops=flops), FLOP) == Work(FLOP, Fraction(24), "recorded")
    assert work(trace, FLOP) is None


@pytest.mark.parametrize(
    ("file", "batch"),
    [("pairs/resnet50-workers0.json.gz", 32), ("h100-vit.json.gz", 4), ("h100-qwen05b.json.gz", None)],
)
def test_the_batch_of_real_shapes(traces: Path, file: str, batch: int | None) -> None:
    """The batch is 32 for ResNet50, and 4 for the ViT, whose convolution has an input of [4, 3, 224, 224]. The language
    model has no operators that show its batch."""
    assert batch_of_shapes(load(traces / "torch" / file)) == batch


def test_operators_of_the_loader_do_not_show_the_batch() -> None:
    """The loader pools eight images one by one, and the model convolves 32 of them. Only the model counts."""
    single = {"shapes": "[[1, 3, 8, 8]]", "phase": "dataloader"}
    rows = [host("step 0", "step", 0, 1_000, step=0), host("next batch", "dataloader", 0, 500)]
    rows += [host("fw::pool", "operator", at * 50, 40, **single) for at in range(8)]
    rows += [host("fw::conv", "operator", 600, 40, shapes="[[32, 3, 8, 8], [4, 3, 1, 1]]")]
    assert batch_of_shapes(trace(rows, names={"fw::pool": "pool", "fw::conv": "conv"}.get)) == 32


def _on(name: str | None, **properties: object) -> Trace:
    return small_trace().with_meta(devices=(Device("cuda:0", name, 64, properties),))


def test_peaks_are_those_of_certain_products_only() -> None:
    sides = [("base", _on("NVIDIA H100 80GB HBM3")), ("other", _on("AMD Radeon Graphics"))]
    table = comparison.device_table(sides).set_index("side")
    assert table.loc["base", "matrix16_tflop_per_s"] == 989.4
    assert table.loc["base", "memory_gb_per_s"] == 3350
    assert pd.isna(table.loc["other", "matrix16_tflop_per_s"])
    assert table.loc["other", "device_memory_bytes"] == 64
    assert comparison.different_devices([trace for _, trace in sides])
    assert not comparison.different_devices([sides[0][1], small_trace().with_meta(devices=())])


def test_every_known_device_of_the_real_traces_has_its_peaks(traces: Path) -> None:
    known = {"b200-eager-rank0of8": "B200 (HGX, 180 GB)", "h100-bert-small": "H100 SXM5", "mi300x-bert-small": "MI300X",
             "mi210-gpu-only": "MI210",
             "dlrm-8xv100/rank0": "V100 SXM2", "mi250-minitoy-train": None}  # fmt: skip
    for file, product in known.items():
        (path,) = (traces / "torch").glob(f"{file}.json*")
        found = peaks_of(load(path).meta.devices[0])
        assert (found and found.product) == product
