"""Collectives of real recordings, compared with the same numbers computed from the files in plain Python."""

from __future__ import annotations

import gzip
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import clocks, distributed, imbalance, stragglers
from perfkit_core.views.communication.clocks import aligned
from perfkit_core.views.communication.collectives import VIEW as COLLECTIVES
from perfkit_core.views.communication.instances import DETAILS
from perfkit_core.views.merging import table_of
from perfkit_torch import collectives

EVERYTHING = ViewRequest()


def raw(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[dict[str, Any]] = json.loads(text, strict=False)["traceEvents"]
    return events


def collective_kernels(path: Path) -> list[dict[str, Any]]:
    """Return NCCL's kernels in the order of their starts."""
    found = [event for event in raw(path) if event.get("cat") == "kernel" and "nccl" in event["name"]]
    return sorted(found, key=lambda event: event["ts"])


def test_each_collective_is_described_and_recorded_data_stays(tmp_path: Path) -> None:
    """The recording has more distinct collectives than the cache holds, and every third event has its bytes
    recorded."""
    told = [
        {"Collective name": "allreduce", "In msg nelems": i, "Out msg nelems": i, "dtype": "Float"}
        | ({"bytes": 7} if i % 3 == 0 else {})
        for i in [*range(1, 700), *range(1, 700)]
    ]
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce", "pid": 0, "tid": 7, "dur": 1}
    kernels = [kernel | {"ts": at, "args": one} for at, one in enumerate(told)]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": kernels}))
    trace = load(tmp_path / "t.json")
    events = trace.events
    assert events["bytes"].to_pylist() == [one.get("bytes", 4 * one["In msg nelems"]) for one in told]
    assert trace.tables["collectives"]["row"].to_pylist() == list(range(len(told)))
    assert trace.tables["collectives"]["elements"].to_pylist() == [one["In msg nelems"] for one in told]
    recorded = [{key: value for key, value in one.items() if key != "bytes"} for one in told]
    assert [json.loads(text) for text in events["args"].to_pylist()] == recorded


@pytest.fixture(scope="module")
def dlrm(traces: Path) -> tuple[Trace, list[list[dict[str, Any]]]]:
    """Return the traces of eight ranks on one machine, with times in whole microseconds."""
    paths = sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))
    return load(paths), [collective_kernels(path) for path in paths]


def test_sizes_and_bandwidths_of_kernels_with_recorded_sizes(traces: Path) -> None:
    """With two ranks, an all-reduce and a broadcast send their message over the bus once."""
    path = traces / "torch" / "a100-nccl-process-groups.json.gz"
    size_of = {"Float": 4, "Long": 8}
    expected: dict[tuple[str, int], list[float]] = defaultdict(list)
    for event in collective_kernels(path):
        told = event["args"]
        moved = max(told["In msg nelems"], told["Out msg nelems"]) * size_of[told["dtype"]]
        expected[told["Collective name"], moved].append(event["dur"] * 1e-6)
    table = table_of(COLLECTIVES, load(path), ViewRequest(by=("size",)))
    words = {"all_reduce": "allreduce", "broadcast": "broadcast"}
    found = {(words[row["collective"]], row["size"]): row for row in table.to_dict("records")}
    assert set(found) == set(expected)
    assert len(found) == 7
    for (name, moved), times in expected.items():
        row = found[name, moved]
        assert row["calls"] == len(times)
        assert row["bus_bandwidth_bytes_per_s"] == pytest.approx(moved * len(times) / sum(times), rel=1e-9)
        assert (row["group"], row["group_size"], row["algorithm"], row["protocol"]) == ("0 default_pg", 2, "RING", "LL")


def test_the_size_of_an_all_gather_is_what_a_rank_receives(traces: Path) -> None:
    """On eight B200, a message has 8 × 25136 elements of two bytes, and each link transfers seven eighths of it."""
    table = table_of(COLLECTIVES, load(traces / "torch" / "b200-eager-rank0of8.json.gz"), ViewRequest(by=("size",)))
    (row,) = table[table["collective"] == "all_gather"].to_dict("records")
    assert row["message_bytes"] == 8 * 25136 * 2
    assert row["total_ns"] == 21953
    assert row["bus_bandwidth_bytes_per_s"] == pytest.approx(8 * 25136 * 2 * 7 / 8 / 21953e-9)


