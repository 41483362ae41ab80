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
from tests.support.tables import check_tables, view_rows, view_table

VIEWS = (point_to_point.VIEW, pipeline.VIEW, imbalance.VIEW)
SHARED = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


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


def test_messages_between_pairs() -> None:
    """Of the pair that met, the first message makes the sender wait for 50 and takes 160. The second one makes the
    receiver wait for 100 and takes 120."""
    first = rank(0, send(0, 9, 1), send(10, 19, 1), send(20, 29, 1), send(30, 39, 1, tag=5), send(40, 49, 2))
    second = rank(1, recv(0, 9, 0), recv(10, 19, 0, 8), recv(30, 39, 0, tag=5))
    differing = concat_traces([first, second])
    view = point_to_point.VIEW
    check_tables("views/point_to_point.txt", {
        "an all-reduce aligns the clocks": view_table(view, concat_traces(two())),
        "without a collective, waits are unknown": view_table(view, concat_traces(two(meet=False))),
        "nor are they known if the receive ends before its send begins":
            view_table(view, concat_traces([two()[0], rank(1, collective(0, 10), recv(20, 90, 0))])),
        "the second messages differ in size, a tag is a sequence of its own, and rank 2 was not recorded":
            view_table(view, differing),
        "the same by step": view_table(view, differing, by=("step",)),
    })  # fmt: skip


def ends(made: Trace) -> list[tuple[Any, ...]]:
    table = messages(made)[["collective", "peer", "group", "tag", "bytes", "start_ns", "dur_ns"]].astype(object)
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in table.itertuples(index=False)]


def call(
    name: str, start: int, dur: int, label: str = "record_param_comms", size: int | None = None, **more: Any
) -> Any:
    """Return a call that describes a message."""
    return host(label, "communication", start, dur, args=json.dumps({"collective": {"name": name, **more}}), bytes=size)


def test_sends_and_receives_that_are_issued_together_share_a_kernel() -> None:
    """The framework names the peers in calls that launch nothing. One kernel then transfers the messages of all calls
    before its launch. The last call has no kernel."""
    made = trace([
        call("send", 10, 5, size=100, peer=1), call("recv", 20, 5, size=200, peer=2),
        host("launch", "runtime", 30, 2, correlation=1),
        call("send", 40, 5, size=300, peer=3), host("launch", "runtime", 50, 2, correlation=2),
        call("recv", 60, 5, size=400, peer=4),
        device(SHARED, "kernel", 35, 100, 1), device(SHARED, "kernel", 140, 7, 2),
    ], rank=0)  # fmt: skip
    assert ends(made) == [
        ("send", 1, None, None, 100, 35, 100), ("recv", 2, None, None, 200, 35, 100),
        ("send", 3, None, None, 300, 140, 7), ("recv", 4, None, None, 400, None, None),
    ]  # fmt: skip


def test_a_nested_call_is_one_message() -> None:
    """An operator and the call inside it describe one message, whose kernel describes it again."""
    inner = call("send", 10, 20, peer=1, group="0 default_pg")
    made = trace([
        call("send", 0, 50, "c10d::send", peer=1), inner, host("launch", "runtime", 15, 2, correlation=1),
        device(SHARED, "kernel", 35, 100, 1, args=inner["args"]),
    ], rank=0)  # fmt: skip
    assert ends(made) == [("send", 1, "0 default_pg", None, None, 35, 100)]


def test_labels_on_the_host_get_the_peers_of_their_operators() -> None:
    """Labels end when the data has arrived, so a send may enclose the operator of the next receive. The first label has
    no operator, because the recording began between the two."""
    made = trace([
        call("send", 2, 100, "gloo:send", 8, on="host"),
        call("send", 10, 3, "c10d::send", peer=1, tag=4), call("send", 12, 90, "gloo:send", 8, on="host"),
        call("recv", 20, 3, "c10d::recv", peer=2, tag=4), call("recv", 22, 80, "gloo:recv", 8, on="host"),
    ], rank=0)  # fmt: skip
    assert ends(made) == [
        ("send", None, None, None, 8, 2, 100), ("send", 1, None, 4, 8, 10, 92), ("recv", 2, None, 4, 8, 20, 82),
    ]  # fmt: skip


