"""Live events that are read by columns as text equal the events that are read one by one, in every cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_torch import live_events, on_trace_ready  # noqa: E402
from tests.support.torch_activities import Activity, Results, plain_columns  # noqa: E402
from tests.support.torch_models import MODELS, train  # noqa: E402


def columns(results: Any, with_flops: bool = False) -> pa.Table:
    return on_trace_ready.read(live_events.from_activities(results, with_flops)).recorded(in_order=False).columns


def assert_equal(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stacks", [False, True])
def test_a_training(model: str, stacks: bool) -> None:
    """The recording has shapes, memory and FLOPs, and with stacks also Python functions and layers."""
    both: list[tuple[pa.Table, pa.Table]] = []

    def compare(profiler: Any) -> None:
        results = profiler.profiler.kineto_results
        both.append((columns(results, with_flops=True), plain_columns(results, with_flops=True)))

    train(model, compare, record_shapes=True, profile_memory=True, with_stack=stacks, with_flops=True)
    ((found, expected),) = both
    assert_equal(found, expected)
    kinds = set(found["kind"].to_pylist())
    assert {"operator", "memory", "step", "annotation", "optimizer"} <= kinds
    assert ("python" in kinds) == stacks
    assert found["flops"].null_count < found.num_rows > found["shapes"].null_count


def test_names_and_arguments_of_any_text() -> None:
    names = ['a "quoted" one', "back\\slash", "naïve – 層", "tab\tand\nline", "}},{", ""]
    with torch.profiler.profile(record_shapes=True) as profiler:
        for name in names:
            with torch.profiler.record_function(name, name):
                torch.ops.aten._test_string_default(torch.ones(3))
    results = profiler.profiler.kineto_results
    found = columns(results)
    assert_equal(found, plain_columns(results))
    assert [name for name in found["name"].to_pylist() if name in names] == names


def test_collectives(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with torch.profiler.profile(record_shapes=True) as profiler:
            torch.distributed.all_reduce(torch.ones(8))
    finally:
        torch.distributed.destroy_process_group()
    results = profiler.profiler.kineto_results
    found = columns(results)
    assert_equal(found, plain_columns(results))
    assert "communication" in found["kind"].to_pylist()


LAUNCH = '"cbid": 211, "correlation": 77'
KERNEL = '"device": 1, "context": 1, "stream": 7, "correlation": 77, "grid": [1, 1, 1]'
DEVICE_RUN = (
    Activity(("cpu_op", "aten::mm", 10, 11, 1000, 50, 5, 0, '"Ev Idx": 0')),
    Activity(("cuda_runtime", "cudaLaunchKernel", 10, 11, 1010, 20, 77, 5, LAUNCH)),
    Activity(("kernel", "gemm<float>", 1, 7, 1100, 300, 77, 5, KERNEL)),
    Activity(("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1, 7, 1500, 80, 78, 0, '"stream": 7, "bytes": 4096')),
    Activity(("overhead", "Command Buffer Full", -1, 0, 1600, 10, 0, 0, "")),
    Activity(("cpu_instant_event", "[memory]", 10, 11, 1020, 9, 0, 0, '"Bytes": 64, "Device Type": 1, "Device Id": 1')),
)  # fmt: skip


def test_a_device() -> None:
    """Launches and device work have the metadata that CUDA records. They are written by hand, so no device is
    needed."""
    found = columns(Results(DEVICE_RUN))
    assert_equal(found, plain_columns(Results(DEVICE_RUN)))
    assert found["correlation"].to_pylist() == [None, 77, 77, 78, 0, None]
    assert found["external"].to_pylist() == [5, 5, 5, None, None, None]
    assert found["stream"].to_pylist() == [None, None, 7, 7, None, None]
    assert found["device"].to_pylist() == ["cpu", "cpu", "cuda:1", "cuda:1", "cpu", "cuda:1"]
    assert found["tid"].to_pylist() == [11, 11, None, None, 0, 11]
    assert found["dur_ns"].to_pylist() == [50, 20, 300, 80, 10, 0]
    assert found["bytes"].to_pylist() == [None, None, None, 4096, None, 64]


@pytest.mark.parametrize(
    "broken", ['"Note": "say "hi""', '"a": 1}, {"b": 2', '"a": ', '"a": 1,', '"a": "\n"', "}", " "]
)
def test_metadata_that_is_no_json_is_kept_as_text(broken: str) -> None:
    """Only the event with the invalid metadata is affected, even if the metadata looks like several events."""
    run = (*DEVICE_RUN, Activity(("cpu_op", "aten::add", 10, 11, 2000, 5, 6, 0, broken)), *DEVICE_RUN)
    found = columns(Results(run))
    assert_equal(found, plain_columns(Results(run)))
    assert (found["args"].to_pylist()[6] or "").startswith('{"metadata_json":') == bool(broken.strip())
    assert found["external"].to_pylist()[6] == 6


@pytest.mark.parametrize("value", ["inf", "-nan", "1e400"])
def test_a_number_that_json_does_not_have_is_kept_as_text(value: str) -> None:
    """The result is the same as from a file, and the correlation ids keep their columns."""
    kernel = Activity(("kernel", "gemm", 1, 7, 1, 1, 5, 3, f'"stream": 7, "correlation": 5, "blocks": {value}'))
    (row,) = columns(Results((kernel,))).to_pylist()
    assert (row["stream"], row["correlation"], row["external"]) == (7, 5, 3)
    assert row["args"] == f'{{"blocks":"{value}"}}'


def test_an_operator_says_itself_which_it_is() -> None:
    run = (Activity(("cpu_op", "aten::mm", 10, 11, 1, 1, 5, 0, '"External id": 4, "note": 1')),)
    assert columns(Results(run))["external"].to_pylist() == [5]


def test_nothing_recorded() -> None:
    assert columns(Results(())).num_rows == 0


def test_unsigned_correlations_and_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "_BATCH", 5)
    run = (Activity(("cuda_runtime", "cudaFree", 10, 11, 1, 1, 2**32 - 1, 0, "")), *DEVICE_RUN * 3)
    assert_equal(columns(Results(run)), plain_columns(Results(run)))
