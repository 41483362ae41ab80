"""Collectives in Paddle: their labels on the host, and kernels that a GPU recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.trace.assembly import labels
from perfkit_core.trace.model.collective import HOST, Collective
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.views.communication import clocks, collectives
from perfkit_core.views.merging import table_of

EVERYTHING = ViewRequest()


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
