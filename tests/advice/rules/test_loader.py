"""Rules 10 and 13: the proposed number of workers, and the texts about the cores that the workers need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit_core.advice.engine import advise, what_ifs
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.epoch_gap import find as epoch_gap
from perfkit_core.advice.rules.host_gap import find as host_gaps
from perfkit_core.advice.rules.loader_workers import find as no_workers
from perfkit_core.advice.rules.low_device_utilisation import find as low_utilisation
from perfkit_core.advice.rules.more_workers import find as more_workers
from perfkit_core.advice.rules.outlier_steps import find as outliers
from perfkit_core.readers.load import load
from perfkit_core.replay.transforms import Shorten
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, found, kernel, op, predicted, steps
from tests.support.events import host, trace


def loading(name: str = "DataLoader.next", **host: int) -> Trace:
    """Return steps of 100 ms in which making the batch takes 60 ms."""
    rows: Rows = [op(name, 0, 60_000, kind="dataloader"), op("aten::mm", 60_000, 40_000)]
    recording = steps(rows, 100_000)
    return recording.with_meta(framework="torch", extra={"host": host} if host else {})


@pytest.mark.parametrize(
    ("host", "workers"),
    [({}, 4), ({"cores": 64}, 4), ({"cores": 4}, 4), ({"cores": 2}, 2), ({"cores": 1}, 1),
     ({"cores": 8, "processes": 4}, 2), ({"cores": 2, "processes": 4}, 1)],
)  # fmt: skip
def test_no_more_workers_than_cores(host: dict[str, int], workers: int) -> None:
    (one,) = found(no_workers, loading(**host))
    assert one.fill == {"workers": str(workers)}
    assert one.evidence["proposed_workers"] == workers
    (advice,) = advise(loading(**host), rules=["loader-workers"]).advice
    assert f"num_workers={workers}," in advice.remedy.code


@pytest.mark.parametrize(
    ("host", "said"),
    [({}, "The number of cores was not recorded. The training and each worker need one core."),
     ({"cores": 64}, "There are 64 cores for 4 workers and the training"),
     ({"cores": 4}, "4 workers and the training share 4 cores. While workers compute, they"),
     ({"cores": 1}, "1 worker and the training share 1 core. ")],
)  # fmt: skip
def test_the_risk_on_cores(host: dict[str, int], said: str) -> None:
    (one,) = found(no_workers, loading(**host))
    assert any(str(risk).startswith(said) for risk in one.risks)


def test_workers_may_slow_down_operators_that_use_all_cores() -> None:
    """The other 40 ms of the step take 0.85 to 1.25 times as long, or 0.85 to 2 times if no core is idle."""
    for threads, (likely, most) in ((3, (40, 50)), (4, (48, 80))):
        recording = loading(cores=4, threads=threads)
        (one,) = found(no_workers, recording)
        assert predicted(recording, one)[1:] == pytest.approx((likely * 1e6, most * 1e6), rel=0.1)


def test_more_workers_than_cores_can_be_asked_about() -> None:
    """The prediction assumes workers that wait for files. A risk mentions that workers may compete for cores."""
    (one,) = what_ifs(loading(cores=2), [("loader-workers", 8)]).advice
    assert one.remedy.code.count("num_workers=8") == 1
    assert "8 workers and the training share 2 cores" in str(one.candidate.risks[1])
    (same,) = what_ifs(loading(), [("loader-workers", 8)]).advice
    assert one.prediction == same.prediction


def test_cores_are_named_where_workers_are_too_few() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    (one,) = found(more_workers, loading(name, cores=2))
    assert [str(risk) for risk in one.risks] == ["More workers than cores slow each other down; there are 2 cores."]
    assert predicted(loading(name, cores=2), one)[1] is not None


def test_a_recording_of_this_process_has_its_cores(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from perfkit_core.base.system.machine import usable_cpus
    from perfkit_torch import trace_handler

    handler = trace_handler(tmp_path)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    loader = torch.utils.data.DataLoader(torch.arange(40.0).reshape(40, 1), batch_size=8)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=handler
    ) as profiler:
        for batch in loader:
            batch.sum()
            profiler.step()
    handler.flush()
    (one,) = what_ifs(load(tmp_path), [("loader-workers", 2)]).advice
    assert 1 <= one.candidate.evidence["cores"] <= len(usable_cpus())


def test_fetching_a_ready_batch_is_no_wait() -> None:
    """Fetching takes 0.3 ms in steps of 2 ms, and more workers do not make it faster."""
    rows: Rows = [op("_MultiProcessingDataLoaderIter.__next__", 0, 300, kind="dataloader"), op("aten::mm", 300, 1700)]
    assert found(more_workers, steps(rows, 2_000)) == []


@pytest.mark.parametrize(("took", "advised"), [(300, 0), (500, 0), (600, 1)])
def test_a_batch_that_is_made_as_soon_as_one_is_handed_over(took: int, advised: int) -> None:
    rows: Rows = [op("DataLoader.next", 0, took, kind="dataloader"), op("aten::mm", took, 2_000 - took)]
    assert len(found(no_workers, steps(rows, 2_000))) == advised


def test_loading_in_a_thread_without_a_parent_is_loading() -> None:
    """The last event of the recording also loads. An event inside another load belongs to that load."""
    times = ((0, 60_000), (10, 20), (99_000, 500))
    loads = [op("DataLoader.next", start, dur, kind="dataloader") | {"tid": 9} for start, dur in times]
    assert len(RuleInput(steps([*loads, op("aten::mm", 60_000, 39_000)], 100_000, 1)).batch_rows) == 2


def test_the_same_finding_is_named_alike_on_machines_of_any_size() -> None:
    names = {advise(loading(cores=cores), rules=["loader-workers"]).advice[0].id for cores in (1, 2, 64)}
    assert len(names) == 1


WORKERS = {
    "torch": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "paddle": "_DataLoaderIterMultiProcess",
}
THREAD = "_DataLoaderIterSingleProcess"
US = 1_000


def starved(name: str, waits: tuple[int, ...] = (100, 100, 40_100, 100) * 5, ranks: int = 1) -> Trace:
    """Return steps that wait for a batch for ``waits`` µs and then compute for 900 µs, with an empty gap of 3 ms
    between."""
    rows: Rows = []
    begin = 0
    for number, wait in enumerate(waits):
        step = [
            host(f"step {number}", "step", begin, (wait + 3_900) * US, step=number),
            host(name, "dataloader", begin, wait * US),
            host("aten::mm", "operator", begin + (wait + 3_000) * US, 900 * US),
        ]
        rows += [row | {"rank": rank, "pid": rank} for rank in range(ranks) for row in step]
        begin += (wait + 3_900) * US
    return trace(rows)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", WORKERS.values())
def test_starved_workers_keep_every_fourth_step_waiting(name: str, ranks: int) -> None:
    """Four steps take 56 ms, so the mean is 14 ms with 10 ms of waiting. Twice as many workers make a batch every 14 ·
    0.55 ms."""
    recording = starved(name, ranks=ranks)
    assert (RuleInput(recording).period, RuleInput(recording).step_ns) == (4, 14_000_000)
    (one,) = found(more_workers, recording)
    assert str(one.what) == (
        "One step in 4 waits for a batch, although worker processes make the batches: "
        "10.0 ms of 14.0 ms per step on average."
    )
    assert predicted(recording, one) == (7_000_000, 7_700_000, 14_000_000)
    assert found(epoch_gap, recording) == []


def test_late_steps_that_wait_for_a_batch_name_the_loader() -> None:
    (one,) = found(outliers, starved(WORKERS["torch"]))
    assert f"{WORKERS['torch']} (+40.0 ms)" in str(one.what)


def rebuilt(wait: int) -> Trace:
    """Return steps whose loader waits for ``wait`` ms and then rebuilds the batch with operators for 8 or 12 ms. The
    call ends 3 ms later. After a gap of 30 ms, the step computes for 1 ms."""
    rows: Rows = []
    begin = 0
    for number in range(12):
        rebuild = 12_000 if number % 2 else 8_000
        call = wait * 1_000 + rebuild + 3_000
        rows.append(host(f"step {number}", "step", begin, (call + 31_000) * US, step=number))
        rows.append(host(WORKERS["torch"], "dataloader", begin, call * US))
        parts = range(wait * 1_000 + 600, wait * 1_000 + rebuild, 500)
        rows += [host("aten::set_", "operator", begin + start * US, 100 * US) for start in parts]
        rows.append(host("aten::mm", "operator", begin + (call + 30_000) * US, 1_000 * US))
        begin += (call + 31_000) * US
    return trace(rows)


def without_gaps(recording: Trace) -> tuple[int | None, ...]:
    """Return the p10, p50 and p90 of the step time without long gaps between operators."""
    (one,) = found(host_gaps, recording)
    (gaps,) = one.transforms
    assert isinstance(gaps, Shorten)
    return predicted(recording, replace(one, method="replay", transforms=(replace(gaps, factor=0),)))


def test_rebuilding_a_batch_is_no_wait() -> None:
    """The steps take 42 and 46 ms, with gaps of 30 ms."""
    recording = rebuilt(0)
    assert found(more_workers, recording) == []
    assert without_gaps(recording)[1] == 14_000_000


def test_the_time_before_a_batch_is_rebuilt_is_a_wait() -> None:
    """Only the time before the first operator of the call is a wait for the batch. With more workers, fetching a batch
    takes 0.5 ms instead of this wait."""
    recording = rebuilt(20)
    assert set(RuleInput(recording).waited_ns.tolist()) == {18_600_000}
    (one,) = found(more_workers, recording)
    assert predicted(recording, one)[1] == 64_000_000 - 20_600_000 + 500_000


def test_the_operator_that_marks_a_call_rebuilds_no_batch() -> None:
    marked = [
        op(WORKERS["torch"], 0, 20_000, kind="dataloader"),
        op("aten::empty", 8, 10),
        op("aten::mm", 20_000, 1_000),
    ]
    assert len(found(more_workers, steps(marked, 21_000, 6))) == 1


@pytest.mark.parametrize(("name", "faster"), [(WORKERS["torch"], 0.55), (THREAD, 0.5)])
def test_several_batches_per_step(name: str, faster: float) -> None:
    """Each step of 84 ms has four batches of 20 ms with 1 ms of computation each."""
    parts = [(at * 21_000, kind) for at in range(4) for kind in ("dataloader", "operator")]
    rows: Rows = [
        op(name, at, 20_000, kind=kind) if kind == "dataloader" else op("aten::mm", at + 20_000, 1_000)
        for at, kind in parts
    ]
    recording = steps(rows, 84_000, 12)
    if name == THREAD:
        after = what_ifs(recording, [("loader-workers", 2)]).advice[0].prediction.p50_ns
    else:
        (one,) = found(more_workers, recording)
        after = predicted(recording, one)[1]
    assert after == pytest.approx(84_000_000 * faster, rel=0.01)


def test_a_rare_long_wait_changes_no_other_step() -> None:
    """Two of 30 steps wait for 200 ms. If the gaps of 3 ms are removed, each of the two steps waits 3 · 4 ms longer,
    because its batch was requested four batches before."""
    recording = starved(WORKERS["torch"], ((100,) * 9 + (200_100,) + (100,) * 5) * 2)
    assert (RuleInput(recording).period, RuleInput(recording).step_ns) == (1, 4_000_000)
    assert without_gaps(recording)[:2] == (1_000_000, 1_000_000)
    assert found(more_workers, recording) == []


@pytest.mark.parametrize("name", [*WORKERS.values(), THREAD])
def test_other_advice_saves_nothing_while_the_loader_is_the_bottleneck(name: str) -> None:
    """If the gaps of 3 ms are removed, every step waits 3 ms longer for its batch. This saves time only if the loader
    works in the training thread."""
    each = starved(name, (20_100,) * 10)
    assert (without_gaps(each)[0] or 0) > 23_900_000
    made_there = starved("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (20_100,) * 10)
    assert without_gaps(made_there)[1] == 21_000_000


@pytest.mark.parametrize("waits", [(100,) * 12, (100,) * 5 + (40_100,) + (100,) * 6, (1_500,) * 12])
def test_single_waits_and_calls_as_long_as_a_handover(waits: tuple[int, ...]) -> None:
    recording = starved(WORKERS["torch"], waits)
    assert RuleInput(recording).period == 1
    assert without_gaps(recording)[1] == int(RuleInput(recording).step_ns) - 3_000_000


@pytest.mark.parametrize(("workers", "after"), [(1, 24_000_000), (2, 12_500_000), (8, 4_400_000)])
def test_workers_instead_of_a_background_thread(workers: int, after: int) -> None:
    """The thread makes a batch in each step of 24 ms. One worker needs 24 ms for a batch, and two workers need 12
    ms."""
    recording = starved(THREAD, (20_100,) * 12)
    (asked,) = what_ifs(recording, [("loader-workers", workers)]).advice
    said = "Each step waits 20.1 ms of 24.0 ms for a batch made by a background thread."
    assert str(asked.candidate.what) == said
    assert abs((asked.prediction.p50_ns or 0) - after) <= 500_000


@pytest.mark.parametrize(("name", "advised"), [(THREAD, 0), ("DataLoader.next", 1)])
def test_one_worker_is_no_faster_than_a_thread(name: str, advised: int) -> None:
    assert len(found(no_workers, loading(name, cores=1))) == advised
    assert len(found(no_workers, loading(name, cores=2))) == 1


def test_a_device_starved_by_workers_needs_no_larger_batches() -> None:
    rows: Rows = []
    begin = 0
    for number, wait in enumerate((10, 10, 40_010, 10) * 3):
        for one in (
            host(f"step {number}", "step", 0, (wait + 1_000) * US, step=number),
            op(WORKERS["torch"], 0, wait, kind="dataloader"),
            call("cudaLaunchKernel", wait, 10, number),
            kernel("gemm", wait + 20, 300, number),
        ):
            rows.append(one | {"start_ns": one["start_ns"] + begin})
        begin += (wait + 1_000) * US
    assert found(low_utilisation, trace(rows)) == []