def test_waiting_for_the_last_rank(dlrm: tuple[Trace, list[list[dict[str, Any]]]]) -> None:
    """The k-th kernel of each rank belongs to the k-th collective. The clocks are aligned by the median difference
    between the ends of collectives."""
    trace, kernels = dlrm
    ends = [[event["ts"] + event["dur"] for event in rank] for rank in kernels]
    offsets = [statistics.median_high([a - b for a, b in zip(rank, ends[0], strict=True)]) for rank in ends]
    waited, caused, last = [0] * 8, [0] * 8, [0] * 8
    for collective in zip(*kernels, strict=True):
        starts = [event["ts"] - offset for event, offset in zip(collective, offsets, strict=True)]
        slowest = max(range(8), key=lambda rank: (starts[rank], -rank))
        waits = [min(starts[slowest] - starts[rank], collective[rank]["dur"]) for rank in range(8)]
        waited = [a + b for a, b in zip(waited, waits, strict=True)]
        caused[slowest] += sum(waits)
        last[slowest] += 1
    table = table_of(stragglers.VIEW, trace, EVERYTHING).sort_values("rank")
    assert (table["waited_ns"] // 1000).tolist() == waited
    assert (table["caused_wait_ns"] // 1000).tolist() == caused
    assert table["last"].tolist() == last
    assert table_of(stragglers.VIEW, trace, EVERYTHING)["rank"].iloc[0] == 7
    found = table_of(clocks.VIEW, trace, EVERYTHING)
    assert (found["offset_ns"] // 1000).tolist() == offsets
    assert (found["earliest_ns"] <= 0).all()  # the ranks share one clock, so an offset of 0 is possible
    assert (found["latest_ns"] >= 0).all()


def test_transfers_agree_between_ranks(dlrm: tuple[Trace, list[list[dict[str, Any]]]]) -> None:
    """The time of an all-to-all after the arrival of the last rank equals the duration of that rank's kernel, up to the
    resolution of 1 µs."""
    trace, kernels = dlrm
    table = table_of(COLLECTIVES, trace, ViewRequest(by=("rank", "size")))
    first = table[(table["collective"] == "all_to_all") & (table["size"] == 192)].sort_values("rank")
    assert len(first) == 8
    (rank7,) = (event["dur"] for event in kernels[7][1:2])
    assert ((first["transfer_ns"] - rank7 * 1000).abs() <= 2000).all()
    assert (first["total_ns"] > 50 * first["transfer_ns"]).sum() == 7  # seven ranks wait most of the time


def test_alignment_restores_shifted_clocks(dlrm: tuple[Trace, list[list[dict[str, Any]]]]) -> None:
    """Each rank's clock is moved by another amount. The alignment restores the times of the file up to their resolution
    of 1 µs."""
    trace, _ = dlrm
    shift = trace.ints("rank") * 7_654_321
    start = trace.events.schema.get_field_index("start_ns")
    moved = trace.events.set_column(start, trace.events.schema.field(start), pa.array(trace.ints("start_ns") + shift))
    back = aligned(Trace(moved, trace.meta, trace.quality))
    assert np.abs(back.ints("start_ns") - trace.ints("start_ns")).max() <= 1000


def test_waits_do_not_count_as_communication(dlrm: tuple[Trace, list[list[dict[str, Any]]]]) -> None:
    """If kernels were recorded, communication consists of the kernels only, without the record_param_comms events."""
    trace, kernels = dlrm
    table = table_of(distributed.VIEW, trace, ViewRequest(by=("rank",)))
    found = table[table["part"] == "communication"].sort_values("rank")["time_ns"].tolist()
    # there is one stream, so nothing overlaps
    assert found == [sum(event["dur"] for event in rank) * 1000 for rank in kernels]


def test_sampled_ranks_are_not_aligned(traces: Path) -> None:
    """A tool has removed most kernels, so the remaining kernels do not match. The clocks must not be aligned."""
    found = table_of(clocks.VIEW, load([traces / "torch" / f"sampled-rank{i}.json.gz" for i in (0, 1)]), EVERYTHING)
    assert found["offset_ns"].isna().tolist() == [False, True]
    assert "contradict" in found["note"].iloc[1]


def test_embeddings_of_unequal_size_make_an_all_to_all_uneven(dlrm: tuple[Trace, Any], traces: Path) -> None:
    """One of five exchanges, of int32 indices, is uneven. The shapes of its operator are output and input. The ranks
    look up what they receive in it."""
    received, sent = [], []
    for path in sorted((traces / "torch" / "dlrm-8xv100").glob("*.json")):
        operators = [event for event in raw(path) if event.get("cat") == "cpu_op"]
        exchanges = [one["args"]["Input Dims"][:2] for one in operators if one["name"] == "c10d::alltoall_base_"]
        ((output, input_),) = [pair for pair in exchanges if pair[0] != pair[1]]
        received.append(output[0])
        sent.append(input_[0])
    table = table_of(imbalance.VIEW, dlrm[0], EVERYTHING)
    assert sum(received) == sum(sent)
    assert table["uneven_calls"].tolist() == [1] * 8
    assert table["received_bytes"].tolist() == [4 * each for each in received]
    assert table["received_ratio"].tolist() == pytest.approx([each / statistics.mean(received) for each in received])
    assert table["received_ratio"].max() == pytest.approx(3.9245, abs=1e-4)
    assert table["tokens"].tolist() == received


def one_event(name: str, kind: str, args: dict[str, Any], shapes: Any = None, dtypes: Any = None) -> tuple[Any, Any]:
    """Return the description and the size of one event."""
    texts = [None if value is None else json.dumps(value) for value in (shapes, dtypes)]
    assert collectives.communicates(name, kind)
    found, size = collectives.described(name, json.dumps(args), *texts)
    return None if found is None else msgspec.to_builtins(found), None if size < 0 else size


PARAMETERS = {
    "Collective name": "_reduce_scatter_base", "In msg nelems": 800, "Out msg nelems": 100, "dtype": "BFloat16",
    "Group size": 8, "Process Group Name": "3", "Process Group Description": "undefined", "Seq": 17,
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip


def test_parameters() -> None:
    description, size = one_event("record_param_comms", "operator", PARAMETERS)
    assert msgspec.convert(description, Collective) == Collective(
        "reduce_scatter", "3", "[0, 1, 2, 3, 4, 5, 6, 7]", 8, 800, "bfloat16", 17
    )
    assert size == 1600


HOST_SPELLINGS = ("all_reduce", "all_gather", "broadcast", "reduce")
KERNEL_SPELLINGS = {
    "nccl": ("ncclKernel_AllReduce", "ncclKernel_AllGather", "ncclKernel_Broadcast", "ncclKernel_Reduce"),
    "hccl": ("HcclAllReduce", "hcom_allGather__503_0_1", "hcclBroadcast", "hcom_reduce__503_1_1"),
}


@pytest.mark.parametrize("recorded", ["Collective name", "shapes"])
def test_hccl_collectives_are_described_as_those_of_nccl(tmp_path: Path, recorded: str) -> None:
    """Each call takes 2 µs and sends 1024 floats in a group of four ranks. Ascend's library writes AllReduce."""

    def table(library: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for i, (call, kernel) in enumerate(zip(HOST_SPELLINGS, KERNEL_SPELLINGS[library], strict=True)):
            word = call.title().replace("_", "") if library == "hccl" else call
            fields = {"Collective name": word, "In msg nelems": 1024, "dtype": "Float", "Group size": 4}
            shapes = {"Input Dims": [[32, 32]], "Input type": ["float"]}
            common = {"ph": "X", "ts": 100 * i, "dur": 2}
            more = {"correlation": i, **(fields if recorded == "Collective name" else {})}
            events += [
                {"cat": "user_annotation", "name": f"{library}:{call}", "pid": 1, "tid": 1, "args": shapes} | common,
                {"cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 1, "args": {"correlation": i}} | common,
                {"cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "args": more} | common,
            ]
        path = tmp_path / f"{library}.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        found = load(path)
        assert set(found.events["op_name"].to_pylist()) == {None, *HOST_SPELLINGS}
        return table_of(COLLECTIVES, found, EVERYTHING).sort_values("collective").to_dict("records")

    rows = table("hccl")
    assert str(rows) == str(table("nccl"))
    assert [row["collective"] for row in rows] == sorted(HOST_SPELLINGS)
    assert rows[1]["total_ns"] == 2000
    assert rows[1]["message_bytes"] == 4096
    if recorded == "Collective name":
        assert rows[1]["bus_bandwidth_bytes_per_s"] == pytest.approx(2 * 3 / 4 * 4096 / 2000e-9)


@pytest.mark.parametrize(
    ("native", "more", "expected"),
    [
        ("send", {"Dst Rank": 5, "Rank": 1}, {"peer": 5}),
        ("recv", {"Src Rank": 4}, {"peer": 4}),
        ("recv", {}, {}),
        ("all_to_allv", {"Out split size": "[3, 4]"}, {"received": 100, "received_rows": 7, "sent": 800}),
        ("all_to_all", {"Out split size": "[3, ..., 4]"}, {"received": 100, "sent": 800}),
        ("all_to_all", {"Out split size": "[]"}, {"received": 100, "sent": 800}),
        ("allreduce", {"Dst Rank": 5}, {}),
    ],
)
def test_details_in_parameters(native: str, more: dict[str, Any], expected: dict[str, int]) -> None:
    """torch records the rank in the job, which is not the rank in the group."""
    description, _ = one_event("record_param_comms", "operator", {**PARAMETERS, "Collective name": native, **more})
    assert {name: description[name] for name in DETAILS if name in description} == expected


@pytest.mark.parametrize(
    ("name", "values", "shapes", "expected"),
    [
        ("c10d::send", ["", "", "1", "3"], [[[1000]], [], [], []], {"peer": 1, "tag": 3}),
        ("c10d::recv_", ["", "", "0", "0"], [[[1000]], [], [], []], {"peer": 0, "tag": 0}),
        (
            "c10d::alltoall_base_",
            ["", "", "", "[1, 2]"],
            [[3, 8], [4, 8], []],
            {"received": 24, "received_rows": 3, "sent": 32},
        ),
        ("c10d::recv_any_source_", ["", "", "0"], [[[1000]], [], []], None),
        ("c10d::send", ["", "", "-1", "x"], [], None),
        ("c10d::send", "text", [], None),
        ("c10d::send", ["", ""], [], None),
    ],
)
def test_details_in_arguments(name: str, values: Any, shapes: Any, expected: dict[str, int] | None) -> None:
    description, _ = one_event(name, "communication", {"Concrete Inputs": values}, shapes, ["float", "float", ""])
    found = None if description is None else {key: description[key] for key in DETAILS if key in description}
    assert found == expected


@pytest.mark.parametrize("name", ["wait", "init"])
def test_waits_are_not_described(name: str) -> None:
    assert one_event("record_param_comms", "operator", {**PARAMETERS, "Collective name": name}) == (None, None)


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "size"),
    [
        ("nccl:all_reduce", [[10, 3]], ["float"], 120),
        ("nccl:all_to_all", [[6]], ["c10::BFloat16"], 12),
        ("gloo:all_reduce", [[]], ["float"], None),  # the shapes in a list of tensors are unknown
        ("nccl:_all_gather_base", [[10]], ["float"], None),  # the shape is the part of one rank
        ("c10d::_allgather_base_", [[80], [10], []], ["float", "float", ""], 320),
        ("c10d::alltoall_base_", [[5], [7], []], ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", ""], 7),
        ("c10d::allreduce_", [[[262144]], []], ["TensorList", ""], None),
        ("nccl:all_reduce", [[4]], ["a type of the future"], None),
        ("nccl:all_reduce", None, None, None),
    ],
)
def test_sizes_from_shapes(name: str, shapes: Any, dtypes: Any, size: int | None) -> None:
    assert one_event(name, "communication", {}, shapes, dtypes)[1] == size


def test_collectives_on_the_host_are_marked() -> None:
    assert one_event("gloo:barrier", "communication", {})[0] == {"name": "barrier", "on": "host"}
    assert one_event("nccl:barrier", "communication", {})[0] is None
    assert not collectives.communicates("aten::add", "operator")
    assert not collectives.communicates("nccl:barrier", "memory")
