"""The family of each event, computed by hand, and by a simple walk over real recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfkit_core as perfkit
from perfkit_core.base.operators.names import family, kernel_family
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.families import _GENERIC, event_families
from tests.support.events import device, host, trace

NAMES = {"mm": "matmul", "relu_node": "relu_grad", "region": "compiled_region", "to": "cast"}.get


def _families(found: Trace) -> dict[str, str | None]:
    codes = event_families(found)
    names = found.events["name"].to_pylist()
    return {name: codes.values[code] if code >= 0 else None for name, code in zip(names, codes.codes, strict=True)}


def test_worked_out_by_hand() -> None:
    """An event without a name has the family of the nearest named operator above it. For a kernel, the kernel's own
    name takes precedence."""
    rows = [
        host("user's label", "annotation", 0, 1000),
        host("region", "operator", 0, 900),
        host("mm", "operator", 100, 100),
        host("nameless inside mm", "operator", 110, 50),
        host("launch a", "runtime", 120, 5, correlation=1),
        host("launch b", "runtime", 130, 5, correlation=2),
        host("to", "operator", 165, 20),
        host("launch c", "runtime", 170, 5, correlation=3),
        host("nameless in the region", "operator", 300, 50),
        host("relu_node", "operator", 400, 50),
        host("launch d", "runtime", 410, 5, correlation=4),
        host("alone", "operator", 950, 20),
        host("launch e", "runtime", 955, 5, correlation=5),
        device("ampere_sgemm_128x64_nn", "kernel", 200, 10, 1),
        device("a kernel that does not tell", "kernel", 220, 10, 2),
        device("Memcpy DtoD", "memcpy", 240, 10, 3),
        device("kernel of relu_node", "kernel", 500, 10, 4),
        device("kernel of alone", "kernel", 970, 10, 5),
        device("fill", "memset", 990, 10),
        device("kernel without a launch", "kernel", 995, 10),
    ]  # fmt: skip
    assert _families(trace(rows, names=NAMES)) == {
        "user's label": None,
        "region": "compiled_region",
        "mm": "matmul",
        "nameless inside mm": "matmul",
        "launch a": "matmul",
        "launch b": "matmul",
        "to": "cast",
        "launch c": "cast",
        "nameless in the region": "compiled_region",
        "relu_node": "activation",
        "launch d": "activation",
        "alone": None,
        "launch e": None,
        "ampere_sgemm_128x64_nn": "matmul",
        "a kernel that does not tell": "matmul",
        "Memcpy DtoD": "copy",
        "kernel of relu_node": "activation",
        "kernel of alone": None,
        "fill": "creation",
        "kernel without a launch": None,
    }


def test_kernels_that_serve_several_operators() -> None:
    """In a convolution, a matrix product and a layout change belong to the convolution. A convolution inside a product
    stays a convolution. A sum in an activation belongs to the activation."""
    rows = [
        host("conv", "operator", 0, 200),
        host("launch a", "runtime", 10, 5, correlation=1),
        host("launch b", "runtime", 20, 5, correlation=2),
        host("mm", "operator", 50, 50),
        host("launch c", "runtime", 60, 5, correlation=3),
        host("relu", "operator", 300, 50),
        host("launch d", "runtime", 310, 5, correlation=4),
        device("a sgemm", "kernel", 400, 10, 1),
        device("nchwToNhwcKernel", "kernel", 410, 10, 2),
        device("c sgemm", "kernel", 420, 10, 3),
        device("void at::native::vectorized_elementwise_kernel<4, clamp>", "kernel", 430, 10, 4),
        device("d sgemm", "kernel", 440, 10),
    ]
    found = _families(trace(rows, names={"conv": "conv", "mm": "matmul", "relu": "relu"}.get))
    assert [found[row["name"]] for row in rows[-5:]] == ["conv", "layout", "matmul", "activation", "matmul"]


def test_a_kernel_that_copies_for_a_cast_is_the_cast() -> None:
    """Frameworks cast by a copy between types. A copy of the copy engine between places is no cast."""
    kernel = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda({})>"
    rows = [
        host("to", "operator", 0, 100),
        host("copy_", "operator", 10, 80),
        host("launch a", "runtime", 20, 5, correlation=1),
        host("launch b", "runtime", 30, 5, correlation=2),
        host("clone", "operator", 200, 100),
        host("copy_", "operator", 210, 80),
        host("launch c", "runtime", 220, 5, correlation=3),
        device(kernel.format("a"), "kernel", 400, 10, 1),
        device("Memcpy HtoD", "memcpy", 410, 10, 2),
        device(kernel.format("c"), "kernel", 420, 10, 3),
        device(kernel.format("d"), "kernel", 430, 10),
    ]
    found = _families(trace(rows, names={"to": "cast", "copy_": "copy", "clone": "copy"}.get))
    assert [found[row["name"]] for row in rows[-4:]] == ["cast", "copy", "copy", "copy"]


@pytest.mark.parametrize(
    "file",
    ["torch/compile-triton.json.gz", "torch/dlrm-8xv100/rank3.json", "torch/mi300x-resnet-act-checkpoint-steps.json.gz",
     "paddle/gpu-synthetic/gpu1.pb", "paddle/cpu-3.3.1/static_cond_guard/cycle0.pb"],
)  # fmt: skip
def test_a_simple_walk_gives_the_same_families(file: str, traces: Path) -> None:
    """The walk goes from each event up the parents to a named operator, and from device work to its launch."""
    found = perfkit.load(traces / file)
    frame = found.to_pandas()
    columns = {name: frame[name].tolist() for name in ("name", "kind", "parent", "launched_by", "op_name")}
    named = [family(name) if isinstance(name, str) else None for name in columns["op_name"]]

    def above(row: int) -> str | None:
        while row >= 0 and named[row] is None:
            row = columns["parent"][row]
        return named[row] if row >= 0 else None

    def above_named(row: int) -> str | None:
        while row >= 0 and named[row] is None:
            row = columns["parent"][row]
        return above(columns["parent"][row]) if row >= 0 else None

    def of(row: int) -> str | None:
        kind, name = columns["kind"][row], columns["name"][row]
        if kind not in DEVICE_WORK:
            return above(row)
        own = {"memcpy": "copy", "memset": "creation"}.get(kind) or kernel_family(name)
        operator = above(columns["launched_by"][row])
        if kind == "kernel" and own == "copy" and above_named(columns["launched_by"][row]) == "cast":
            return "cast"
        return operator if own is None or operator in _GENERIC.get(own, ()) else own

    codes = event_families(found)
    ours = [codes.values[code] if code >= 0 else None for code in codes.codes]
    assert ours == [of(row) for row in range(len(found))]
    assert len({name for name in ours if name}) > 5
