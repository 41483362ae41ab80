"""The handler stores every cycle for each way to use the profiler, and never disturbs the training."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfkit_core.errors import CaptureError
from perfkit_core.recording.environment import environment_rank

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.advice.matrix_products import TensorCores, tensor_cores  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.trace.model.trace import Trace, concat_traces  # noqa: E402
from perfkit_core.trace.storage.store import INCOMPLETE_MARK  # noqa: E402
from perfkit_torch import compile_logs, live_events, on_trace_ready, trace_handler  # noqa: E402
from tests.support.torch_models import MODELS, train  # noqa: E402

STEP = "ProfilerStep#"


def steps_of(trace: Trace) -> list[int]:
    return trace.ints("step")[trace.rows("kind", "step")].tolist()


def test_a_loader_that_has_ended_is_no_step(tmp_path: Path) -> None:
    """After the last iteration the loop calls its loader once more. The step that was opened for this call does not
    take place."""
    train("mlp", trace_handler(tmp_path), steps=7)
    trace = load(tmp_path)
    assert "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" in trace.codes("name").values
    assert steps_of(trace) == [2, 3, 6]
    assert "partial-step" not in [finding.code for finding in trace.quality]
    assert "empty-last-step" in [finding.code for finding in trace.quality]


def test_start_stop_without_a_schedule(tmp_path: Path) -> None:
    profiler = torch.profiler.profile(on_trace_ready=trace_handler(tmp_path))
    profiler.start()
    torch.ones(3).sum()
    profiler.stop()
    trace = load(tmp_path)
    assert "aten::sum" in trace.codes("name").values
    assert "no-steps" in [finding.code for finding in trace.quality]


def test_properties_of_devices_have_the_names_of_trace_files() -> None:
    h100 = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80, major=9, minor=0, warp_size=32)
    cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: 1,
        get_device_properties=lambda _: h100,
    )  # fmt: skip
    (device,) = on_trace_ready._devices(SimpleNamespace(cuda=cuda))
    assert (device.id, device.memory_bytes) == ("cuda:0", 80)
    assert device.properties == {"computeMajor": 9, "computeMinor": 0, "warpSize": 32}
    assert tensor_cores([device]) == TensorCores("NVIDIA H100 80GB HBM3", True, True, True)


def test_steps_without_a_schedule_are_explained(tmp_path: Path) -> None:
    with torch.profiler.profile(on_trace_ready=trace_handler(tmp_path)) as profiler:
        torch.ones(3).sum()
        profiler.step()
    (finding,) = (finding for finding in load(tmp_path).quality if finding.code == "no-steps")
    assert "the profiler has no schedule, so its step() marked no training steps" in finding.message


def test_a_handler_without_torch_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CaptureError, match=r'pip install "perfkit\[torch\]"'):
        trace_handler(tmp_path)


def test_callable_schedule_cut_off_in_the_middle(tmp_path: Path) -> None:
    """A loop that ends within an active window keeps its recorded steps. The step that remains open is empty."""
    action = torch.profiler.ProfilerAction
    with torch.profiler.profile(
        schedule=lambda step: action.RECORD, on_trace_ready=trace_handler(tmp_path)
    ) as profiler:
        for _ in range(3):
            torch.ones(3).sum()
            profiler.step()
    trace = load(tmp_path)
    assert steps_of(trace) == [0, 1, 2]
    assert "partial-step" not in [finding.code for finding in trace.quality]
    assert "empty-last-step" in [finding.code for finding in trace.quality]


def test_unreadable_texts_of_the_compiler_lose_no_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(names: object) -> None:
        raise RecursionError

    monkeypatch.setattr(compile_logs, "in_process", raising)
    train("mlp", trace_handler(tmp_path))
    assert not (tmp_path / INCOMPLETE_MARK).exists()
    assert "aten::addmm" in load(tmp_path).codes("name").values
    assert "the compiled graphs could not be read" in caplog.text


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stacks", [False, True])
def test_live_equals_the_exported_file(model: str, stacks: bool, tmp_path: Path) -> None:
    """Every cell from the live profiler equals the cell from the file that torch exports."""
    exported = tmp_path / "own.json"
    handler = trace_handler(tmp_path, also=[lambda profiler: profiler.export_chrome_trace(str(exported))])
    train(model, handler, record_shapes=True, profile_memory=True, with_stack=stacks)
    live, file = load(handler.written[0]).events, load(exported).events
    assert live.num_rows == file.num_rows > 100
    for column in live.column_names:
        if column != "name":  # torch's file changes quotes and non-ASCII characters in names
            assert live[column].to_pylist() == file[column].to_pylist(), column


@pytest.mark.parametrize("model", MODELS)
def test_fallback_extraction_agrees(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``trace_activities``, ``events()`` gives the same operators, times, parents, steps and phases."""
    both: list[Trace] = []

    def extract_twice(profiler: Any) -> None:
        both.append(on_trace_ready.take(profiler, environment_rank()).finish())
        monkeypatch.setattr(live_events, "has_activities", lambda results: False)
        both.append(on_trace_ready.take(profiler, environment_rank()).finish())

    train(model, extract_twice, record_shapes=True, profile_memory=True, with_flops=True)
    first, second = (trace.to_pandas() for trace in both)
    columns = ("name", "kind", "category", "start_ns", "dur_ns", "self_ns", "tid", "step", "phase", "sequence",
               "bytes", "flops")  # fmt: skip
    keys = ["start_ns", "dur_ns", "name", "bytes"]
    for column in columns:
        left, right = (t.sort_values(keys, kind="stable")[column].astype(object) for t in (first, second))
        assert left.where(left.notna(), None).tolist() == right.where(right.notna(), None).tolist(), column


def test_flops_are_recorded_on_request(tmp_path: Path) -> None:
    train("mlp", trace_handler(tmp_path), with_flops=True)
    trace = load(tmp_path)
    assert trace.ints("flops")[trace.rows("name", "aten::addmm")].max() == 2 * 8 * 16 * 32


def test_parents_stay_within_their_cycle(tmp_path: Path) -> None:
    """In a trace that joins two cycles, a parent and its children are in the same cycle."""
    handler = trace_handler(tmp_path)
    train("mlp", handler, steps=8)
    parts = [load(path) for path in handler.written]
    joined = concat_traces(parts)
    parent = joined.ints("parent")
    split = len(parts[0])
    assert (parent[:split] < split).all()
    assert ((parent[split:] == -1) | (parent[split:] >= split)).all()


@pytest.mark.live
def test_the_option_that_disables_memory_events_is_kept(tmp_path: Path) -> None:
    """A profiler of all threads records no memory events. The option has no attribute in torch's configuration."""
    config = torch._C._profiler._ExperimentalConfig
    for value in (False, True):
        folder = tmp_path / str(value)
        with torch.profiler.profile(
            profile_memory=True,
            experimental_config=config(profile_all_threads=value),
            on_trace_ready=trace_handler(folder),
        ):
            torch.ones(8)
        assert load(folder).meta.options.get("profile_all_threads", False) is value
