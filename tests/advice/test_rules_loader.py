"""Rules 10 and 13: how many workers are proposed, and what is said about the cores that they need."""

from __future__ import annotations

from pathlib import Path

import pytest
from advised import Rows, found, op, predicted, steps

from perfkit_core.advice.advise import advise, what_if
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.rules.loader import batches, more_workers, no_workers
from perfkit_core.loading import load
from perfkit_core.trace import Trace


def loading(name: str = "DataLoader.next", **host: int) -> Trace:
    """Steps of 100 ms, 60 of which pass in making the batch."""
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
    [({}, "how many cores there are was not recorded: 4 workers need as many"),
     ({"cores": 64}, "4 workers and the training have 64 cores"),
     ({"cores": 4}, "4 workers and the training share 4 cores: workers that compute take turns"),
     ({"cores": 1}, "1 worker and the training share 1 core: ")],
)  # fmt: skip
def test_what_is_said_about_cores(host: dict[str, int], said: str) -> None:
    (one,) = found(no_workers, loading(**host))
    assert any(risk.startswith(said) for risk in one.risks)


def test_more_workers_than_cores_can_be_asked_about() -> None:
    """The prediction is for workers that wait for files; that they may have to take turns is said."""
    (one,) = what_if(loading(cores=2), "loader-workers", 8).advice
    assert one.remedy.code.count("num_workers=8") == 1
    assert "8 workers and the training share 2 cores" in one.candidate.risks[1]
    (same,) = what_if(loading(), "loader-workers", 8).advice
    assert one.prediction == same.prediction


def test_cores_are_told_where_workers_are_too_few() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    (one,) = found(more_workers, loading(name, cores=2))
    assert one.risks == ("more workers than cores make all of them slower; there are 2 cores",)
    assert predicted(loading(name, cores=2), one)[1] is not None


def test_a_recording_of_this_process_tells_its_cores(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from perfkit_core.machine import usable_cpus
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
    (one,) = what_if(load(tmp_path), "loader-workers", 2).advice
    assert 1 <= one.candidate.evidence["cores"] <= len(usable_cpus())


def test_handing_a_batch_over_takes_no_longer_than_the_recorded_wait() -> None:
    """Waits of 0.3 ms in steps of 2 ms: at worst nothing is gained, however long handing over may take elsewhere."""
    rows: Rows = [op("_MultiProcessingDataLoaderIter.__next__", 0, 300, kind="dataloader"), op("aten::mm", 300, 1700)]
    recording = steps(rows, 2_000)
    (one,) = found(more_workers, recording)
    assert [(a.name, a.value.high) for a in one.assumptions if a.name == "handover_ns"] == [("handover_ns", 300_000)]
    assert (predicted(recording, one)[2] or 0) <= 2_000_000


def test_loading_in_a_thread_without_a_parent_is_loading() -> None:
    """The last event of the recording loads, too; what lies in another load is part of it."""
    times = ((0, 60_000), (10, 20), (99_000, 500))
    loads = [op("DataLoader.next", start, dur, kind="dataloader") | {"tid": 9} for start, dur in times]
    assert len(batches(Facts(steps([*loads, op("aten::mm", 60_000, 39_000)], 100_000, 1)))) == 2


def test_the_same_finding_is_named_alike_on_machines_of_any_size() -> None:
    names = {advise(loading(cores=cores), rules=["loader-workers"]).advice[0].id for cores in (1, 2, 64)}
    assert len(names) == 1
