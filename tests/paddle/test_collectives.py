"""Collectives in Paddle, recorded live by two ranks with gloo as labels, and recorded on a GPU as kernels."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.assembly import labels
from perfkit_core.trace.model.collective import HOST, Collective
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.views.communication import clocks, collectives, point_to_point, stragglers
from perfkit_core.views.merging import table_of
from tests.support.recording_scripts import succeed

EVERYTHING = ViewRequest()
JOB = """
import sys, time
from pathlib import Path
import paddle
from paddle import distributed, profiler
from perfkit_paddle import annotate_collectives, trace_handler
out, rank = sys.argv[1], int(sys.argv[2])
def meet(file, rank):
    if rank == 0:
        file.touch()
        return
    while not file.exists():
        time.sleep(0.001)
    time.sleep(0.3)
distributed.init_parallel_env()
large, small = paddle.ones([1 << 16]), paddle.ones([1 << 10], "float64")
handler = trace_handler(out + "/run")
def ready(recorded):
    recorded.export(f"{out}/rank{rank}.json")
    handler(recorded)
with profiler.Profiler(targets=[profiler.ProfilerTarget.CPU], scheduler=(1, 4), on_trace_ready=ready) as recording:
    with annotate_collectives():
        for step in range(5):
            meet(Path(out) / f"step{step}", rank)
            distributed.all_reduce(large)
            distributed.all_gather([], small)
            distributed.barrier()
            if rank == 0:
                distributed.send(large, 1)
                distributed.isend(small, 1).wait()
            else:
                distributed.recv(large, 0)
                distributed.irecv(small, 0).wait()
            recording.step()
    distributed.all_reduce(small)
"""


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a job with two ranks and three recorded steps. In each step, the second rank arrives at the
    all-reduce 0.3 s after the first rank."""
    pytest.importorskip("paddle")
    folder = tmp_path_factory.mktemp("job")
    first, second, master = free_ports(3)
    shared = {
        "PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ENDPOINTS": f"127.0.0.1:{first},127.0.0.1:{second}",
        "PADDLE_MASTER": f"127.0.0.1:{master}", "PADDLE_DISTRI_BACKEND": "gloo",
    }  # fmt: skip
    jobs = []
    for rank, port in enumerate((first, second)):
        own = {"PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": f"127.0.0.1:{port}"}
        command = [sys.executable, "-c", JOB, str(folder), str(rank)]
        place = {**os.environ, **shared, **own}
        jobs.append(subprocess.Popen(command, env=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    succeed(jobs)
    return folder


@pytest.fixture(params=["live", "json"])
def trace(job: Path, request: pytest.FixtureRequest) -> Trace:
    return load(job / "run" if request.param == "live" else [job / f"rank{i}.json" for i in range(2)])


def test_sizes_of_a_live_job(trace: Trace) -> None:
    """In each of three steps, each of two ranks has an all-reduce of 65536 floats and an all-gather of 1024 doubles per
    rank, and rank 0 sends 65536 floats to rank 1. Nothing is labelled after the block. The time of a send that does not
    block is unknown."""
    table = table_of(collectives.VIEW, trace, ViewRequest(by=("size",)))
    found = {row["collective"]: (row["size"], row["calls"], row["group_size"]) for row in table.to_dict("records")}
    barrier = found.pop("barrier")
    assert found == {
        "all_reduce": (4 << 16, 6, 2), "all_gather": (8 << 11, 6, 2), "send": (4 << 16, 3, 2), "recv": (4 << 16, 3, 2),
    }  # fmt: skip
    assert barrier[1:] == (6, 2)


def test_messages_of_a_live_job(trace: Trace) -> None:
    """Rank 0 sends 65536 floats and 1024 doubles in each of three steps."""
    columns = ["sender", "receiver", "group", "messages", "bytes", "unmatched_sends", "unmatched_receives"]
    table = table_of(point_to_point.VIEW, trace, EVERYTHING)
    assert table[columns].values.tolist() == [[0, 1, "0", 6, 3 * ((4 << 16) + (8 << 10)), 0, 0]]


def test_the_slow_rank_of_a_live_job(trace: Trace) -> None:
    found = table_of(stragglers.VIEW, trace, EVERYTHING)
    assert found["rank"].tolist() == [1, 0]
    assert found["collectives"].tolist() == [9, 9]
    assert found["caused_wait_ns"].iloc[0] > 3 * 150_000_000
    second = table_of(clocks.VIEW, trace, EVERYTHING).iloc[1]
    assert second["earliest_ns"] <= 1000  # the ranks share one clock, and the JSON has whole µs
    assert second["latest_ns"] >= -1000


def test_kernels_of_a_gpu_align(traces: Path) -> None:
    """A recording of three all-reduces is also used as a second rank whose clock is 4321 ns ahead."""
    one = load(traces / "paddle" / "gpu-synthetic" / "gpu1.pb")
    position = one.events.schema.get_field_index("start_ns")
    field = one.events.schema.field(position)
    later = one.events.set_column(position, field, pa.array(one.ints("start_ns") + 4321))
    both = concat_traces([with_rank(one, 0), with_rank(Trace(later, one.meta, one.quality), 1)])
    found = table_of(clocks.VIEW, both, EVERYTHING)
    assert found["offset_ns"].tolist() == [0, 4321]
    assert found["matched"].tolist() == [3, 3]
    (row,) = table_of(collectives.VIEW, both, EVERYTHING).to_dict("records")
    assert (row["collective"], row["algorithm"], row["protocol"], row["calls"]) == ("all_reduce", "RING", "LL", 6)


@pytest.mark.parametrize(
    "one",
    [
        Collective("all_reduce", "0", "1c291ca3", 2, 65536, "float32", on=HOST),
        Collective("barrier", group_size=8),
        Collective("send"),
        Collective("send", group_size=2, elements=4, dtype="float32", peer=0),
        Collective("all_to_all", elements=4, received=6, received_rows=3),
    ],
)
def test_a_label_parses_to_its_collective(one: Collective) -> None:
    assert labels.parse_collective_label(labels.collective_label(one)) == one


def test_what_is_no_label() -> None:
    for name in ("", "all_reduce", "perfkit.collective:", "perfkit.collective:all_reduce:x::::2:host"):
        assert labels.parse_collective_label(name) is None


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", 40), ("bfloat16", 20), ("int64", 80), ("bool", 10), ("complex64", 80),
                            ("float8_e4m3fn", 10), ("future", None), (None, None)],
)  # fmt: skip
def test_a_label_has_the_bytes_of_its_type(dtype: str | None, expected: int | None) -> None:
    from perfkit_core.trace.assembly.draft import RecordedEvents

    name = labels.collective_label(Collective("reduce", elements=10, dtype=dtype))
    columns: dict[str, Any] = {"name": pa.array(["relu", name, None])}
    recorded = labels.with_labels(RecordedEvents(pa.table(columns)))
    found = recorded.columns
    assert found["name"].to_pylist() == ["relu", "reduce", None]
    assert found["bytes"].to_pylist() == [None, expected, None]
    assert recorded.tables["collectives"]["row"].to_pylist() == [1]
