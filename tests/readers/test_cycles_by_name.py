"""The file names that profilers choose themselves tell which files are cycles of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfkit
from perfkit_core.errors import SourceError
from perfkit_core.readers.join_ranks import process_of_name
from perfkit_core.trace.model.trace import Trace
from tests.support.chrome import event, write

FIRST, SECOND = 1_795_896_474_130_822_077, 1_795_896_474_132_782_772
EPOCH_US = 1_790_000_000_000_000


def cycle(folder: Path, name: str, *steps: int, pid: int, shift: int = 0) -> Path:
    """Write a file with some steps. Step n is from 1000 n to 1000 n + 900 µs."""
    begin = EPOCH_US + shift
    events = [
        event(f"ProfilerStep#{n}", begin + 1000 * n, 900, cat="user_annotation", pid=pid, tid=pid) for n in steps
    ] + [event("aten::mm", begin + 1000 * n + 10, 50, pid=pid, tid=pid) for n in steps]
    return write(folder / name, events)


def codes(found: Trace) -> set[str]:
    return {finding.code for finding in found.quality}


@pytest.mark.parametrize("host", ["vm", "node.cluster-3", "rank-7"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_cycles_of_one_process_are_one_recording(tmp_path: Path, host: str, suffix: str) -> None:
    files = [
        cycle(tmp_path, f"{host}_77.{time}.pt.trace.json{suffix}", *steps, pid=77)
        for time, steps in ((FIRST, (2, 3)), (SECOND, (6, 7)))
    ]
    for sources in (tmp_path, files[::-1]):
        found = perfkit.load(sources)
        assert found.meta.ranks == ()
        assert found.ints("step")[found.rows("kind", "step")].tolist() == [2, 3, 6, 7]
        assert "cycles-by-name" in codes(found)
        assert perfkit.summarize(sources, "steps")["step"].tolist() == [2, 3, 6, 7]


def test_two_processes_of_a_host_named_like_a_rank_are_two_ranks(tmp_path: Path) -> None:
    for pid in (70, 71):
        cycle(tmp_path, f"worker-3_{pid}.{FIRST}.pt.trace.json", 2, 3, pid=pid)
        cycle(tmp_path, f"worker-3_{pid}.{SECOND}.pt.trace.json", 6, 7, pid=pid, shift=5)
    found = perfkit.load(tmp_path)
    assert found.meta.ranks == (0, 1)
    assert {"ranks-by-order", "cycles-by-name"} <= codes(found)
    for table in (perfkit.summarize(found, "steps"), perfkit.summarize(tmp_path, "steps")):
        assert table.groupby("rank")["step"].apply(list).to_dict() == {0: [2, 3, 6, 7], 1: [2, 3, 6, 7]}


def test_a_process_id_that_was_used_again_is_refused(tmp_path: Path) -> None:
    """The first process of a container has the same id in each run."""
    cycle(tmp_path, f"vm_1.{FIRST}.pt.trace.json", 2, 3, pid=1)
    cycle(tmp_path, f"vm_1.{SECOND}.pt.trace.json", 2, 3, pid=1, shift=90_000)
    for read in (perfkit.load, lambda path: perfkit.summarize(path, "steps")):
        with pytest.raises(SourceError, match=r"contain the same steps of one process; .*perfkit compare"):
            read(tmp_path)


def test_a_chosen_number_is_no_process_id(tmp_path: Path) -> None:
    """``worker_name="run_5"`` in each process: the files are simultaneous processes, as their ids show."""
    cycle(tmp_path, f"run_5.{FIRST}.pt.trace.json", 2, 3, pid=80)
    cycle(tmp_path, f"run_5.{SECOND}.pt.trace.json", 2, 3, pid=81)
    assert perfkit.load(tmp_path).meta.ranks == (0, 1)


@pytest.mark.parametrize(
    ("name", "process"),
    [
        ("host_vm.1pid_48_time_2026_11_29_02_18_33_334627.paddle_trace.pb", "host_vm.1pid_48"),
        ("host_vmpid_48_time_2026_11_29_02_18_33_334627.paddle_trace.json.gz", "host_vmpid_48"),
        (f"a_b.c_12.{FIRST // 10**6}.pt.trace.json", "a_b.c_12"),
        (f"rank0.{FIRST}.pt.trace.json", None),
        ("vm_12.trace.json", None),
        (f"vm_12.{FIRST}.pt.trace.json.tmp", None),
    ],
)
def test_names_of_processes(name: str, process: str | None) -> None:
    assert process_of_name(f"folder_3.1/{name}") == process
