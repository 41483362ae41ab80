"""Tests of the side tables of stored runs and of what older versions stored in other places."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.readers import run_folder
from perfkit_core.trace.model import (
    account,
    collective,
    compiled_graph,
    device_task,
    frame_samples,
    serving_step,
    timed_steps,
)
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.compiled_graph import CompiledGraph, KernelCall
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.serving_step import ServingStep
from perfkit_core.trace.model.side_tables import ALL
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.older_format import without_facts
from tests.support.small_trace import small_trace

CALL = KernelCall("e", "k", operators=("aten::mm",), modules=("a", "b"), stacks=("a.py(1): f",))


def described() -> Trace:
    """Return the small trace with facts in all side tables."""
    return small_trace().with_tables(
        collectives=collective.TABLE.of_structs([Collective("all_reduce", "0", elements=5), Collective("send", peer=1)],
                                                row=[1, 4]),
        awaited_ranks=collective.AWAITED.table({"row": [1], "awaited": [2], "after_ns": [3], "wait_ns": [4]}),
        server_steps=serving_step.TABLE.of_structs([ServingStep("decode", 3)], row=[0]),
        frame_samples=frame_samples.to_table({"0": FrameSamples(("a", "b"), (1, 5), (1, 0), 10**9)}),
        step_clock=timed_steps.to_table({"0": TimedSteps((TimedStep(0, False, 5, 4), TimedStep(1, True, 6)), 0, 2)}),
        compiled_graphs=compiled_graph.to_table([CompiledGraph((CALL, CALL), "e"), CompiledGraph((CALL,))]),
        device_tasks=device_task.TABLE.table({"row": [2], "type": ["MatMulV2"], "core": ["AI_CORE"], "wait_ns": [5]}),
        account=account.to_table([ReadEvents("row", 9, "X", "cpu_op", "python", 50), ReadEvents("link", 1)]),
    )  # fmt: skip


def test_all_side_tables_come_back_from_a_file(tmp_path: Path) -> None:
    trace = described()
    found = run_folder.read_stored(store.write_trace(trace, tmp_path / "t.perfkit.parquet"))
    assert set(found.tables.names) == set(ALL)
    for name in ALL:
        assert found.tables[name].equals(trace.tables[name].combine_chunks()), name
    assert found.compiled_graphs == trace.compiled_graphs
    assert found.timed_steps == trace.timed_steps
    assert found.account == trace.account


def test_no_flipped_bit_changes_a_side_table(tmp_path: Path) -> None:
    path = store.write_trace(described(), tmp_path / "t.perfkit.parquet")
    expected, data, draw = run_folder.read_stored(path), path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(300):
        flipped = bytearray(data)
        flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        try:
            found = run_folder.read_stored(path, check=True)
        except SourceError:
            refused += 1
        else:
            assert all(found.tables[name].equals(expected.tables[name]) for name in ALL)
    assert refused > 200


@pytest.mark.parametrize(
    ("name", "table", "why"),
    [
        ("collectives", collective.TABLE.table({"row": [10**9], "name": ["x"], "on": ["host"]}), "rows do not ascend"),
        ("collectives", collective.TABLE.table({"row": [1, 1], "name": ["x", "y"], "on": ["host"] * 2}), "not ascend"),
        ("collectives", collective.TABLE.table({"row": [-1], "name": ["x"], "on": ["host"]}), "rows do not ascend"),
        ("collectives", collective.TABLE.table({"row": [1], "name": ["x"], "on": ["z"]}), "unknown word: 'z'"),
        ("collectives", collective.TABLE.table({"row": [1], "on": ["host"]}), "the column name has an empty cell"),
        ("server_steps", serving_step.TABLE.table({"row": [1], "kind": ["x"]}), "unknown word: 'x'"),
        ("server_steps", serving_step.TABLE.table({"row": [1], "kind": ["decode"], "tokens": [-5]}), "negative"),
        ("account", pa.table({"became": ["row"]}), "columns are missing: category"),
    ],
)
def test_side_tables_that_cannot_be_are_refused(tmp_path: Path, name: str, table: pa.Table, why: str) -> None:
    path = store.write_trace(small_trace().with_tables(**{name: table}), tmp_path / "t.perfkit.parquet")
    found = run_folder.read_stored(path)
    with pytest.raises(SourceError, match=why):
        found.tables[name]


def test_rows_of_side_tables_follow_their_events() -> None:
    """Two ranks follow one another; a part keeps its own rows."""
    trace = described()
    both = concat_traces([with_rank(trace, 0), with_rank(trace, 1)])
    count = len(trace)
    assert both.tables["collectives"]["row"].to_pylist() == [1, 4, count + 1, count + 4]
    assert both.part(4, count + 2).tables["collectives"]["row"].to_pylist() == [0, count - 3]
    assert both.account == (ReadEvents("row", 18, "X", "cpu_op", "python", 100), ReadEvents("link", 2))
    assert both.compiled_graphs == trace.compiled_graphs


def test_older_arguments_become_side_tables() -> None:
    """A framework may use the same key for a value of its own."""
    recorded = {"Ev Idx": 1, "x": 1.50}
    texts = [
        None,
        '{"Ev Idx":1,"x":1.50,"collective":{"name":"all_reduce","group_size":2}}',
        '{"collective":"own"}',
        '{"perfkit.serving":{"kind":"decode","tokens":8}}',
        '{"perfkit.serving":{"kind":"no kind"}}',
    ]
    args, tables = without_facts(pa.chunked_array([texts[:2], texts[2:]], pa.string()))
    found = args.to_pylist()
    assert json.loads(found[1]) == recorded
    assert [found[0], *found[2:]] == [None, texts[2], None, texts[4]]
    assert tables["collectives"].select(["row", "name", "group_size"]).to_pylist() == [
        {"row": 1, "name": "all_reduce", "group_size": 2}
    ]
    assert tables["server_steps"].select(["row", "kind", "tokens"]).to_pylist() == [
        {"row": 3, "kind": "decode", "tokens": 8}
    ]
