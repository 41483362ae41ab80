"""Steps of recordings without steps. The windows of recordings made by hand are worked out by hand. The iterations and
periods of real recordings come from the raw events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.base.language.messages import english
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import LoadedProfile
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.steps.inferred_steps import CATEGORY, CODE, SET_APART, WHOLE, with_inferred_steps
from perfkit_core.views.steps.steady_steps import SteadySteps, steady_steps
from tests.support.events import device, host, rows, trace
from tests.support.tables import view_table

Events = list[dict[str, Any]]
LOADER, UPDATE = "enumerate(Loader)", "Optimizer.step#SGD.step"


def load_batch(at: int, dur: int = 10, tid: int = 1) -> Events:
    return [host(LOADER, "dataloader", at, dur, tid=tid, phase="dataloader")]


def update(at: int, dur: int = 10, name: str = UPDATE) -> Events:
    return [host(name, "optimizer", at, dur, phase="optimizer"), host("add_", "operator", at + 1, 2)]


def compute(at: int, dur: int = 40) -> Events:
    return [host("mm", "operator", at, dur // 2), host("relu", "operator", at + dur // 2, dur // 2)]


def backward(at: int, dur: int = 20) -> Events:
    return [host("mm backward", "operator", at, dur, tid=2, phase="backward")]


def iteration(at: int) -> Events:
    """100 ns without a time in which nothing was recorded."""
    return compute(at, 60) + update(at + 60, 40)


def joined(*parts: Events) -> Trace:
    return trace([event for part in parts for event in part])


def windows(steps: SteadySteps) -> list[tuple[int, int]]:
    return list(zip(steps.begin_ns.tolist(), steps.end_ns.tolist(), strict=True))


def apart(steps: SteadySteps) -> list[tuple[str, int, int, int]]:
    return [(each.reason, each.step, each.begin_ns, each.end_ns) for each in steps.set_apart]


def why(events: Trace) -> str:
    (source,) = steady_steps(events).sources
    assert source.kind == "none"
    return english(source.why)


def test_only_a_data_loader() -> None:
    """A batch begins an iteration. The last call finds no batch, and the iteration before it ends there."""
    parts = [load_batch(at) + compute(at + 20) for at in (0, 100, 200, 300)]
    found = steady_steps(joined(*parts, load_batch(400)))
    assert windows(found) == [(0, 100), (100, 200), (200, 300), (300, 400)]
    assert found.steady.all()
    assert (found.sources[0].kind, found.sources[0].basis) == ("inferred", LOADER)
    cut = steady_steps(joined(*parts))
    assert windows(cut)[-1] == (300, 360)  # the last operator ends


@pytest.mark.parametrize(("updates", "number", "counted"), [(4, 0, False), (2, 0, True), (4, 3, True)])
def test_a_step_that_is_the_whole_recording(updates: int, number: int, counted: bool) -> None:
    """A profiler whose step() is never called marks step 0 from its start to its end. It is a step if it holds too few
    updates for iterations, and any other number shows that step() was called."""
    marker = [host(f"step#{number}", "step", 0, 450, step=number)]
    iterations = [iteration(at) for at in range(20, 20 + 100 * updates, 100)]
    recorded = joined(marker, *iterations)
    found = with_inferred_steps(recorded)
    assert (found is recorded) == counted
    assert (WHOLE in [finding.code for finding in found.quality]) != counted
    times = [dur for kind, dur in rows(found, "kind", "dur_ns") if kind == "step"]
    assert times == ([450] if counted else [100] * 4)


def test_three_different_updates_are_no_iterations() -> None:
    """As of the networks of one step that are trained one after the other."""
    several = [host("gelu", "operator", at, 2) for at in range(40, 60, 2)]
    parts = [compute(20) + update(70), several, compute(120) + update(170), compute(220) + update(270)]
    recorded = joined([host("step#0", "step", 0, 300, step=0)], *parts)
    assert with_inferred_steps(recorded) is recorded


def test_two_data_loaders_in_turn() -> None:
    parts = [load_batch(at) + load_batch(at + 10) + compute(at + 30) for at in (0, 100, 200)]
    assert windows(steady_steps(joined(*parts))) == [(0, 100), (100, 200), (200, 270)]


def test_only_an_optimizer() -> None:
    """An update ends an iteration. Clearing gradients is none."""
    clear = [host("Optimizer.zero_grad#SGD.zero_grad", "optimizer", 0, 5, phase="optimizer")]
    found = steady_steps(joined(clear, *(compute(at + 10) + update(at + 60) for at in (0, 100, 200))))
    assert windows(found) == [(0, 70), (70, 170), (170, 270)]
    assert found.number.tolist() == [0, 1, 2]


def test_an_optimizer_without_a_range() -> None:
    parts = [compute(at) + backward(at + 40) + [host("fused_sgd", "operator", at + 70, 10, phase="optimizer")]
             for at in (0, 100, 200)]  # fmt: skip
    assert windows(steady_steps(joined(*parts))) == [(0, 80), (80, 180), (180, 280)]


def test_updates_of_several_optimizers() -> None:
    """Optimizers that follow each other, or update within the backward pass, update once for each forward pass."""
    parts = [
        [host("net", "forward", at, 30, phase="forward"), *update(at + 50), *update(at + 70)] for at in (0, 100, 200)
    ]
    assert windows(steady_steps(joined(*parts))) == [(0, 80), (80, 180), (180, 280)]
    in_turn = [load_batch(at) + compute(at + 10, 20) + update(at + 30) + compute(at + 40, 20) + update(at + 60)
               for at in (0, 100, 200)]  # fmt: skip
    assert windows(steady_steps(joined(*in_turn))) == [(0, 70), (70, 170), (170, 270)]


def test_two_models_trained_in_turn_without_a_loader() -> None:
    parts = [compute(at) + update(at + 40) + [host("conv", "operator", at + 55, 30)] + update(at + 86)
             for at in range(0, 600, 100)]  # fmt: skip
    assert windows(steady_steps(joined(*parts)))[1:] == [(at + 96, at + 196) for at in range(0, 500, 100)]


def test_accumulated_gradients() -> None:
    """Four batches belong to each update."""
    parts = [
        [event for batch in range(4) for event in load_batch(at + 50 * batch) + compute(at + 50 * batch + 10, 20)]
        + update(at + 190)
        for at in (0, 200, 400)
    ]
    assert windows(steady_steps(joined(*parts))) == [(0, 200), (200, 400), (400, 600)]


def test_training_and_validation() -> None:
    """Batches without an update are not steps, and not part of one."""

    def training(at: int) -> Events:
        return load_batch(at) + compute(at + 10) + update(at + 60)

    train = [training(at) for at in (0, 100, 200, 1_000, 1_100, 1_200)]
    validate = [load_batch(at) + compute(at + 10) for at in range(300, 1_000, 100)]
    found = steady_steps(joined(*train, *validate))
    assert windows(found) == [(0, 70), (70, 170), (170, 270), (1_000, 1_070), (1_070, 1_170), (1_170, 1_270)]
    assert apart(found) == [("without_update", -1, 300, 1_000)]


def test_batches_that_are_fetched_in_advance() -> None:
    """Four batches before four updates: the loader does not show where an iteration begins."""
    parts = [
        [
            event
            for k in range(4)
            for event in load_batch(at + 20 * k) + compute(at + 100 + 50 * k) + update(at + 141 + 50 * k, 5)
        ]
        for at in (0, 400)
    ]
    found = steady_steps(joined(*parts))
    assert found.end_ns.tolist() == [146, 196, 246, 296, 546, 596, 646, 696]
    assert found.begin_ns.tolist() == [0, *found.end_ns[:-1].tolist()]
    assert not found.set_apart


def test_ranges_without_a_duration_are_no_steps() -> None:
    assert why(trace([host("it", "annotation", at, 0) for at in range(0, 500, 100)]))


def test_a_loader_that_delivers_in_bursts() -> None:
    """Every third batch waits: the wait belongs to the step, and no step is set apart."""
    times, at = [], 0
    for batch in range(9):
        wait = 300 if batch % 3 == 0 else 10
        times.append((at, wait))
        at += wait + 90
    parts = [load_batch(at, wait) + compute(at + wait) + update(at + wait + 50) for at, wait in times]
    found = steady_steps(joined(*parts))
    ends = [at + wait + 60 for at, wait in times]
    assert windows(found) == list(zip([0, *ends[:-1]], ends, strict=True))
    assert found.steady.all()


def test_a_warm_up_of_25_seconds() -> None:
    second, ms = 10**9, 10**6
    first = [host("cudaMalloc", "runtime", second, 24 * second), host("mm", "operator", 0, 25 * second),
             *update(25 * second, ms)]  # fmt: skip
    rest = [compute(25 * second + at * ms, 8 * ms) + update(25 * second + (at + 8) * ms, ms) for at in (2, 12, 22, 32)]
    found = steady_steps(joined(first, *rest))
    assert found.steady.tolist() == [False, True, True, True, True]
    assert apart(found) == [("warm_up", 0, 0, 25 * second + ms)]
    (start,) = found.set_apart
    assert (start.cause, start.cause_ns) == ("cudaMalloc", 24 * second)
    assert np.diff(found.begin_ns[1:]).tolist() == [10 * ms] * 3


def test_allocation_in_every_step_is_no_warm_up() -> None:
    parts = [[host("hipFree", "runtime", at + 5, 60), *compute(at, 140), *update(at + 140, 60)]
             for at in (0, 200, 400, 600)]  # fmt: skip
    assert steady_steps(joined(*parts)).steady.all()


def test_custom_ranges() -> None:
    """A range that covers the time is an iteration; its numbers are those of the steps. So are several ranges that
    repeat together, from the first of them on."""
    iterations = [[host(f"iter {7 + k}", "annotation", 100 * k, 90), *compute(100 * k + 10)] for k in range(4)]
    found = steady_steps(joined(*iterations))
    assert windows(found) == [(0, 100), (100, 200), (200, 300), (300, 390)]
    assert found.number.tolist() == [7, 8, 9, 10]
    parts = [[host(name, "annotation", at + 30 * k, 28) for k, name in enumerate(("fetch", "compute", "store"))]
             + compute(at + 30, 20) for at in (0, 100, 200)]  # fmt: skip
    found = steady_steps(joined([host("epoch", "annotation", 0, 300)], *parts))
    assert windows(found) == [(0, 100), (100, 200), (200, 288)]
    assert found.sources[0].basis == "fetch"


def test_ranges_that_cover_little_are_no_steps() -> None:
    parts = [[host("log", "annotation", at, 5), *compute(at + 10)] for at in (0, 100, 200)]
    assert "no optimizer" in why(joined(*parts, compute(300, 3_000)))


def test_requests_that_overlap() -> None:
    """A step lasts from the start of a request to the start of the next one, on any thread."""
    parts = [[host("request", "annotation", 40 * k, 100, tid=1 + k % 3)] for k in range(6)]
    assert windows(steady_steps(joined(*parts))) == [*((40 * k, 40 * k + 40) for k in range(5)), (200, 300)]


@pytest.mark.parametrize("around", [
    [host("net", "forward", 0, 1_200, phase="forward")],
    [host("model forward", "annotation", 0, 1_200)],
    [host("aten::call", "operator", 0, 1_200)],
    [],
])  # fmt: skip
def test_layers_of_one_pass_are_no_steps(around: Events) -> None:
    layers = [[host("decoder layer", "annotation", 100 * k, 95), *compute(100 * k + 5, 80)] for k in range(12)]
    assert why(joined(around, *layers))


def test_operators_that_repeat_have_no_meaning() -> None:
    assert why(joined(*(compute(at) for at in range(0, 1_200, 100)))) == (
        "operators repeat 12 times, but no optimizer, data loader or range marks an iteration, so these may be the "
        "layers of a network"
    )
    assert why(joined(compute(0))) == "no optimizer, data loader or range repeats, so the recording has no iterations"
    assert why(trace([device("k", "kernel", 0, 5)])) == "neither operators nor ranges of the host were recorded"
    assert "too few updates of parameters (2;" in why(joined(compute(0), update(50), compute(70), update(120)))


def test_the_repeats_of_a_benchmark() -> None:
    harness = [host("run|warmup", "annotation", 0, 500), host("run|warmup", "annotation", 10, 400),
               host("run|measure", "annotation", 600, 50), host("run|measure", "annotation", 700, 60)]  # fmt: skip
    found = steady_steps(joined(harness, compute(600), compute(700)))
    assert windows(found) == [(600, 700), (700, 760)]
    assert apart(found) == [("benchmark", -1, 0, 500)]
    nested = [*harness[:2], host("run|measure", "annotation", 600, 200), host("clear_cache", "annotation", 610, 80),
              host("run|measure", "annotation", 700, 60)]  # fmt: skip
    found = steady_steps(joined(nested, compute(700)))
    assert windows(found) == [(600, 700), (700, 760)]
    assert apart(found) == [("benchmark", 0, 600, 700), ("benchmark", -1, 0, 500)]


def test_compilation_and_capture() -> None:
    parts = [iteration(at) for at in range(0, 600, 100)]
    compiling = [host("inductor_compile", "operator", 300, 50)]
    capture = [host("cudaStreamBeginCapture", "runtime", 405, 1), host("cudaStreamEndCapture", "runtime", 450, 1)]
    found = steady_steps(joined(*parts, compiling, capture))
    assert [(reason, step) for reason, step, _, _ in apart(found)] == [("compilation", 3), ("capture", 4)]


def test_a_cut_first_step() -> None:
    """The recording begins within an iteration, which has fewer operators than the others."""
    full = [[host("mm", "operator", at + 5 * k, 4) for k in range(8)] + update(at + 60) for at in (100, 200, 300)]
    found = steady_steps(joined([host("mm", "operator", 50, 4)], update(60), *full))
    assert apart(found) == [("cut", 0, 50, 70)]


@pytest.mark.parametrize(("blank", "cut"), [(30, True), (4, False)])
def test_a_first_step_that_lacks_what_was_not_recorded(blank: int, cut: bool) -> None:
    """The recording begins with the first operator: what plain Python does before it is known of the other steps."""
    parts = [compute(at, 60) + update(at + 60, 40 - blank) for at in (0, 100, 200, 300)]
    assert apart(steady_steps(joined(*parts))) == [("cut", 0, 0, 100 - blank)] * cut


def test_the_cadence_of_the_device() -> None:
    """Each step launches 30 ns of work within 10 ns on the host, so the device determines how long a step takes."""
    steps = [
        [
            host(f"step {k}", "step", 10 * k, 10, step=k),
            host("launch", "runtime", 10 * k + 1, 2, correlation=k + 1),
            device("k", "kernel", 5 + 30 * k, 30, correlation=k + 1),
        ]
        for k in range(4)
    ]
    found = steady_steps(joined(*steps))
    assert found.host_ns.tolist() == [10] * 4
    assert found.device_cadence_ns.tolist() == [30, 30, 30, -1]
    assert found.length_ns().tolist() == [30, 30, 30, 10]
    assert found.sources[0].kind == "recorded"


def test_requests_that_overlap_have_no_cadence() -> None:
    steps = [
        [
            host(f"step {k}", "step", 10 * k, 10, step=k),
            host("launch", "runtime", 10 * k + 1, 2, correlation=k + 1),
            device("k", "kernel", 50 + 30 * (k ^ 1), 30, correlation=k + 1),  # each second one is served first
        ]
        for k in range(4)
    ]
    assert steady_steps(joined(*steps)).device_cadence_ns.tolist() == [-1] * 4
    assert view_table("steps", joined(*steps))["device_cadence_ns"].isna().all()


def test_inferred_steps_become_events() -> None:
    parts = [iteration(at) for at in (0, 100, 200)]
    recorded = joined(
        *parts, [device("k", "kernel", 400, 10, correlation=1), host("l", "runtime", 110, 2, correlation=1)]
    )
    found = with_inferred_steps(recorded)
    steps = [row for row in rows(found, "name", "category", "start_ns", "dur_ns", "step") if row[1] == CATEGORY]
    assert steps == [
        ("step 0", CATEGORY, 0, 100, 0),
        ("step 1", CATEGORY, 100, 100, 1),
        ("step 2", CATEGORY, 200, 100, 2),
    ]
    assert [step for name, step in rows(found, "name", "step") if name == "k"] == [1]  # the step of its launch
    others = found.to_pandas().query("category != @CATEGORY")[["name", "start_ns", "dur_ns"]]
    assert others.values.tolist() == recorded.to_pandas()[["name", "start_ns", "dur_ns"]].values.tolist()
    assert {"no-steps", CODE} & {finding.code for finding in found.quality} == {CODE}
    assert with_inferred_steps(found) is found


def test_recorded_steps_stay() -> None:
    recorded = joined(
        *([host("step", "step", at, 90, step=at // 100), *compute(at), *update(at + 60)] for at in (0, 100, 200))
    )
    assert with_inferred_steps(recorded) is recorded


def test_each_rank_has_its_own_steps() -> None:
    parts = [iteration(at) for at in (0, 100, 200)]
    ranks = [trace([event for part in parts[: 3 - number] for event in part], rank=number) for number in (0, 1)]
    both = concat_traces(ranks)
    assert [source.kind for source in steady_steps(both).sources] == ["inferred", "none"]
    view = get_plugins().views()["steps"]
    computed = LoadedProfile(both).compute([view], ViewRequest())
    assert computed.tables["steps"][["rank", "step"]].values.tolist() == [[0, 0], [0, 1], [0, 2]]
    texts = [finding.message for finding in computed.quality if finding.code in ("no-steps", CODE)]
    assert any("(rank 0)" in text and "3 steps, inferred" in text for text in texts)
    assert any("too few updates" in text for text in texts)


def test_steps_of_joined_ranks_become_events() -> None:
    late = 40
    ranks = [
        trace([event | {"start_ns": event["start_ns"] + late * number}
               for at in (0, 100, 200) for event in iteration(at)], rank=number)
        for number in (0, 1)
    ]  # fmt: skip
    inserted = with_inferred_steps(concat_traces(ranks))
    rows = np.flatnonzero(inserted.rows("kind", "step"))
    assert sorted(zip(*(inserted.ints(name)[rows].tolist() for name in ("rank", "step")), strict=True)) == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)
    ]  # fmt: skip
    for number, part in enumerate(ranks):  # each rank has the steps that it has alone
        alone = with_inferred_steps(part)
        mine = inserted.ints("rank") == number
        assert inserted.ints("step")[mine].tolist() == alone.ints("step").tolist()


REAL = [  # recording, iterations, median period in ms, from the raw events
    ("torch/resnet-param.json.gz", 30, 176.6),
    ("torch-judged/param-linear.json.gz", 40, 24.5),
    ("torch/mi300x-ddp-resnet18-train.json.gz", 5, 1_042.0),
    ("torch/gpu-user-annotation-steps.json.gz", 5, 1.53),
    ("torch/mtia-inference.json.gz", 38, 10.0),
    ("torch/alexnet-cuda-sync.json.gz", 2, 43.3),
    ("torch/cupti-counters.json.gz", 2, 233.5),
]


@pytest.mark.parametrize(("name", "count", "period_ms"), REAL)
def test_real_recordings(traces: Path, name: str, count: int, period_ms: float) -> None:
    found = steady_steps(load(traces / name))
    assert len(found.number) == count
    assert np.median(np.diff(found.end_ns if count > 2 else found.begin_ns)) / 1e6 == pytest.approx(period_ms, rel=0.05)


@pytest.mark.parametrize("name", ["compile-triton", "event-sync-multi-stream", "mi210-gpu-only", "b200-eager-rank0of8"])
def test_real_recordings_without_steps(traces: Path, name: str) -> None:
    assert why(load(traces / "torch" / f"{name}.json.gz")).count(".") == 0  # one sentence


def test_a_real_capture_is_set_apart(traces: Path) -> None:
    found = steady_steps(load(traces / "serving" / "vllm-decode-graph.capture.json.gz"))
    assert (found.sources[0].kind, [reason for reason, *_ in apart(found)]) == ("server", ["capture"])
    assert not found.steady.any()


def test_a_real_device_that_lags(traces: Path) -> None:
    found = steady_steps(load(traces / "torch" / "mi300x-resnet-act-checkpoint-steps.json.gz"))
    assert [round(time / 1e6, 1) for time in found.device_cadence_ns[:2].tolist()] == [19.0, 19.0]
    assert [round(time / 1e6, 1) for time in found.host_ns.tolist()] == [16.8, 16.0, 15.9]


def test_the_start_of_a_real_process_is_set_apart(traces: Path) -> None:
    found = with_inferred_steps(load(traces / "torch-judged" / "param-linear.json.gz"))
    (note,) = (finding.message for finding in found.quality if finding.code == SET_APART)
    assert note == "set apart, 51.0% of the recorded time: step 0 (1.02 s, warm-up; cudaFree 981 ms)"