def stage(number: int, compute: list[tuple[int, int]], *ends: dict[str, Any]) -> Trace:
    """Return a rank with a step from 0 to 1000, kernels that compute, and messages."""
    launches = [host("launch", "runtime", 900 + i, 1, correlation=100 + i) for i in range(len(compute))]
    kernels = [device("gemm", "kernel", *each, 100 + i) for i, each in enumerate(compute)]
    return rank(number, *ends, step_ns=1000, more=[*launches, *kernels])


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
    both = concat_traces([first, second])
    check_tables("views/pipeline.txt", {
        "two stages": view_table(pipeline.VIEW, both),
        "by step": view_table(pipeline.VIEW, both, by=("step",)),
        "the stages are unknown if their ranks were not recorded": view_table(pipeline.VIEW, first),
    })  # fmt: skip


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
    assert [row[0] for row in view_rows(pipeline.VIEW, made, "stage")] == stages


def test_microbatches_are_unknown_if_their_messages_differ_in_number() -> None:
    """Tensors of two sizes in each of two microbatches are two messages of each size. A third message of one size
    belongs to no microbatch."""
    for more, count in (([], 2), ([4], None)):
        sizes = [4, 8, 4, 8, *more]
        first = rank(0, *(send(100 * i, 100 * i + 9, 1, size) for i, size in enumerate(sizes)))
        second = rank(1, *(recv(100 * i, 100 * i + 9, 0, size) for i, size in enumerate(sizes)))
        found = view_rows(pipeline.VIEW, concat_traces([first, second]), "microbatches ideal_ratio")
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
    described: dict[str, Any] = {"group": "0", "group_size": 2}
    parts = [
        trace([
            host("step 7", "step", 0, 500, step=7),
            call("all_to_all", operator, 5, "c10d::alltoall_", received=8, sent=8, **described),
            call("all_to_all", label, 100 - label, "gloo:all_to_all", on="host", **described),
        ], rank=number)
        for number, (operator, label) in enumerate(((10, 50), (20, 30)))
    ]  # fmt: skip
    made = concat_traces(parts)
    assert view_rows(stragglers.VIEW, made, "rank caused_wait_ns") == [(0, 20), (1, 0)]
    for by in ((), ("step",)):
        assert view_rows(imbalance.VIEW, made, "rank caused_wait_ns", by=by) == [(0, 20), (1, 0)]


def test_more_work_and_slower_work_are_told_apart() -> None:
    """Rank 1 has three times the tokens and FLOPs of rank 0 (4 for each token) and computes six times as long: 600
    instead of 100. Rank 0 receives 40 of 160 elements. Rank 1 is 500 / 2 above the mean of the computation after."""
    made = concat_traces([working(0, 10, 100, 40, 80), working(1, 30, 600, 120, 80, clock=5000)])
    check_tables("views/imbalance.txt", {
        "two ranks": view_table(imbalance.VIEW, made), "by step": view_table(imbalance.VIEW, made, by=("step",)),
    })  # fmt: skip


@pytest.mark.parametrize(("received", "sent"), [((80, 80), 80), ((40, 120), 70)])
def test_even_and_wrongly_matched_exchanges_do_not_count(received: tuple[int, int], sent: int) -> None:
    """All ranks receive the same, or together more than they send."""
    made = concat_traces([working(number, 10, 100, each, sent) for number, each in enumerate(received)])
    assert view_rows(imbalance.VIEW, made, "uneven_calls received_bytes") == [(0, None), (0, None)]


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
    assert view_rows(pipeline.VIEW, anonymous, "rank stage bubble_ns sends") == [(0, None, 9, 1)]
