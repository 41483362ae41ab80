"""FLOPs and bytes against the figures of TraceLens for six recordings, operator by operator.

TraceLens counts by other conventions in some cases. Each is listed in :func:`in_our_terms`, which converts a figure.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import roofline
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators.operator_work import operator_work

CASES = {
    f"{device}-{model}": f"{file}-{model}.json.gz"
    for device, file in (("h100", "h100"), ("mi300", "mi300x"))
    for model in ("bert-small", "qwen05b", "vit")
}
TABLES = ("GEMM", "CONV_fwd", "SDPA_fwd", "BinaryElementwise", "UnaryElementwise", "Normalization", "Reduce_fwd")


class Row(NamedTuple):
    """A row of TraceLens' tables: the calls of an operator with the same shapes."""

    name: str
    shapes: list[Any]
    flops: float
    bytes: float
    calls: int
    time_ns: float


def rows(folder: Path) -> Iterator[Row]:
    csv.field_size_limit(10**9)
    for table in TABLES:
        path = folder / f"{table}.csv"
        if not path.exists():
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                shapes = json.loads(row["Input Dims_first"].replace("(", "[").replace(",)", "]").replace(")", "]"))
                flops, size = float(row["GFLOPS_first"]) * 1e9, float(row["Data Moved (MB)_first"]) * 2**20
                time_ns = float(row["Kernel Time (µs)_sum"]) * 1000
                yield Row(row["name"], shapes, flops, size, int(row["name_count"]), time_ns)


def listed(folder: Path) -> Iterator[Row]:
    """Yield the rows that perfkit also has. It does not list parts of operators that are listed: the bias of a
    convolution, and the operator that calls native_layer_norm."""
    for row in rows(folder):
        if row.name != "aten::layer_norm" and not (row.name == "aten::add_" and len(row.shapes[0]) == 4):
            yield row


def in_our_terms(name: str, shapes: list[Any], flops: float, size: float) -> tuple[float, float]:
    """Return the FLOPs and bytes of an operator as perfkit counts them."""
    if name == "aten::addmm":  # the addition of the bias is not a matrix product
        flops -= shapes[1][0] * shapes[2][1]
    elif name == "aten::copy_":  # a copy computes nothing
        flops = 0
    elif name == "aten::mean":  # the result of a mean over one dimension has more than one element
        size += (math.prod(shapes[0]) // shapes[0][-1] - 1) * 4
    elif name == "aten::convolution":  # the bias is read, too
        size += shapes[2][0] * 2
    elif name == "aten::_scaled_dot_product_flash_attention" and flops < 4 * math.prod(shapes[0]) * shapes[1][2]:
        # The causal mask keeps the diagonal: n · (n + 1) / 2 pairs, not n² / 2.
        flops *= (shapes[0][2] + 1) / shapes[0][2]
    elif name == "aten::native_layer_norm":  # with weight and bias, 7 FLOPs for an element; no running statistics
        elements, width = math.prod(shapes[0]), shapes[0][-1]
        assert flops == 5 * elements + 6 * width
        flops, size = 7 * elements, 2 * (2 * elements + 2 * width)
    return flops, size


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trace(case: str, traces: Path) -> Trace:
    return load(traces / "torch" / CASES[case])


def test_flops_and_bytes_equal_those_of_tracelens(case: str, trace: Trace, traces: Path) -> None:
    work, names, shapes = operator_work(trace), trace.codes("name"), trace.codes("shapes")
    ours: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
    for row, number in zip(work.row.tolist(), work.distinct.tolist(), strict=True):
        key = names.values[names.codes[row]], json.dumps(json.loads(shapes.values[shapes.codes[row]]))
        ours.setdefault(key, []).append((work.works[number].flops, work.works[number].bytes))
    expected: Counter[Any] = Counter()
    for row in listed(traces / "oracle/tracelens" / case):
        flops, size = in_our_terms(row.name, row.shapes, row.flops, row.bytes)
        expected[row.name, json.dumps(row.shapes), round(flops), round(size)] += row.calls
    assert len(expected) >= 6
    for (name, sizes, flops, size), calls in expected.items():
        assert ours[name, sizes].count((flops, size)) == calls, (name, sizes)
    print(f"{case}: FLOPs and bytes of {len(expected)} operators and shapes, {expected.total()} calls, equal")


def test_times_equal_those_of_tracelens(case: str, trace: Trace, traces: Path) -> None:
    table = table_of(roofline.VIEW, trace, ViewRequest())
    ours = table.groupby(["name", "shapes"])["time_ns"].sum()
    expected: Counter[Any] = Counter()
    for row in listed(traces / "oracle/tracelens" / case):
        expected[row.name, roofline.tensors(json.dumps(row.shapes))] += row.time_ns
    for key, time_ns in expected.items():
        assert ours[key] == pytest.approx(time_ns, rel=1e-5, abs=5), key  # TraceLens adds floats in µs
