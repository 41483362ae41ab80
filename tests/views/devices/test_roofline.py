"""The views roofline, gemm and model_flops on traces computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.cli.main import main
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import model_flops, roofline
from perfkit_core.views.merging import table_of
from tests.support.events import device, host, trace

H100 = Device("cuda:0", "NVIDIA H100 80GB HBM3")
TYPES = '["c10::BFloat16","c10::BFloat16"]'
PRODUCT: dict[str, Any] = {"shapes": "[[1024,1024],[1024,2048]]", "dtypes": TYPES}
FLOPS = 2 * 1024 * 1024 * 2048
BYTES = 2 * (1024 * 1024 + 1024 * 2048 + 1024 * 2048)


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


def test_times_rates_and_limits_of_a_product() -> None:
    table = table_of(roofline.VIEW, of_h100(products()), ViewRequest())
    (row,) = table.to_dict("records")
    time_ns = 8000 + 5000  # the union of the first two kernels, and the third
    limit_ns = round(FLOPS / 989.4e12 * 1e9)  # longer than the time of the bytes
    assert limit_ns > BYTES / 3350
    assert (row["name"], row["shapes"], row["type"]) == ("aten::mm", "1024×1024, 1024×2048", "bfloat16")
    assert (row["calls"], row["time_ns"], row["flops"], row["bytes"]) == (2, time_ns, 2 * FLOPS, 2 * BYTES)
    assert (row["limit_ns"], row["above_ns"]) == (2 * limit_ns, time_ns - 2 * limit_ns)
    assert row["tflop_per_s"] == pytest.approx(2 * FLOPS / time_ns / 1000)
    assert row["gb_per_s"] == pytest.approx(2 * BYTES / time_ns)
    assert row["flop_per_byte"] == pytest.approx(FLOPS / BYTES)
    assert row["limit_ratio"] == pytest.approx(2 * limit_ns / time_ns)
    assert (row["bound"], row["peak_tflop_per_s"], row["peak_gb_per_s"]) == ("compute", 989.4, 3350)


def test_an_elementwise_operator_is_bound_by_the_memory() -> None:
    rows = [
        host("aten::add_", "operator", 0, 50, shapes="[[1000,1000],[1000,1000],[]]",
             dtypes='["float","float","Scalar"]'),
        launch(10, 1),
        device("add", "kernel", 100, 9000, 1),
    ]  # fmt: skip
    (row,) = table_of(roofline.VIEW, of_h100(rows), ViewRequest()).to_dict("records")
    assert (row["flops"], row["bytes"], row["bound"]) == (10**6, 12 * 10**6, "memory")
    assert row["limit_ns"] == round(12e6 / 3350)


def test_work_without_known_flops_has_a_row_without_limits() -> None:
    rows = [
        host("own::op", "operator", 0, 50),
        launch(10, 1),
        device("own_kernel", "kernel", 100, 700, 1),
        device("stray", "kernel", 2000, 300),
    ]
    table = table_of(roofline.VIEW, of_h100(rows), ViewRequest()).set_index("name")
    assert table["time_ns"].to_dict() == {"own::op": 700, "(no launch recorded)": 300}
    assert table[["flops", "bytes", "limit_ns", "above_ns", "bound"]].isna().all(axis=None)


def test_without_peaks_the_achieved_rates_remain() -> None:
    unknown = of_h100(products()).with_meta(devices=(Device("cuda:0", "unheard of"),))
    (row,) = table_of(roofline.VIEW, unknown, ViewRequest()).to_dict("records")
    assert row["tflop_per_s"] > 0
    assert pd.isna(row["limit_ns"])
    assert pd.isna(row["limit_ratio"])


@pytest.mark.parametrize("rate", ["memory_gb_per_s = 3350", "matrix_tflop_per_s = { bfloat16 = 989.4 }"])
def test_one_known_peak_gives_no_limit(rate: str) -> None:
    """The unknown limit may be the longer one."""
    request = ViewRequest(peaks=f'[[devices]]\nnames = ["unheard of"]\nsource = "measured"\n{rate}\n')
    unknown = of_h100(products()).with_meta(devices=(Device("cuda:0", "unheard of"),))
    (row,) = table_of(roofline.VIEW, unknown, request).to_dict("records")
    assert pd.isna([row["limit_ns"], row["above_ns"], row["limit_ratio"], row["bound"]]).all()
    assert pd.notna([row["peak_gb_per_s"], row["peak_tflop_per_s"]]).sum() == 1
    assert row["tflop_per_s"] > 0


def test_operators_without_flops_need_no_peak_of_their_type() -> None:
    rows = [
        host("aten::copy_", "operator", 0, 50, shapes="[[1000],[1000],[]]", dtypes='["int8","int8",""]'),
        launch(10, 1),
        device("copy", "kernel", 100, 90, 1),
    ]
    (row,) = table_of(roofline.VIEW, of_h100(rows), ViewRequest()).to_dict("records")
    assert (row["flops"], row["bytes"], row["limit_ns"], row["bound"]) == (0, 2000, round(2000 / 3350), "memory")


def test_a_device_without_description_is_taken_for_the_only_described_model() -> None:
    """ROCm numbers the devices of kernels from the number of CPU sockets, and describes only device 0."""
    elsewhere = [row | {"device": "cuda:2"} if row.get("device") == "cuda:0" else row for row in products()]
    (row,) = table_of(roofline.VIEW, of_h100(elsewhere), ViewRequest()).to_dict("records")
    assert row["peak_tflop_per_s"] == 989.4
    both = of_h100(elsewhere).with_meta(devices=(H100, Device("cuda:1", "unheard of")))
    assert table_of(roofline.VIEW, both, ViewRequest())["peak_tflop_per_s"].isna().all()


def test_tf32_kernels_have_the_peak_of_tf32() -> None:
    def peak(kernel: str) -> float:
        rows = [
            host("aten::mm", "operator", 0, 50, shapes="[[64,64],[64,64]]", dtypes='["float","float"]'),
            launch(10, 1),
            device(kernel, "kernel", 100, 700, 1),
        ]
        return float(table_of(roofline.VIEW, of_h100(rows), ViewRequest())["peak_tflop_per_s"].iloc[0])

    assert peak("sm80_xmma_gemm_f32f32_tf32f32_f32_tn") == 494.7
    assert peak("ampere_sgemm_64x64_tn") == 67


@pytest.mark.parametrize("place", range(3))
def test_tf32_is_decided_by_any_kernel_of_the_operator(place: int) -> None:
    """A memset or a cast before or after the kernel changes nothing, also on another stream or device."""
    work = [
        device("s1688gemm", "kernel", 1000, 700, 1),
        device("Memset (Device)", "memset", 900, 5, 2) | {"device": "cuda:1"},
        device("direct_copy_kernel", "kernel", 950, 40, 3, stream=8),
    ]
    work = [row | {"start_ns": 900 + 1000 * number} for number, row in enumerate(work[place:] + work[:place])]
    rows = [
        host("aten::mm", "operator", 0, 500, shapes="[[64,64],[64,64]]", dtypes='["float","float"]'),
        *(launch(10 + 20 * number, number) for number in (1, 2, 3)),
        *work,
    ]
    found = of_h100(rows).with_meta(devices=(H100, Device("cuda:1", "unheard of")))
    (row,) = table_of(roofline.VIEW, found, ViewRequest()).to_dict("records")
    assert (row["calls"], row["flops"], row["bytes"], row["peak_tflop_per_s"]) == (1, 2 * 64**3, 3 * 64**2 * 4, 494.7)
    (row,) = model_flops.table(found, ViewRequest()).to_dict("records")
    assert row["model_flops"] == 2 * 64**3
    assert row["mfu_ratio"] == pytest.approx(2 * 64**3 / 494.7e3 / row["step_ns"] / 2)
    by_device = table_of(roofline.VIEW, found, ViewRequest(by=("device",))).set_index("device")
    assert by_device["calls"].to_dict() == {"cuda:0": 1, "cuda:1": 1}
    assert by_device["flops"].to_dict() == {"cuda:0": 2 * 64**3, "cuda:1": 0}


def nested(*shapes: str) -> list[dict[str, Any]]:
    """Return operators aten::mm, each inside the previous one, with these shapes of their inputs. A kernel is launched
    in the innermost."""
    count = len(shapes)
    operators = [
        host("aten::mm", "operator", 10 * number, 1000 - 20 * number, shapes=each, dtypes='["float","float"]')
        for number, each in enumerate(shapes)
    ]
    return [*operators, launch(10 * count, 1), device("gemm", "kernel", 2000, 700, 1)]


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
    (row,) = table_of(roofline.VIEW, of_h100(nested(*shapes)), ViewRequest()).dropna(subset="flops").to_dict("records")
    assert (row["calls"], row["flops"], row["time_ns"]) == (1, flops, 700)


def test_autograd_nodes_have_no_flops() -> None:
    values: dict[str, Any] = {"shapes": "[[1000],[1000]]", "dtypes": '["float","float"]'}
    rows = [
        host("MulBackward0", "operator", 0, 100, shapes="[[1000]]", dtypes='["float"]'),
        host("aten::mul", "operator", 10, 20, **values),
        host("aten::mul", "operator", 40, 20, **values),
        host("AddBackward0", "operator", 200, 10, shapes="[[1000]]", dtypes='["float"]'),
    ]
    names = {"MulBackward0": "multiply_grad", "AddBackward0": "add_grad", "aten::mul": "multiply"}
    (row,) = table_of(roofline.VIEW, trace(rows, names=names.get).with_meta(framework="torch"), ViewRequest()).to_dict(
        "records"
    )
    assert (row["name"], row["calls"], row["flops"], row["bytes"]) == ("aten::mul", 2, 2000, 24_000)


def test_a_recomputation_that_was_stopped_does_not_count() -> None:
    """The third product has its inputs saved, but nothing that computes: the checkpoint needs no more tensors."""

    def product(start: int, phase: str, *inside: str) -> list[dict[str, Any]]:
        rows = [host("aten::mm", "operator", start, 90, phase=phase, sequence=start, **PRODUCT)]
        return rows + [host(name, "operator", start + 10 * n, 5, phase=phase) for n, name in enumerate(inside, 1)]

    rows = [
        *product(0, "forward", "aten::resolve_conj"),
        *product(100, "backward", "aten::detach", "aten::resolve_conj"),
        *product(200, "backward", "aten::detach"),
    ]
    (row,) = model_flops.table(trace(rows).with_meta(framework="torch"), ViewRequest()).to_dict("records")
    assert (row["model_flops"], row["hardware_flops"]) == (FLOPS, 2 * FLOPS)


@pytest.mark.parametrize(("duration", "known"), [(400, True), (900, False)])
def test_utilisation_is_withheld_if_too_many_products_have_no_flops(duration: int, known: bool) -> None:
    rows = [
        *products(),
        host("aten::conv2d", "operator", 600, 90),
        host("aten::cudnn_convolution", "operator", 610, 70),
        launch(620, 4),
        launch(640, 5),
        device("scudnn", "kernel", 30_000, duration - 100, 4),
        device("scudnn", "kernel", 31_000, 100, 5),
    ]
    found = trace(rows, names={"aten::conv2d": "conv", "aten::cudnn_convolution": "conv"}.get)
    (row,) = model_flops.table(found.with_meta(framework="torch", devices=(H100,)), ViewRequest()).to_dict("records")
    assert (row["model_flops"], row["uncounted_calls"]) == (2 * FLOPS, 1)
    assert row["uncounted_ratio"] == pytest.approx(duration / (15_000 + duration))
    assert [pd.notna(row.get(name)) for name in ("mfu_ratio", "hfu_ratio", "missing")] == [known, known, not known]


def test_products_without_flops_on_the_host() -> None:
    """Nested operators count once. A product around one with known FLOPs is not unknown."""
    rows = [
        host("aten::linear", "operator", 0, 100),
        host("aten::mm", "operator", 10, 80, **PRODUCT),
        host("autograd::engine::evaluate_function: MmBackward0", "operator", 200, 400),
        host("MmBackward0", "operator", 210, 380),
        host("aten::mm", "operator", 220, 50),
        host("aten::mm", "operator", 300, 50),
    ]
    names = {"aten::linear": "linear", "aten::mm": "matmul", "MmBackward0": "matmul_grad"}
    (row,) = model_flops.table(trace(rows, names=names.get).with_meta(framework="torch"), ViewRequest()).to_dict(
        "records"
    )
    assert (row["model_flops"], row["uncounted_calls"], row["uncounted_ratio"]) == (FLOPS, 2, 100 / 500)


def test_products_by_size() -> None:
    (row,) = table_of(roofline.GEMM_VIEW, of_h100(products()), ViewRequest()).to_dict("records")
    assert (row["m"], row["n"], row["k"], row["batch"], row["type"]) == (1024, 2048, 1024, 1, "bfloat16")
    assert (row["calls"], row["flops"]) == (2, 2 * FLOPS)


def test_utilisation_of_a_step_with_and_without_recomputation() -> None:
    forward = [host("aten::mm", "operator", 100, 50, sequence=5, phase="forward", **PRODUCT), launch(110, 1)]
    again = [host("aten::mm", "operator", 300, 50, sequence=9, phase="backward", **PRODUCT), launch(310, 2)]
    gradient = [host("aten::mm", "operator", 500, 50, phase="backward", **PRODUCT), launch(510, 3)]
    kernels = [device("gemm", "kernel", 1000 * number, 900, number) for number in (1, 2, 3)]
    rows = [host("step", "step", 0, 10_000, step=1), *forward, *again, *gradient, *kernels]
    (row,) = model_flops.table(of_h100(rows), ViewRequest()).to_dict("records")
    assert (row["steps"], row["step_ns"]) == (1, 10_000)
    assert (row["model_flops"], row["hardware_flops"]) == (2 * FLOPS, 3 * FLOPS)
    assert row["mfu_ratio"] == pytest.approx(2 * FLOPS / 989.4e12 / 10e-6)
    assert row["hfu_ratio"] == pytest.approx(3 * FLOPS / 989.4e12 / 10e-6)
    assert row["tflop_per_s"] == pytest.approx(2 * FLOPS / 10_000 / 1000)


def test_utilisation_is_a_share_of_all_devices_of_the_rank() -> None:
    second = [*products()[:-1], products()[-1] | {"device": "cuda:1"}]
    devices = (H100, Device("cuda:1", H100.name))
    (one,) = model_flops.table(of_h100(products()), ViewRequest()).to_dict("records")
    (two,) = model_flops.table(of_h100(second).with_meta(devices=devices), ViewRequest()).to_dict("records")
    assert (one["devices"], two["devices"]) == (1, 2)
    assert two["mfu_ratio"] == pytest.approx(2 * FLOPS / 989.4e12 / 100e-6 / 2)
    assert one["mfu_ratio"] == pytest.approx(2 * two["mfu_ratio"])


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
