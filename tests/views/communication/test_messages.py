"""Sends and receives, pipeline bubbles and imbalance in traces made by hand. The expected numbers were computed by
hand."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.communication import imbalance, pipeline, point_to_point, stragglers
from perfkit_core.views.communication.point_to_point import messages
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace
from tests.support.ranks import collective, rank

VIEWS = (point_to_point.VIEW, pipeline.VIEW, imbalance.VIEW)
SHARED = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def rows(view: View, made: Trace, columns: str, **request: Any) -> list[tuple[Any, ...]]:
    table = table_of(view, made, ViewRequest(**request))[columns.split()].astype(object)
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in table.itertuples(index=False)]


def send(start: int, end: int, peer: int, size: int = 1000, **more: Any) -> dict[str, Any]:
    return collective(start, end, size, name="send", group="pp", peer=peer, **more)


def recv(start: int, end: int, peer: int, size: int = 1000, **more: Any) -> dict[str, Any]:
    return collective(start, end, size, name="recv", group="pp", peer=peer, **more)


def two(*, clock: int = 1000, meet: bool = True) -> list[Trace]:
    """Return two ranks. Rank 0 sends 1000 bytes from 100 to 300, which rank 1 receives from 150 to 310. Rank 0 sends
    3000 bytes from 500 to 600, which rank 1 receives from 400 to 620. If they ``meet``, an all-reduce aligns the
    clocks."""
    met = ([collective(0, 10)], [collective(0, 10)]) if meet else ([], [])
    first = rank(0, *met[0], send(100, 300, 1), send(500, 600, 1, 3000))
    return [first, rank(1, *met[1], recv(150, 310, 0), recv(400, 620, 0, 3000), clock=clock)]


def test_waits_and_transfers_of_a_pair() -> None:
    """The first message makes the sender wait for 50 and takes 160. The second one makes the receiver wait for 100 and
    takes 120."""
    columns = (
        "sender receiver group messages message_bytes bytes send_ns recv_ns receiver_waited_ns sender_waited_ns "
        "known_transfers transfer_ns transfer_bandwidth_bytes_per_s unmatched_sends unmatched_receives"
    )
    assert rows(point_to_point.VIEW, concat_traces(two()), columns) == [
        (0, 1, "pp", 2, 1000, 4000, 300, 380, 100, 50, 2, 120, pytest.approx(4000 / 280e-9), 0, 0)
    ]


@pytest.mark.parametrize("meet", [True, False])
def test_waits_are_known_only_on_aligned_clocks(meet: bool) -> None:
    """Without a collective, or if the receive ends before its send begins, waits are unknown."""
    made = concat_traces(two() if not meet else [two()[0], rank(1, collective(0, 10), recv(20, 90, 0))])
    if not meet:
        made = concat_traces(two(meet=False))
    columns = "messages receiver_waited_ns sender_waited_ns known_transfers transfer_ns"
    assert rows(point_to_point.VIEW, made, columns) == [(1 if meet else 2, None, None, 0, None)]


def test_messages_that_differ_or_were_not_recorded_are_unmatched() -> None:
    """The second messages differ in size, so they and the third ones are not matched. A tag is a sequence of its
    own. Rank 2 was not recorded."""
    first = rank(0, send(0, 9, 1), send(10, 19, 1), send(20, 29, 1), send(30, 39, 1, tag=5), send(40, 49, 2))
    second = rank(1, recv(0, 9, 0), recv(10, 19, 0, 8), recv(30, 39, 0, tag=5))
    columns = "sender receiver messages unmatched_sends unmatched_receives"
    assert rows(point_to_point.VIEW, concat_traces([first, second]), columns) == [(0, 1, 2, 2, 1), (0, 2, 0, 1, 0)]
    assert rows(point_to_point.VIEW, concat_traces([first, second]), f"step {columns}", by=("step",))[0] == (
        7, 0, 1, 2, 2, 1,
    )  # fmt: skip


def test_sends_and_receives_that_are_issued_together_share_a_kernel() -> None:
    """The framework names the peers in calls that launch nothing. One kernel then transfers the messages of all calls
    before its launch. The last call has no kernel."""

    def call(name: str, start: int, peer: int) -> dict[str, Any]:
        described = json.dumps({"collective": {"name": name, "peer": peer}})
        return host("record_param_comms", "communication", start, 5, args=described, bytes=100 * peer)

    made = trace(
        [
            call("send", 10, 1), call("recv", 20, 2), host("launch", "runtime", 30, 2, correlation=1),
            call("send", 40, 3), host("launch", "runtime", 50, 2, correlation=2), call("recv", 60, 4),
            device(SHARED, "kernel", 35, 100, 1), device(SHARED, "kernel", 140, 7, 2),
        ],
        rank=0,
    )  # fmt: skip
    ends = messages(made)[["collective", "peer", "bytes", "start_ns", "dur_ns"]].astype(object)
    assert [tuple(None if pd.isna(cell) else cell for cell in row) for row in ends.itertuples(index=False)] == [
        ("send", 1, 100, 35, 100), ("recv", 2, 200, 35, 100), ("send", 3, 300, 140, 7), ("recv", 4, 400, None, None),
    ]  # fmt: skip


def test_a_nested_call_is_one_message() -> None:
    """An operator and the call inside it describe one message, whose kernel describes it again."""
    outer, inner = (
        json.dumps({"collective": {"name": "send", "peer": 1, "group": group}}) for group in (None, "0 default_pg")
    )
    made = trace(
        [
            host("c10d::send", "communication", 0, 50, args=outer),
            host("record_param_comms", "communication", 10, 20, args=inner),
            host("launch", "runtime", 15, 2, correlation=1),
            device(SHARED, "kernel", 35, 100, 1, args=inner),
        ],
        rank=0,
    )
    ends = messages(made)
    assert ends[["collective", "peer", "group", "dur_ns"]].values.tolist() == [["send", 1, "0 default_pg", 100]]


def test_labels_on_the_host_get_the_peers_of_their_operators() -> None:
    """Labels end when the data has arrived, so a send may enclose the operator of the next receive. The first label has
    no operator, because the recording began between the two."""
    rows_of = []
    for at, name, peer in ((0, "send", None), (10, "send", 1), (20, "recv", 2)):
        if peer is not None:
            described = json.dumps({"collective": {"name": name, "peer": peer, "tag": 4}})
            rows_of.append(host(f"c10d::{name}", "communication", at, 3, args=described))
        label = json.dumps({"collective": {"name": name, "on": "host"}})
        rows_of.append(host(f"gloo:{name}", "communication", at + 2, 100 - at, args=label, bytes=8))
    ends = messages(trace(rows_of, rank=0))[["collective", "peer", "tag", "start_ns", "dur_ns"]].astype(object)
    assert [tuple(None if pd.isna(cell) else cell for cell in row) for row in ends.itertuples(index=False)] == [
        ("send", None, None, 2, 100), ("send", 1, 4, 10, 92), ("recv", 2, 4, 20, 82),
    ]  # fmt: skip


def stage(number: int, compute: list[tuple[int, int]], *ends: dict[str, Any]) -> Trace:
    """Return a rank with a step from 0 to 1000, kernels that compute, and messages."""
    made = rank(number, *ends, step_ns=1000, world=len(ends))
    kernels = [host("launch", "runtime", 900 + i, 1, correlation=100 + i) for i in range(len(compute))]
    kernels += [device("gemm", "kernel", *each, 100 + i) for i, each in enumerate(compute)]
    both = trace([*(row for row in _rows(made)), *kernels], rank=number)
    return both.with_meta(world_size=2)


def _rows(made: Trace) -> list[dict[str, Any]]:
    names = (
        "name",
        "kind",
        "start_ns",
        "dur_ns",
        "device",
        "pid",
        "tid",
        "stream",
        "correlation",
        "bytes",
        "args",
        "step",
    )
    cells = [{name: row[name] for name in names} for row in made.events.select(list(names)).to_pylist()]
    for fact in made.tables["collectives"].to_pylist():
        cells[fact.pop("row")]["args"] = json.dumps({"collective": {k: v for k, v in fact.items() if v is not None}})
    return cells


def test_bubbles_of_two_stages() -> None:
    """Two microbatches. Stage 0 computes 100–200, 200–300, 500–700, 800–950. It waits for gradients from 300 to 500 and
    from 720 to 800, and sends from 200 to 210 and from 290 to 305. The time of a message beside compute is no bubble:
    300–305 is a part of the first wait. An all-reduce from 940 to 990 is exposed from 950 on."""
    first = stage(
        0, [(100, 200), (500, 200), (800, 150)],
        send(200, 210, 1), send(290, 305, 1), recv(300, 500, 1), recv(720, 800, 1), collective(940, 990),
    )  # fmt: skip
    second = stage(
        1, [(210, 290), (550, 100)],
        recv(0, 210, 0), recv(210, 305, 0), send(500, 500, 0), send(650, 800, 0), collective(800, 990),
    )  # fmt: skip
    columns = (
        "rank stage steps step_ns compute_ns bubble_ns bubble_ratio ideal_ratio collective_ns stages microbatches "
        "sends receives"
    )
    made = concat_traces([first, second])
    assert rows(pipeline.VIEW, made, columns) == [
        (0, 0, 1, 1000, 550, 280, 0.28, pytest.approx(1 / 3), 40, 2, 2, 2, 2),
        (1, 1, 1, 1000, 390, 360, 0.36, pytest.approx(1 / 3), 190, 2, 2, 2, 2),
    ]
    assert rows(pipeline.VIEW, made, "rank step bubble_ns", by=("step",)) == [(0, 7, 280), (1, 7, 360)]
    # the other stages of the pipeline are unknown if their ranks were not recorded
    assert rows(pipeline.VIEW, first, "rank stage ideal_ratio bubble_ns") == [(0, None, None, 280)]


@pytest.mark.parametrize(
    ("links", "stages"),
    [
        ([(0, 1), (1, 2)], [0, 1, 2]),
        ([(2, 0), (0, 1)], [1, 2, 0]),  # the order of the stages is not that of the ranks
        ([(0, 1), (1, 2), (2, 0)], [None] * 3),  # a ring
        ([(0, 1), (0, 2), (0, 3)], [None] * 4),
        ([(0, 1), (2, 3)], [0, 1, 0, 1]),  # two pipelines
    ],
)
def test_stages_follow_from_the_messages(links: list[tuple[int, int]], stages: list[int | None]) -> None:
    ends: dict[int, list[dict[str, Any]]] = {number: [] for number in range(len(stages))}
    for at, (sender, receiver) in enumerate(links):
        ends[sender].append(send(100 * at, 100 * at + 9, receiver))
        ends[receiver].append(recv(100 * at, 100 * at + 9, sender))
    made = concat_traces([rank(number, *of_rank) for number, of_rank in ends.items()])
    assert [row[0] for row in rows(pipeline.VIEW, made, "stage")] == stages


def test_microbatches_are_unknown_if_their_messages_differ_in_number() -> None:
    """Tensors of two sizes in each of two microbatches are two messages of each size. A third message of one size
    belongs to no microbatch."""
    for more, count in (([], 2), ([4], None)):
        sizes = [4, 8, 4, 8, *more]
        first = rank(0, *(send(100 * i, 100 * i + 9, 1, size) for i, size in enumerate(sizes)))
        second = rank(1, *(recv(100 * i, 100 * i + 9, 0, size) for i, size in enumerate(sizes)))
        found = rows(pipeline.VIEW, concat_traces([first, second]), "microbatches ideal_ratio")
        assert found == [(count, count and pytest.approx(1 / 3))] * 2


def working(number: int, tokens: int, compute: int, received: int, sent: int, clock: int = 0) -> Trace:
    """Return a rank with a step. It looks up ``tokens`` in an embedding, applies ReLU to 4 elements of each,
    receives in an all_to_all until 200, and computes for ``compute`` before the next collective at 900."""
    exchange = {"name": "all_to_all", "group": "ep", "group_size": 2, "dtype": "float32", "received": received,
                "received_rows": received // 4, "sent": sent}  # fmt: skip
    parts = [
        host("step 7", "step", clock, 1000, step=7),
        host("embed", "operator", clock + 1, 5, shapes=f"[[50, 4], [1, {tokens}]]", dtypes='["float", "long int"]'),
        host("position", "operator", clock + 7, 2, shapes="[[9, 4], [3]]", dtypes='["float", "long int"]'),
        host("relu", "operator", clock + 10, 5, shapes=f"[[{tokens}, 4]]", dtypes='["float"]'),
        host("launch", "runtime", clock + 11, 1, correlation=1),
        host("launch", "runtime", clock + 20, 1, correlation=2),
        host("launch", "runtime", clock + 22, 1, correlation=3),
        device("gemm", "kernel", clock + 250, compute, 1),
        device("nccl", "kernel", clock + 100, 100, 2, args=json.dumps({"collective": exchange}), bytes=4 * sent),
        device("nccl", "kernel", clock + 900, 50, 3, **_rest(collective(0, 0))),
    ]
    names = {"embed": "embedding", "position": "embedding", "relu": "relu"}
    made = trace(parts, rank=number, names=names.get)
    return made.with_meta(world_size=2)


def _rest(one: dict[str, Any]) -> dict[str, Any]:
    return {"args": one["args"], "bytes": one["bytes"]}


def test_imbalance_and_stragglers_show_the_same_waits() -> None:
    """The labels of gloo begin after their operators. The label of rank 0 begins last, the operator of rank 1 does."""
    described = {"name": "all_to_all", "group": "0", "group_size": 2}
    on_device = json.dumps({"collective": described | {"received": 8, "sent": 8}})
    on_host = json.dumps({"collective": described | {"on": "host"}})
    parts = []
    for number, (operator, label) in enumerate(((10, 50), (20, 30))):
        parts.append(
            trace(
                [
                    host("step 7", "step", 0, 500, step=7),
                    host("c10d::alltoall_", "communication", operator, 5, args=on_device),
                    host("gloo:all_to_all", "communication", label, 100 - label, args=on_host),
                ],
                rank=number,
            )
        )
    made = concat_traces(parts)
    assert rows(stragglers.VIEW, made, "rank caused_wait_ns") == [(0, 20), (1, 0)]
    for by in ((), ("step",)):
        assert rows(imbalance.VIEW, made, "rank caused_wait_ns", by=by) == [(0, 20), (1, 0)]


def test_more_work_and_slower_work_are_told_apart() -> None:
    """Rank 1 has three times the tokens and FLOPs of rank 0 (4 for each token) and computes six times as long: 600
    instead of 100. Rank 0 receives 40 of 160 elements. Rank 1 is 500 / 2 above the mean of the computation after."""
    made = concat_traces([working(0, 10, 100, 40, 80), working(1, 30, 600, 120, 80, clock=5000)])
    columns = "rank steps compute_ns compute_ratio tokens flops work_ratio time_per_work_ratio"
    assert rows(imbalance.VIEW, made, columns) == [
        (0, 1, 100, pytest.approx(100 / 350), 10, 40, 0.5, pytest.approx(200 / 350)),
        (1, 1, 600, pytest.approx(600 / 350), 30, 120, 1.5, pytest.approx(400 / 350)),
    ]
    columns = (
        "uneven_calls received_bytes received_rows received_ratio max_received_ratio compute_after_ns "
        "compute_after_over_mean_ns"
    )
    assert rows(imbalance.VIEW, made, columns, by=("step",)) == [
        (1, 160, 10, 0.5, 0.5, 100, -250), (1, 480, 30, 1.5, 1.5, 600, 250),
    ]  # fmt: skip


@pytest.mark.parametrize(("received", "sent"), [((80, 80), 80), ((40, 120), 70)])
def test_even_and_wrongly_matched_exchanges_do_not_count(received: tuple[int, int], sent: int) -> None:
    """All ranks receive the same, or together more than they send."""
    made = concat_traces([working(number, 10, 100, each, sent) for number, each in enumerate(received)])
    assert rows(imbalance.VIEW, made, "uneven_calls received_bytes") == [(0, None), (0, None)]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_views_keep_their_contract_and_merge_rank_by_rank(view: View) -> None:
    parts = [working(0, 10, 100, 40, 80), working(1, 30, 600, 120, 80)] if view is imbalance.VIEW else two()
    check_view(view, concat_traces(parts))
    for request in (ViewRequest(), ViewRequest(by=("step",))):
        reduced = [reduction(view).reduce(one, request) for one in parts]
        merged = reduction(view).merge(reduced, request)
        pd.testing.assert_frame_equal(merged, table_of(view, concat_traces(parts), request))
        assert len(merged)


def test_reasons_for_empty_tables() -> None:
    anonymous = rank(0, collective(0, 9, name="send"))
    silent = rank(0, collective(0, 9))
    for view, made, said in (
        (point_to_point.VIEW, silent, "no sends or receives"),
        (point_to_point.VIEW, anonymous, "not their peer ranks"),
        (pipeline.VIEW, silent, "no sends or receives"),
        (pipeline.VIEW, trace([host("a", "operator", 0, 9)], rank=0), "steps"),
        (imbalance.VIEW, silent, "only one rank"),
    ):
        assert table_of(view, made, ViewRequest()).empty
        assert said in str(view.explain_empty(made))
    # bubbles need no peers
    assert rows(pipeline.VIEW, anonymous, "rank stage bubble_ns sends") == [(0, None, 9, 1)]
