"""Collectives and messages of two ranks with gloo, recorded by perfkit and exported by the framework."""

from __future__ import annotations

import functools
import itertools
import json
import socket
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import clocks, collectives, imbalance, pipeline, point_to_point, stragglers
from perfkit_core.views.merging import table_of

pytestmark = pytest.mark.slow
EVERYTHING = ViewRequest()
STEPS = [1, 2, 3]
MEET = """
import os, sys, time
from pathlib import Path
folder, child = Path(sys.argv[1]), os.fork()
rank = int(child > 0)
def meet(file):
    "Let rank 1 go on 0.3 s after rank 0."
    if rank == 0:
        file.touch()
        return
    while not file.exists():
        time.sleep(0.001)
    time.sleep(0.3)
"""
TORCH = """
import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from perfkit_torch import trace_handler
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
stage = PipelineStage(nn.Sequential(nn.Linear(32, 32), nn.ReLU()), rank, 2, torch.device("cpu"))
pipeline = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).square().mean())
table = nn.Embedding(100, 8)
handler = trace_handler(folder / "run")
def ready(profiler):
    handler(profiler)
    profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))
schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
with torch.profiler.profile(schedule=schedule, record_shapes=True, on_trace_ready=ready) as profiler:
    for step in range(4):
        meet(folder / f"step{step}")
        distributed.all_reduce(torch.ones(1 << 16))
        distributed.all_reduce(torch.ones(1 << 10))
        pipeline.step(torch.randn(64, 32)) if rank == 0 else pipeline.step(target=torch.randn(64, 32))
        table(torch.zeros(2, 5 + 20 * rank, dtype=torch.long))
        sent, received = ([2, 5], [2, 1]) if rank == 0 else ([1, 9], [5, 9])
        distributed.all_to_all_single(torch.empty(sum(received), 8), torch.ones(sum(sent), 8), received, sent)
        distributed.send(torch.ones(7), 1, tag=3) if rank == 0 else distributed.recv(torch.ones(7), 0, tag=3)
        distributed.all_reduce(torch.ones(3))
        profiler.step()
distributed.destroy_process_group()
"""
"""Each microbatch of the pipeline has 16 × 32 floats."""
PADDLE = """
ports = {ports}
os.environ.update(
    PADDLE_TRAINERS_NUM="2", PADDLE_TRAINER_ENDPOINTS="127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}",
    PADDLE_MASTER="127.0.0.1:{ports[2]}", PADDLE_DISTRI_BACKEND="gloo", PADDLE_TRAINER_ID=str(rank),
    PADDLE_CURRENT_ENDPOINT=f"127.0.0.1:{{ports[rank]}}",
)
import paddle
from paddle import distributed, profiler
from perfkit_paddle import annotate_collectives, trace_handler
distributed.init_parallel_env()
large, small = paddle.ones([1 << 16]), paddle.ones([1 << 10], "float64")
handler = trace_handler(folder / "run")
def ready(recorded):
    recorded.export(str(folder / f"rank{{rank}}.json"))
    handler(recorded)
with profiler.Profiler(targets=[profiler.ProfilerTarget.CPU], scheduler=(1, 4), on_trace_ready=ready) as recording:
    with annotate_collectives():
        for step in range(5):
            meet(folder / f"step{{step}}")
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
END = """
handler.flush()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def job(framework: str, run_script: Callable[..., tuple[int, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a job with three recorded steps. In each step, rank 1 arrives 0.3 s after rank 0."""
    folder = tmp_path_factory.mktemp("job")
    ranks = TORCH if framework == "torch" else PADDLE.format(ports=free_ports(3))
    code, told = run_script(MEET + ranks + END, folder)
    assert code == 0, told
    return folder


@pytest.fixture(params=["live", "json"])
def trace(job: Path, request: pytest.FixtureRequest) -> Trace:
    return load(job / "run" if request.param == "live" else [job / f"rank{rank}.json" for rank in range(2)])


def test_each_rank_writes_a_file_with_its_rank(job: Path) -> None:
    trace = load(job / "run")
    assert (trace.meta.ranks, trace.meta.world_size) == ((0, 1), 2)
    rows = trace.rows("kind", "step")
    ranks_and_steps = zip(trace.ints("rank")[rows].tolist(), trace.ints("step")[rows].tolist(), strict=True)
    assert sorted(ranks_and_steps) == [(rank, step) for rank in range(2) for step in STEPS]
    assert len(list((job / "run").glob("*.parquet"))) == 2


def test_sizes(framework: str, trace: Trace) -> None:
    """Two ranks call each collective in three steps. In Paddle, nothing is labelled after the block, and the time of a
    send that does not block is unknown."""
    table = table_of(collectives.VIEW, trace, ViewRequest(by=("size",)))
    table = table[table["collective"] != "barrier"] if framework == "paddle" else table
    calls = {(row["collective"], row["size"]): row["calls"] for row in table.to_dict("records")}
    own = {("all_gather", 8 << 11): 6, ("send", 4 << 16): 3, ("recv", 4 << 16): 3}
    if framework == "torch":
        calls = {key: number for key, number in calls.items() if key[0] == "all_reduce"}
        own = {("all_reduce", 4 << 10): 6, ("all_reduce", 12): 6}
    assert calls == {("all_reduce", 4 << 16): 6, **own}
    assert (table["group_size"] == 2).all()


def test_messages(framework: str, trace: Trace) -> None:
    """In torch, each microbatch sends its activations and returns their gradients, and rank 0 also sends 7 floats. In
    Paddle, rank 0 sends 65536 floats and 1024 doubles."""
    table = table_of(point_to_point.VIEW, trace, ViewRequest(by=("step",)))
    columns = ["sender", "receiver", "messages", "bytes", "unmatched_sends", "unmatched_receives"]
    activations = 4 * 16 * 32 * 4
    messages = {
        "torch": [[0, 1, 5, activations + 28, 0, 0], [1, 0, 4, activations, 0, 0]],
        "paddle": [[0, 1, 2, (4 << 16) + (8 << 10), 0, 0]],
    }[framework]
    assert table[columns].values.tolist() == messages * len(STEPS)
    if framework == "torch":
        assert table["message_bytes"].tolist() == [16 * 32 * 4] * 6


def test_the_slow_rank(framework: str, trace: Trace) -> None:
    table = table_of(stragglers.VIEW, trace, EVERYTHING)
    assert table["rank"].tolist() == [1, 0]
    assert table["collectives"].tolist() == [{"torch": 12, "paddle": 9}[framework]] * 2
    assert table["caused_wait_ns"].iloc[0] > 3 * 150_000_000
    assert table["waited_ns"].iloc[0] < table["waited_ns"].iloc[1]
    second = table_of(clocks.VIEW, trace, EVERYTHING).iloc[1]
    assert second["matched"] == table["collectives"].iloc[0]
    # Both ranks use the clock of this machine. torch measures the clock's frequency in each process, and JSON has
    # whole µs.
    assert second["earliest_ns"] <= 1000
    assert second["latest_ns"] >= -1000


ONLY_TORCH = pytest.mark.parametrize("framework", ["torch"], indirect=True)


@ONLY_TORCH
def test_bubbles(job: Path) -> None:
    """A bubble is what the messages cover and no operator does. A message lasts from its operator to the end of its
    label. The k-th operator belongs to the k-th label. Operators inside an operator that communicates do not
    compute."""
    expected = []
    for number in range(2):
        events = json.loads((job / f"rank{number}.json").read_text(), strict=False)["traceEvents"]
        events = sorted((event for event in events if event.get("ph") == "X"), key=_start)
        for step in (event for event in events if event["name"].startswith("ProfilerStep")):
            inside = [one for one in events if _start(step) <= _start(one) < _end(step)]
            messages = []
            for call, label in (("c10d::send", "gloo:send"), ("c10d::recv_", "gloo:recv")):
                begun, done = ([one for one in inside if one["name"] == name] for name in (call, label))
                messages += [(_start(one), _end(other)) for one, other in zip(begun, done, strict=True)]
            operators = [one for one in inside if one.get("cat") == "cpu_op"]
            calls = [one for one in operators if one["name"].startswith("c10d::")]
            computing = [one for one in operators if not one["name"].startswith("c10d::")]
            spans = [*messages, *((_start(one), _end(one)) for one in (*operators, step))]
            marks = sorted({time for span in spans for time in span if time <= _end(step)})
            bubble = 0
            for before, after in itertools.pairwise(marks):
                in_message = any(first <= before and after <= last for first, last in messages)
                threads = _threads(computing, before, after) - _threads(calls, before, after) if in_message else {0}
                bubble += (after - before) * (not threads)
            expected.append([number, bubble])
    for trace in (load(job / "run"), load([job / f"rank{rank}.json" for rank in range(2)])):
        table = table_of(pipeline.VIEW, trace, ViewRequest(by=("step",)))
        assert table[["rank", "bubble_ns"]].values.tolist() == expected
        assert table["stage"].tolist() == [0, 0, 0, 1, 1, 1]
        assert table["sends"].tolist() == [5, 5, 5, 4, 4, 4]


@functools.cache
def _ns(us: str) -> int:
    return int(Decimal(us) * 1000)


def _start(event: dict[str, Any]) -> int:
    return _ns(str(event["ts"]))


def _end(event: dict[str, Any]) -> int:
    return _start(event) + _ns(str(event["dur"]))


def _threads(events: list[dict[str, Any]], start: int, end: int) -> set[int]:
    return {event["tid"] for event in events if _start(event) <= start and end <= _end(event)}


@ONLY_TORCH
def test_imbalance(trace: Trace) -> None:
    """In each of three steps, rank 0 receives 2 + 1 of 17 rows with 8 floats and looks up 2 × 5 tokens. Rank 1 receives
    5 + 9 rows and looks up 2 × 25 tokens."""
    table = table_of(imbalance.VIEW, trace, EVERYTHING)
    assert table["tokens"].tolist() == [3 * 10, 3 * 50]
    assert table["uneven_calls"].tolist() == [3, 3]
    assert table["received_rows"].tolist() == [3 * 3, 3 * 14]
    assert table["received_bytes"].tolist() == [3 * 3 * 32, 3 * 14 * 32]
    assert table["received_ratio"].tolist() == pytest.approx([3 / 8.5, 14 / 8.5])
