"""Rules 10 and 13: the proposed number of workers, and the texts about the cores that the workers need. The outcomes
are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.engine import advise, what_ifs
from perfkit_core.advice.gaps import idle_gaps
from perfkit_core.advice.predict import step_ns
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.epoch_gap import find as epoch_gap
from perfkit_core.advice.rules.outlier_steps import find as outliers
from perfkit_core.readers.load import load
from perfkit_core.replay.transforms import Case, Shorten
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, found, op, steps
from tests.support.events import host, trace
from tests.support.rule_cases import check_rule

WORKERS = {
    "torch": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "paddle": "_DataLoaderIterMultiProcess",
}
THREAD = "_DataLoaderIterSingleProcess"
US = 1_000


def loading(name: str = "DataLoader.next", **host: int) -> Trace:
    """Return steps of 100 ms in which making the batch takes 60 ms."""
    rows: Rows = [op(name, 0, 60_000, kind="dataloader"), op("aten::mm", 60_000, 40_000)]
    recording = steps(rows, 100_000)
    return recording.with_meta(framework="torch", extra={"host": host} if host else {})


def in_short_steps(name: str, took: int) -> Trace:
    """Return steps of 2 ms in which the batch takes ``took`` µs."""
    return steps([op(name, 0, took, kind="dataloader"), op("aten::mm", took, 2_000 - took)], 2_000)


def test_loader_workers() -> None:
    """There are no more workers than cores. They may slow down the other 40 ms of the step, which take 0.85 to 1.25
    times as long, or 0.85 to 2 times if no core is idle. One worker is no faster than a thread in the background."""
    cores = [{}, *({"cores": number} for number in (64, 4, 2, 1))]
    cores += [{"cores": 8, "processes": 4}, {"cores": 2, "processes": 4}]
    cores += [{"cores": 4, "threads": 3}, {"cores": 4, "threads": 4}]
    check_rule("loader-workers", {
        **{", ".join(f"{name}: {count}" for name, count in host.items()) or "cores unknown": loading(**host)
           for host in cores},
        "a thread in the background, and 1 core": loading(THREAD, cores=1),
        "a thread in the background, and 2 cores": loading(THREAD, cores=2),
        **{f"a batch takes {took} of 2000 µs": in_short_steps("DataLoader.next", took) for took in (300, 500, 600)},
    })  # fmt: skip


def test_more_workers_than_cores_can_be_asked_about() -> None:
    """The prediction assumes workers that wait for files. A risk mentions that workers may compete for cores."""
    (one,) = what_ifs(loading(cores=2), [("loader-workers", 8)]).advice
    assert one.remedy.code.count("num_workers=8") == 1
    assert "8 workers and the training share 2 cores" in str(one.candidate.risks[1])
    (same,) = what_ifs(loading(), [("loader-workers", 8)]).advice
    assert one.prediction == same.prediction


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


def test_loading_in_a_thread_without_a_parent_is_loading() -> None:
    """The last event of the recording also loads. An event inside another load belongs to that load."""
    times = ((0, 60_000), (10, 20), (99_000, 500))
    loads = [op("DataLoader.next", start, dur, kind="dataloader") | {"tid": 9} for start, dur in times]
    assert len(RuleInput(steps([*loads, op("aten::mm", 60_000, 39_000)], 100_000, 1)).batch_rows) == 2


def test_the_same_finding_is_named_alike_on_machines_of_any_size() -> None:
    (one, other) = (advise(loading(cores=cores), rules=["loader-workers"]).advice[0] for cores in (1, 64))
    assert one.id == other.id
    assert "num_workers=1," in one.remedy.code
    assert "num_workers=4," in other.remedy.code


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


def several_batches(name: str) -> Trace:
    """Return steps of 84 ms with four batches of 20 ms and 1 ms of computation each."""
    rows: Rows = []
    for at in range(4):
        rows += [op(name, 21_000 * at, 20_000, kind="dataloader"), op("aten::mm", 21_000 * at + 20_000, 1_000)]
    return steps(rows, 84_000, 12)


def test_more_workers() -> None:
    """Twice as many workers make a batch in 0.55 times the time: of 14 ms of four starved steps of 56 ms, or of 84 ms.
    Only the time before the first operator of a call is a wait for its batch; then fetching takes 0.5 ms instead."""
    marked = [op(WORKERS["torch"], 0, 20_000, kind="dataloader"), op("aten::empty", 8, 10)]
    check_rule("more-workers", {
        "every fourth step waits": starved(WORKERS["torch"]),
        "every fourth step waits in Paddle": starved(WORKERS["paddle"]),
        "every fourth step waits on two ranks": starved(WORKERS["torch"], ranks=2),
        "each step waits, with two cores": loading(WORKERS["torch"], cores=2),
        "fetching a ready batch takes 0.3 ms": in_short_steps("_MultiProcessingDataLoaderIter.__next__", 300),
        "rebuilding a batch takes 8 or 12 ms": rebuilt(0),
        "a wait of 20 ms before a batch is rebuilt": rebuilt(20),
        "an operator that marks the call": steps([*marked, op("aten::mm", 20_000, 1_000)], 21_000, 6),
        "four batches in each step": several_batches(WORKERS["torch"]),
        "two of 30 steps wait for 200 ms": starved(
            WORKERS["torch"], ((100,) * 9 + (200_100,) + (100,) * 5) * 2),
    })  # fmt: skip


@pytest.mark.parametrize("name", WORKERS.values())
def test_steps_that_starved_workers_keep_waiting(name: str) -> None:
    recording = starved(name)
    assert (RuleInput(recording).period, RuleInput(recording).step_ns) == (4, 14_000_000)
    assert found(epoch_gap, recording) == []


def test_late_steps_that_wait_for_a_batch_name_the_loader() -> None:
    (one,) = found(outliers, starved(WORKERS["torch"]))
    assert f"{WORKERS['torch']} (+40.0 ms)" in str(one.what)


def without_gaps(recording: Trace) -> float:
    """Return the median step time in ns without gaps between operators."""
    facts = RuleInput(recording)
    return step_ns(facts, (Shorten(idle_gaps(facts), 0),), Case.LIKELY, 1)


def test_rebuilding_a_batch_is_no_wait() -> None:
    """The steps take 42 and 46 ms, with gaps of 30 ms."""
    assert without_gaps(rebuilt(0)) == 14_000_000
    assert set(RuleInput(rebuilt(20)).waited_ns.tolist()) == {18_600_000}


def test_several_batches_per_step_by_workers_instead_of_a_thread() -> None:
    (asked,) = what_ifs(several_batches(THREAD), [("loader-workers", 2)]).advice
    assert asked.prediction.p50_ns == pytest.approx(42_000_000, rel=0.01)


def test_a_rare_long_wait_changes_no_other_step() -> None:
    """Two of 30 steps wait for 200 ms. If the gaps of 3 ms are removed, each of the two steps waits 3 · 4 ms longer,
    because its batch was requested four batches before."""
    recording = starved(WORKERS["torch"], ((100,) * 9 + (200_100,) + (100,) * 5) * 2)
    assert (RuleInput(recording).period, RuleInput(recording).step_ns) == (1, 4_000_000)
    assert without_gaps(recording) == 1_000_000


@pytest.mark.parametrize("name", [*WORKERS.values(), THREAD])
def test_other_advice_saves_nothing_while_the_loader_is_the_bottleneck(name: str) -> None:
    """If the gaps of 3 ms are removed, every step waits 3 ms longer for its batch. This saves time only if the loader
    works in the training thread."""
    each = starved(name, (20_100,) * 10)
    assert without_gaps(each) > 23_900_000
    made_there = starved("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (20_100,) * 10)
    assert without_gaps(made_there) == 21_000_000


@pytest.mark.parametrize("waits", [(100,) * 12, (100,) * 5 + (40_100,) + (100,) * 6, (1_500,) * 12])
def test_single_waits_and_calls_as_long_as_a_handover(waits: tuple[int, ...]) -> None:
    recording = starved(WORKERS["torch"], waits)
    assert RuleInput(recording).period == 1
    assert without_gaps(recording) == int(RuleInput(recording).step_ns) - 3_000_000


@pytest.mark.parametrize(("workers", "after"), [(1, 24_000_000), (2, 12_500_000), (8, 4_400_000)])
def test_workers_instead_of_a_background_thread(workers: int, after: int) -> None:
    """The thread makes a batch in each step of 24 ms. One worker needs 24 ms for a batch, and two workers need 12
    ms."""
    recording = starved(THREAD, (20_100,) * 12)
    (asked,) = what_ifs(recording, [("loader-workers", workers)]).advice
    said = "Each step waits 20.1 ms of 24.0 ms for a batch made by a background thread."
    assert str(asked.candidate.what) == said
    assert abs((asked.prediction.p50_ns or 0) - after) <= 500_000
