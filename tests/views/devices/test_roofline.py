"""The views roofline, gemm and model_flops on traces computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.cli.main import main
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import model_flops, roofline
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

H100 = Device("cuda:0", "NVIDIA H100 80GB HBM3")
TYPES = '["c10::BFloat16","c10::BFloat16"]'
PRODUCT: dict[str, Any] = {"shapes": "[[1024,1024],[1024,2048]]", "dtypes": TYPES}
SQUARE = ("[[64,64],[64,64]]", '["float","float"]')


def launch(start: int, correlation: int) -> dict[str, Any]:
    return host("cudaLaunchKernel", "runtime", start, 10, correlation=correlation)


def of_h100(rows: list[dict[str, Any]]) -> Trace:
    return trace(rows, names={"aten::add_": "add"}.get).with_meta(framework="torch", devices=(H100,))


def products() -> list[dict[str, Any]]:
    """Two products. The kernels of the first overlap, and the second has one kernel."""
    return [
        host("step", "step", 0, 100_000, step=1),
        host("aten::linear", "operator", 100, 200, shapes="[[1024,1024],[2048,1024]]", dtypes=TYPES),
        host("aten::mm", "operator", 110, 180, **PRODUCT),
        launch(120, 1),
        launch(150, 2),
        host("aten::mm", "operator", 400, 100, **PRODUCT),
        launch(410, 3),
        device("gemm", "kernel", 1000, 6000, 1),
        device("splitk_reduce", "kernel", 5000, 4000, 2),
        device("gemm", "kernel", 20_000, 5000, 3),
    ]


def op(name: str, start: int, dur: int, shapes: str = "", dtypes: str = "", **more: Any) -> dict[str, Any]:
    texts = {"shapes": shapes or None, "dtypes": dtypes or None}
    return host(name, "operator", start, dur, **texts, **more)


UNKNOWN = (Device("cuda:0", "unheard of"),)


def peaks(rates: str) -> str:
    return f'[[devices]]\nnames = ["unheard of"]\nsource = "measured"\n{rates}\n'


def test_roofline() -> None:
    """The two products take the union of the first two kernels (8000), and the third (5000). Their limit is the time of
    their FLOPs, 2 * 1024 * 1024 * 2048 at 989.4 TFLOP/s, which is longer than the time of their bytes, 2 *
    (1024 * 1024 + 2 * 1024 * 2048) at 3350 GB/s. ROCm numbers the devices of kernels from the number of CPU sockets,
    and describes only device 0."""
    product = of_h100(products())
    elementwise = of_h100([
        op("aten::add_", 0, 50, "[[1000,1000],[1000,1000],[]]", '["float","float","Scalar"]'),
        launch(10, 1), device("add", "kernel", 100, 9000, 1),
    ])  # fmt: skip
    own = of_h100([
        op("own::op", 0, 50), launch(10, 1), device("own_kernel", "kernel", 100, 700, 1),
        device("stray", "kernel", 2000, 300),
    ])  # fmt: skip
    copy = of_h100([
        op("aten::copy_", 0, 50, "[[1000],[1000],[]]", '["int8","int8",""]'),
        launch(10, 1), device("copy", "kernel", 100, 90, 1),
    ])  # fmt: skip
    elsewhere = of_h100([row | {"device": "cuda:2"} if row["device"] == "cuda:0" else row for row in products()])
    values = ("[[1000],[1000]]", '["float","float"]')
    nodes = trace([
        op("MulBackward0", 0, 100, "[[1000]]", '["float"]'),
        op("aten::mul", 10, 20, *values), op("aten::mul", 40, 20, *values),
        op("AddBackward0", 200, 10, "[[1000]]", '["float"]'),
    ], names={"MulBackward0": "multiply_grad", "AddBackward0": "add_grad", "aten::mul": "multiply"}.get)  # fmt: skip
    cases = {
        "two products, of which the kernels of the first overlap": (product, {}),
        "an elementwise operator is bound by the memory": (elementwise, {}),
        "work without known FLOPs has a row without limits": (own, {}),
        "without peaks, the achieved rates remain": (product.with_meta(devices=UNKNOWN), {}),
        "one known peak gives no limit, since the unknown one may be longer: memory": (
            product.with_meta(devices=UNKNOWN), {"peaks": peaks("memory_gb_per_s = 3350")}
        ),
        "or computation": (
            product.with_meta(devices=UNKNOWN), {"peaks": peaks("matrix_tflop_per_s = { bfloat16 = 989.4 }")}
        ),
        "operators without FLOPs need no peak of their type": (copy, {}),
        "a device without description is taken for the only described model": (elsewhere, {}),
        "but not for one of two": (elsewhere.with_meta(devices=(H100, Device("cuda:1", "unheard of"))), {}),
        "autograd nodes have no FLOPs": (nodes.with_meta(framework="torch"), {}),
    }  # fmt: skip
    tables = {name: view_table(roofline.VIEW, found, **request) for name, (found, request) in cases.items()}
    tables["products by size"] = view_table(roofline.GEMM_VIEW, product)
    check_tables("views/roofline.txt", tables)


@pytest.mark.parametrize(
    ("kernel", "peak"), [("sm80_xmma_gemm_f32f32_tf32f32_f32_tn", 494.7), ("ampere_sgemm_64x64_tn", 67)]
)
def test_tf32_kernels_have_the_peak_of_tf32(kernel: str, peak: float) -> None:
    found = of_h100([op("aten::mm", 0, 50, *SQUARE), launch(10, 1), device(kernel, "kernel", 100, 700, 1)])
    assert view_rows(roofline.VIEW, found, "peak_tflop_per_s") == [(peak,)]


@pytest.mark.parametrize("place", range(3))
def test_tf32_is_decided_by_any_kernel_of_the_operator(place: int) -> None:
    """A memset or a cast before or after the kernel changes nothing, also on another stream or device."""
    work = [
        device("s1688gemm", "kernel", 1000, 700, 1),
        device("Memset (Device)", "memset", 900, 5, 2) | {"device": "cuda:1"},
        device("direct_copy_kernel", "kernel", 950, 40, 3, stream=8),
    ]
    work = [row | {"start_ns": 900 + 1000 * number} for number, row in enumerate(work[place:] + work[:place])]
    launches = [launch(10 + 20 * number, number) for number in (1, 2, 3)]
    found = of_h100([op("aten::mm", 0, 500, *SQUARE), *launches, *work])
    found = found.with_meta(devices=(H100, Device("cuda:1", "unheard of")))
    columns, flops = "calls flops bytes peak_tflop_per_s", 2 * 64**3
    for view in (roofline.VIEW, roofline.GEMM_VIEW):
        assert view_rows(view, found, columns) == [(1, flops, 3 * 64**2 * 4, 494.7)]
    ((counted, ratio, step_ns),) = view_rows(model_flops.VIEW, found, "model_flops mfu_ratio step_ns")
    assert (counted, ratio) == (flops, pytest.approx(flops / 494.7e3 / step_ns / 2))
    by_device = view_rows(roofline.VIEW, found, "device calls flops", by=("device",))
    assert sorted(by_device) == [("cuda:0", 1, flops), ("cuda:1", 1, 0)]


@pytest.mark.parametrize(
    ("shapes", "flops"),
    [
        (("[[4,5],[5,2]]", "[[4,5],[5,2]]"), 80),  # a re-dispatch
        (("[[4,5],[5,2]]", "[[12,5],[5,2]]"), 240),  # vmap: the inner operator has the mapped dimension
        (("[[4,5],[5,2]]", "[[4,5],[5,2]]", "[[12,5],[5,2]]"), 240),
        (("[[4,5],[5,8]]", "[[4,5],[5,2]]"), 80),  # a distributed tensor: the inner operator has a shard
        (("[[4,5],[5,2]]", "[[]]"), 80),  # the FLOPs of the inner operator are unknown
    ],
)
def test_flops_are_those_of_the_operator_that_computes(shapes: tuple[str, ...], flops: int) -> None:
    """Each operator lies inside the previous one. A kernel is launched in the innermost."""
    types = '["float","float"]'
    nested = [op("aten::mm", 10 * number, 1000 - 20 * number, each, types) for number, each in enumerate(shapes)]
    found = of_h100([*nested, launch(10 * len(shapes), 1), device("gemm", "kernel", 2000, 700, 1)])
    (row,) = [row for row in view_rows(roofline.VIEW, found, "flops calls time_ns") if row[0]]
    assert row == (flops, 1, 700)


def test_utilisation() -> None:
    """Nested operators count once. A product around one with known FLOPs is not unknown. Utilisation is a share of all
    devices of the rank."""

    def product(start: int, dur: int, phase: str, *inside: str, **more: Any) -> list[dict[str, Any]]:
        rows = [op("aten::mm", start, dur, **PRODUCT, phase=phase, **more)]
        return rows + [op(name, start + 10 * n, 5, phase=phase) for n, name in enumerate(inside, 1)]

    step = [host("step", "step", 0, 10_000, step=1), *(launch(200 * n - 90, n) for n in (1, 2, 3))]
    step += [device("gemm", "kernel", 1000 * n, 900, n) for n in (1, 2, 3)]
    recomputed = [*product(100, 50, "forward", sequence=5), *product(300, 50, "backward", sequence=9)]
    stopped = trace([
        *product(0, 90, "forward", "aten::resolve_conj", sequence=0),
        *product(100, 90, "backward", "aten::detach", "aten::resolve_conj", sequence=100),
        *product(200, 90, "backward", "aten::detach", sequence=200),
    ])  # fmt: skip
    on_host = trace([
        op("aten::linear", 0, 100), op("aten::mm", 10, 80, **PRODUCT),
        op("autograd::engine::evaluate_function: MmBackward0", 200, 400), op("MmBackward0", 210, 380),
        op("aten::mm", 220, 50), op("aten::mm", 300, 50),
    ], names={"aten::linear": "linear", "aten::mm": "matmul", "MmBackward0": "matmul_grad"}.get)  # fmt: skip
    second = of_h100([*products()[:-1], products()[-1] | {"device": "cuda:1"}])
    check_tables("views/model_flops.txt", {
        name: view_table(model_flops.VIEW, found) for name, found in {
            "a step with a product, its recomputation and its gradient":
                of_h100([*step, *recomputed, *product(500, 50, "backward")]),
            "the third product is a recomputation that was stopped: its inputs are saved, but nothing computes":
                stopped.with_meta(framework="torch"),
            "two of three products on the host have no FLOPs": on_host.with_meta(framework="torch"),
            "a convolution without FLOPs takes 2.6% of the time of products": with_convolution(400),
            "of 5.7%, utilisation is withheld": with_convolution(900),
            "one device": of_h100(products()),
            "two devices": second.with_meta(devices=(H100, Device("cuda:1", H100.name))),
        }.items()
    })  # fmt: skip


def with_convolution(duration: int) -> Trace:
    rows = [
        *products(),
        op("aten::conv2d", 600, 90), op("aten::cudnn_convolution", 610, 70), launch(620, 4), launch(640, 5),
        device("scudnn", "kernel", 30_000, duration - 100, 4), device("scudnn", "kernel", 31_000, 100, 5),
    ]  # fmt: skip
    found = trace(rows, names={"aten::conv2d": "conv", "aten::cudnn_convolution": "conv"}.get)
    return found.with_meta(framework="torch", devices=(H100,))


def test_a_file_of_peaks_gives_limits_to_operators_on_the_host(
    tmp_path: Path, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = tmp_path / "rates.toml"
    rates.write_text('[[devices]]\nnames = ["cpu"]\nsource = "measured"\nvector_tflop_per_s = { float32 = 0.5 }\n')
    source = str(traces / "torch" / "cpu-only-rank34.json.gz")
    assert main(["summary", source, "--view", "gemm", "--format", "csv", "--peaks", str(rates)]) == 0
    table = pd.read_csv(pd.io.common.StringIO(capsys.readouterr().out), comment="#")
    assert (table["peak_tflop_per_s"].dropna() == 0.5).all()
    assert main(["summary", source, "--view", "gemm", "--peaks", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err
