"""Peak rates of devices: the built-in table, files of users, and the types of rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.flops.arguments import SIZES
from perfkit_core.plugins.flops.peaks import TF32, _built_in, peaks_of, read_peaks, shows_tf32
from perfkit_core.trace.model.meta import Device


def test_every_device_has_a_source_and_known_types() -> None:
    assert len(_built_in()) >= 50
    for name, peaks in _built_in().items():
        assert name in peaks.names
        assert peaks.source
        assert peaks.product
        assert {*peaks.matrix_tflop_per_s, *peaks.vector_tflop_per_s} <= {*SIZES, TF32}
        for kind, rate in peaks.vector_tflop_per_s.items():  # matrix units are not slower
            assert peaks.matrix_tflop_per_s.get(kind, rate) >= rate, (name, kind)


def test_rates_by_number_type() -> None:
    peaks = peaks_of(Device("cuda:0", "NVIDIA H100 80GB HBM3"))
    assert peaks is not None
    assert peaks.flops_per_s("bfloat16", matrix=True) == 989.4e12
    assert peaks.flops_per_s("float32", matrix=True) == 67e12  # without TF32, vector units compute
    assert peaks.flops_per_s("float32", matrix=True, tf32=True) == 494.7e12
    assert peaks.flops_per_s("float32", matrix=False, tf32=True) == 67e12
    assert peaks.flops_per_s("int64", matrix=False) is None
    assert peaks.flops_per_s(None, matrix=True) is None


def test_a_part_of_a_device_has_no_peaks() -> None:
    name = "AMD Instinct MI300X VF"
    assert peaks_of(Device("cuda:0", name, properties={"numSms": 304})) is not None
    assert peaks_of(Device("cuda:0", name, properties={"numSms": 38})) is None
    assert peaks_of(Device("cuda:0", "unheard of")) is None


def test_a_file_adds_devices_by_name_and_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(
        '[[devices]]\nnames = ["cpu", "Own GPU"]\nsource = "measured"\nmemory_gb_per_s = 40\n'
        "vector_tflop_per_s = { float32 = 1.5 }\n"
    )
    text = read_peaks(path)
    for device in (Device("cpu"), Device("cuda:1", "Own GPU")):
        peaks = peaks_of(device, text)
        assert peaks is not None
        assert peaks.flops_per_s("float32", matrix=True) == 1.5e12
    assert peaks_of(Device("cuda:0", "NVIDIA H100 80GB HBM3"), text) is not None


@pytest.mark.parametrize(
    "text",
    ["[[devices]", "devices = 3", '[[devices]]\nnames = ["x"]', '[[devices]]\nnames = ["x"]\nsource = "y"\nspeed = 3'],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_peaks(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_names_of_kernels_show_tf32() -> None:
    assert shows_tf32("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32")
    assert shows_tf32("cutlass_80_tensorop_s1688gemm_128x128")
    assert not shows_tf32("ampere_sgemm_128x64_tn")
    assert not shows_tf32("cutlass_80_tensorop_s16816gemm_bf16")
